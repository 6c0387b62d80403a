import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { untilWaiting } from '../eventually.js'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, faultsOf, hashOfEverything, newPerson, warningsOf } from '../updates/stored-state.js'
import { SEVEN, todayWorld } from './world.js'

/* The additional operations of Onyx's newer API: complete lists, and changes of one field. */

const world = await todayWorld(t)
const { call, database, admin, alice, bob, get, patch, made, create, query } = world
await newPerson(database, 'maker@example.com', 'manage:actions')
const maker = await world.token('maker@example.com')
const ABSENT = 'b0000000-0000-4000-8000-000000000099'
const SECRET_TOOL = {
  ...{ name: 'A', definition: DEFINITION, passthrough_auth: false },
  custom_headers: [{ key: 'x-key', value: 'secret' }],
}
const tool = (by = admin) => create('/admin/tool/custom', SECRET_TOOL, by)

t.test('200: shares, also of labels; what is absent stays', async t => {
  const id = await made({ users: [BOB], groups: [1] })
  const share = (body: object, headers = {}, token = alice) => patch(`/persona/${id}/share`, body, token, headers)
  const first = { is_public: true, users: [{ id: BOB }], groups: [1], is_listed: true }
  t.match((await share({ is_public: true })).json(), first)
  const second = await share({ user_ids: [CAROL], group_ids: null, is_public: null })
  t.match(second.json(), { ...first, users: [{ id: CAROL }] })
  t.match((await share({ group_ids: [], label_ids: [1] })).json(), { groups: [], labels: [{ id: 1 }] })
  t.match(await share({}), { statusCode: 200, headers: { etag: `"persona-${id}-4"` } })
  const unknown = await share({ user_ids: [ABSENT], group_ids: [99] })
  t.strictSame(faultsOf(unknown), ['body.users.0 not_found', 'body.groups.0 not_found'])
  const levels = await share({ user_shares: [{}], public_permission: 'VIEWER' })
  t.strictSame(faultsOf(levels), ['body.user_shares not_kept', 'body.public_permission not_kept'])
  t.equal((await share({ is_public: false }, { 'if-match': `"persona-${id}-1"` })).statusCode, 412)
  t.equal((await share({ is_public: false }, {}, bob)).statusCode, 403)
  t.match(await patch(`/persona/${id}/share?dry_run=true`, { is_public: false }, alice), { statusCode: 200 })
  t.match(await get(`/persona/${id}`), { is_public: true })
})

t.test('200: listed and featured, with a version and an audit row where something changes', async t => {
  const id = await made({ is_public: true })
  const [listed, featured] = [`/admin/persona/${id}/listed`, `/admin/persona/${id}/featured`]
  for (const _ of [1, 2]) t.match(await patch(listed, { is_listed: false }), { statusCode: 200, body: 'null' })
  for (const _ of [1, 2])
    t.match((await patch(featured, { is_featured: true })).json(), { is_featured: true, is_listed: false })
  t.match(await get(`/persona/${id}`), { is_visible: false, is_default_persona: true })
  const [, ...rows] = await auditRows(database.db, 'persona', id)
  const audited = rows.map(({ actor, difference }) => [actor, difference])
  t.strictSame(audited, [
    ['admin@example.com', { is_visible: { from: true, to: false } }],
    ['admin@example.com', { is_default_persona: { from: false, to: true } }],
  ])
  const dry = await patch(`${listed}?dry_run=true`, { is_listed: true })
  t.match(dry, { statusCode: 200, headers: { 'dry-run': 'true' } })
  t.match(await get(`/persona/${id}`), { is_visible: false })
  t.strictSame(faultsOf(await patch(listed, {})), ['body.is_listed missing'])
  t.strictSame(faultsOf(await patch(featured, {})), ['body.is_featured missing'])
  for (const name of ['if-match', 'idempotency-key']) {
    const refused = await patch(listed, { is_listed: true }, admin, { [name]: '"k"' })
    t.strictSame(faultsOf(refused), [`header.${name} extra_forbidden`])
  }
  const careful = await world.token('admin@example.com', { requireIfMatch: true })
  const demanded = await patch(listed, { is_listed: true }, careful)
  t.match(demanded.json(), { error_code: 'PRECONDITION_REQUIRED', detail: /Ask the operator/ })
  const { etag } = (await call('GET', `/persona/${id}`, { token: admin })).headers
  t.equal((await patch(featured, { is_featured: true }, careful, { 'if-match': String(etag) })).statusCode, 200)
})

t.test('200 or nothing: display priorities of several agents', async t => {
  const [one, two] = [await made(), await made()]
  const bound = await world.token('admin@example.com', { personaIds: [one] })
  const send = (map: unknown, token = admin) =>
    patch('/admin/agents/display-priorities', { display_priority_map: map }, token)
  t.match(await send({ [one]: 3, [two]: -1 }), { statusCode: 200, body: 'null' })
  t.match(await get(`/persona/${one}`), { display_priority: 3 })
  t.match(await get(`/persona/${two}`), { display_priority: -1 })
  const before = await hashOfEverything(database.db)
  t.equal((await send({ [one]: 3, [two]: -1 })).statusCode, 200)
  t.match(await send({ [one]: 4, 999999: 1 }), { statusCode: 404, body: /No agent with this id/ })
  t.equal((await send({ [one]: 4, 9999999999: 1 })).statusCode, 404)
  const many = Object.fromEntries(Array.from({ length: 1_001 }, (_, n) => [n + 1, 1]))
  for (const wrong of [{ [one]: null }, { x: 1 }, { '01': 1 }, { [two]: 1.5 }, { 0: 1 }, many])
    t.strictSame(faultsOf(await send(wrong)), ['body.display_priority_map value_error'])
  t.equal((await send({ [one]: 9, [two]: 9 }, bound)).statusCode, 404)
  t.strictSame(await hashOfEverything(database.db), before, 'nothing of these was stored')
  t.equal((await send({ [one]: 9 }, bound)).statusCode, 200)
  t.match(await get(`/persona/${one}`), { display_priority: 9 })
})

t.test('each its own change: priorities in opposite orders, listings and updates at the same time', async t => {
  const ids = await Promise.all(Array.from({ length: 6 }, () => made()))
  const map = (of: number[], offset: number) => Object.fromEntries(of.map((id, index) => [id, index + offset]))
  const work = Array.from({ length: 8 }, (_, n) => [
    patch('/admin/agents/display-priorities', { display_priority_map: map(n % 2 ? ids : ids.toReversed(), n) }),
    patch(`/admin/persona/${ids[n % 6]}/listed`, { is_listed: n % 2 === 0 }),
    patch(`/persona/${ids[n % 6]}`, { ...SEVEN, name: `Support ${n}` }, alice),
  ]).flat()
  t.strictSame([...new Set((await Promise.all(work)).map(({ statusCode }) => statusCode))], [200])
})

t.test('200 or nothing: tools are enabled and disabled; their secrets stay', async t => {
  const [one, two] = [await tool(), await tool()]
  const bound = await world.token('admin@example.com', { toolIds: [one] })
  const send = (tool_ids: unknown, enabled: unknown, token = admin) =>
    patch('/admin/tool/status', { tool_ids, enabled }, token)
  const masks = (await get(`/tool/${one}`)).custom_headers
  t.same((await send([two, one, two], false)).json(), { updated_count: 2, tool_ids: [two, one] })
  t.match(await get(`/tool/${one}`), { enabled: false, custom_headers: masks })
  const before = await hashOfEverything(database.db)
  t.same((await send([two, one], false)).json(), { updated_count: 2, tool_ids: [two, one] })
  t.match(await send([one, 999999], true), { statusCode: 404, body: /No tool with this id/ })
  t.equal((await send([one, 1], true, bound)).statusCode, 404)
  t.strictSame(faultsOf(await send([one, 'x'], null)), ['body.tool_ids.1 int_parsing', 'body.enabled bool_type'])
  t.strictSame(faultsOf(await send(Array(1_001).fill(1), true)), ['body.tool_ids too_long'])
  t.strictSame(await hashOfEverything(database.db), before, 'nothing of these was stored')
})

t.test('whole lists: the records are those of each', async t => {
  await made({ name: 'Own', is_public: false })
  const curator = await world.token('curator@example.com')
  const idsOf = (records: { id: number }[]) => records.map(({ id }) => id)
  for (const [token, kind] of [
    [admin, 'persona'],
    [curator, 'persona'],
    [curator, 'tool'],
    [await world.token('admin@example.com', { personaIds: [1] }), 'persona'],
    [await world.token('admin@example.com', { toolIds: [10] }), 'tool'],
  ] as const) {
    const records = await get(`/api/${kind}`, token)
    t.strictSame(idsOf(records), idsOf(await get(`/${kind}?limit=100`, token)), kind)
    for (const record of records) t.strictSame(record, await get(`/api/${kind}/${record.id}`, token))
  }
  const tools: { in_code_tool_id: string | null; mcp_server_id: number | null }[] = await get('/api/tool', alice)
  const custom = tools.filter(tool => tool.in_code_tool_id === null && tool.mcp_server_id === null)
  t.strictSame(await get('/api/tool/openapi', alice), custom)
  t.same(await get('/api/persona/labels', bob), await query`select id, name from label order by id`)
})

t.test('whole lists: what the caller may edit, and nothing that was deleted', async t => {
  const own = await made()
  const gone = await made()
  const foreign = await made({ is_public: true }, admin)
  await call('DELETE', `/api/persona/${gone}`, { token: alice })
  const has = async (query: string, token = alice) => {
    const ids = (await get(`/api/admin/persona${query}`, token)).map(({ id }: { id: number }) => id)
    return [own, foreign, gone].map(id => ids.includes(id))
  }
  t.strictSame(await has(''), [true, false, false])
  t.strictSame(await has('?get_editable=true'), [true, false, false])
  t.strictSame(await has('?get_editable=false'), [true, true, false])
  t.strictSame(await has('?get_editable=false', bob), [false, true, false])
  t.strictSame(await has('?include_deleted=true'), [true, false, false])
  const ignored = await call('GET', '/api/admin/persona?include_deleted=true', { token: admin })
  t.match(warningsOf(ignored), ['include_deleted is ignored: to list deleted agents, use GET /persona?deleted=true'])
  const refused = await call('GET', '/api/admin/persona?page_num=1', { token: alice })
  t.equal(refused.statusCode, 422)
})

t.test('422 with the paged address for lists over 1,000 records, or with too many bytes', async t => {
  const { call, query, ...small } = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
  const token = await small.token('admin@example.com')
  const list = (path: string) => call('GET', path, { token })
  const add = (count: number, description: string) =>
    query`insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
      select 'Many ' || n, ${description}, 'auto', true, true, true from generate_series(1, ${count}::int) n`
  await add(1_000 - (await query`select from persona where not deleted`).length, '')
  t.equal((await list('/api/persona')).json().length, 1_000)
  await add(1, '')
  const answer = await list('/api/admin/persona')
  t.strictSame(faultsOf(answer), ['path list_too_long'])
  t.match(answer.json().detail[0].msg, /read pages with GET \/persona\?limit=100$/)
  await query`delete from persona where name like 'Many %'`
  await query`
    insert into tool (name, description) select 'Long', repeat('€', 10000) from generate_series(1, 20)`
  await query`insert into persona_tool (persona_id, tool_id) select p, id from tool, unnest('{1,2}'::int[]) p where name = 'Long'`
  t.equal((await list('/api/tool')).statusCode, 200)
  t.strictSame(faultsOf(await list('/api/persona')), ['path snapshot_too_large'], 'by tools')
  await query`delete from persona_tool where tool_id in (select id from tool where name = 'Long')`
  await query`delete from tool where name = 'Long'`
  t.equal((await list('/api/persona')).statusCode, 200)
  await add(2, 'x'.repeat(600_000))
  t.strictSame(faultsOf(await list('/api/persona')), ['path snapshot_too_large'])
})

/* A deletion below `/api` detaches the tool from the agents that the caller may update. */

const agentWith = (tool: number, name: string, token = maker) => made({ name, tool_ids: [tool] }, token)
const remove = (id: number, query = '', prefix = '/api', token = maker) =>
  call('DELETE', `${prefix}/admin/tool/custom/${id}${query}`, { token })

t.test('204: each agent of the caller loses the tool by a version of its own; at the root 409', async t => {
  const id = await tool(maker)
  const agents = [await agentWith(id, 'One'), await agentWith(id, 'Two')]
  const before = await hashOfEverything(database.db)
  t.equal((await remove(id, '', '')).json().error_code, 'TOOL_IN_USE')
  const dry = await remove(id, '?dry_run=true')
  t.match(dry, { statusCode: 204, headers: { 'dry-run': 'true' } })
  t.same(await hashOfEverything(database.db), before)
  const deleted = await remove(id)
  t.equal(deleted.statusCode, 204, deleted.body)
  const lost = 'the secrets of these headers are deleted: x-key'
  t.strictSame(warningsOf(dry), [lost, `the tool would be detached from the agents ${agents.join(', ')}`])
  t.match(warningsOf(deleted), [`the tool was detached from the agents ${agents.join(', ')}`])
  for (const agent of agents) {
    const read = await call('GET', `/api/persona/${agent}`, { token: maker })
    t.match(read.json(), { tools: [] })
    t.match(read.headers.etag, new RegExp(`^"persona-${agent}-2\\.`))
    const last = { actor: 'maker@example.com', difference: { tool_ids: { from: [id], to: [] } } }
    t.match((await auditRows(database.db, 'persona', agent)).at(-1), last)
  }
  t.equal((await call('GET', `/api/tool/${id}`, { token: maker })).statusCode, 404)
})

t.test('409 for a tool on more than 100 agents of the caller: all keep it', async t => {
  const id = await tool(maker)
  const agents: number[] = []
  while (agents.length < 101) agents.push(await agentWith(id, `Agent ${agents.length}`))
  const before = await hashOfEverything(database.db)
  t.match(await remove(id), { statusCode: 409 })
  t.same(await hashOfEverything(database.db), before)
  await call('DELETE', `/persona/${agents.pop()}`, { token: maker })
  t.equal((await remove(id)).statusCode, 204)
})

t.test('409 names the agents that stay, as far as the caller sees them, and changes nothing', async t => {
  const id = await tool(maker)
  await agentWith(id, 'Mine')
  const shown = await agentWith(id, 'Public', alice)
  await agentWith(id, 'Private', alice)
  await call('PATCH', `/api/persona/${shown}/share`, { token: alice, body: { is_public: true } })
  const before = await hashOfEverything(database.db)
  const refused = await remove(id)
  t.equal(refused.statusCode, 409)
  t.match(refused.json(), { error_code: 'TOOL_IN_USE', agents: [{ id: shown, name: 'Public' }], others: 1 })
  t.equal(refused.json().agents.length, 1)
  t.same(await hashOfEverything(database.db), before)
})

t.test('409 for a group manager, whose right comes from these agents, and for a token bound to others', async t => {
  const person = await newPerson(database, 'leader@example.com')
  await query`insert into user_group_member (user_id, user_group_id, is_manager) values (${person}, 1, true)`
  const id = await tool(maker)
  const agent = await agentWith(id, 'Of the group')
  await query`insert into persona_group (persona_id, user_group_id, level) values (${agent}, 1, 'editor')`
  const leader = await world.token('leader@example.com')
  t.equal((await call('PUT', `/api/admin/tool/custom/${id}`, { token: leader, body: {} })).statusCode, 200)
  t.equal((await remove(id, '', '/api', leader)).statusCode, 409)
  const bound = await world.token('maker@example.com', { toolIds: [id] })
  t.equal((await remove(id, '', '/api', bound)).statusCode, 409)
})

t.test('401 where the token is revoked while the change waits for an agent', async t => {
  const id = await tool(maker)
  const agent = await agentWith(id, 'Waited for')
  for (const [email, send] of [
    ['admin@example.com', (by: string) => patch(`/admin/persona/${agent}/listed`, { is_listed: false }, by)],
    ['maker@example.com', (by: string) => remove(id, '', '/api', by)],
  ] as const) {
    const token = await world.token(email)
    const trx = await database.db.startTransaction().execute()
    await sql`select from persona where id = ${agent} for no key update`.execute(trx)
    const changing = send(token)
    await untilWaiting(database.db)
    await query`update token set revoked_at = now() where id = (select max(id) from token)`
    await trx.commit().execute()
    t.equal((await changing).statusCode, 401, email)
  }
  t.match(await get(`/api/persona/${agent}`), { is_listed: true, tools: [{ id }] })
})

t.test('409 where the right to an agent ends while the deletion waits for it', async t => {
  const id = await tool(maker)
  const agent = await agentWith(id, 'Shared', alice)
  await query`insert into persona_user (persona_id, user_id, level)
    select ${agent}, id, 'editor' from user_account where email = 'maker@example.com'`
  const trx = await database.db.startTransaction().execute()
  await sql`update persona set name = name where id = ${agent}`.execute(trx)
  await sql`delete from persona_user where persona_id = ${agent}`.execute(trx)
  const deleting = remove(id)
  await untilWaiting(database.db)
  await trx.commit().execute()
  t.match((await deleting).json(), { error_code: 'TOOL_IN_USE', others: 1 })
  t.match(await get(`/api/persona/${agent}`, alice), { tools: [{ id }], owner: { id: ALICE } })
})
