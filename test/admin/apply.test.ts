import t from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { type ApplyOptions, countOutcomes } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { rotateKeys } from '../../src/admin/keys.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import { openSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase, worldDocument } from '../world.js'

const { database, ring, apply } = await worldDatabase(t)
const { db } = database
const world = worldDocument()
const counts = async (document: object, options?: Partial<ApplyOptions>) =>
  countOutcomes(await apply(document, options))
const toolRow = (id: number) => db.selectFrom('tool').selectAll().where('id', '=', id).executeTakeFirst()
const agentRow = (id: number) => db.selectFrom('persona').selectAll().where('id', '=', id).executeTakeFirst()

async function storedHeader(toolId: number, by = ring) {
  const row = await db.selectFrom('tool_header').selectAll().where('tool_id', '=', toolId).executeTakeFirstOrThrow()
  const { value } = openSecret(by, { ...row, keyId: row.key_id, toolId, headerName: row.name })
  return { mask: row.mask.toString('hex'), value }
}

t.test('what is made is as the document says, at version 1 with one audit row; applied again, it stays', async t => {
  t.same(await counts(world), { created: 0, changed: 0, unchanged: 68, removed: 0, kept: 0 })
  const agent = await agentRow(11)
  t.match(agent, {
    name: 'Full',
    num_chunks: 10,
    search_start_date: '2024-01-02T03:04:05.000000Z',
    starter_messages: [{ name: 'hi', message: 'Hello there' }],
    version: 1,
  })
  const audit = await db
    .selectFrom('audit')
    .selectAll()
    .where('resource_id', '=', 11)
    .where('resource_kind', '=', 'persona')
    .execute()
  t.match(audit, [{ version_before: 0, version_after: 1, actor_id: null, client_address: /^.+@.+$/ }])
  t.equal(audit.length, 1)
  t.same(audit[0]?.hash, agent?.audit_head)
  t.equal((await storedHeader(16)).value, 'Bearer abc')
})

t.test('a change of an agent or tool is a new version with one audit row; a plan stores nothing', async t => {
  const users = [{ email: 'bob@example.com', level: 'editor' }]
  const document = {
    tools: [{ id: 16, name: 'full_tool', enabled: true, display_name: 'Whole Tool' }],
    agents: [{ name: 'Full', owner: 'ALICE@example.com', tools: ['SearchTool'], users }],
  }
  const planned = await apply(document, { plan: true })
  t.equal((await agentRow(11))?.version, 1)
  const { outcomes } = await apply(document)
  t.same(outcomes, planned.outcomes)
  t.match(outcomes, [
    { id: 16, fields: [{ field: 'display_name' }, { field: 'enabled' }] },
    { id: 11, fields: [{ field: 'tools' }, { field: 'users' }] },
  ])
  const audit = db.selectFrom('audit').select(['fields', 'hash']).where('version_after', '=', 2)
  const [ofAgent, ofTool] = await audit.orderBy('resource_kind').execute()
  t.match(
    [ofAgent?.fields, ofTool?.fields],
    [
      ['tool_ids', 'users'],
      ['display_name', 'enabled'],
    ],
  )
  t.match(await toolRow(16), { enabled: true, version: 2, audit_head: ofTool?.hash })
  t.match(await counts(document), { changed: 0 })
})

t.test('every fault of a document is reported at once, at its place, and nothing is stored', async t => {
  const unset = [{ key: 'X-Key', value: placeholder('NOWHERE') }, { key: 'X-None' }]
  const custom_headers = [{ key: 'authorization', value: 'v' }]
  const document = {
    labels: [{ name: 'new one' }],
    tools: [
      { name: 'x', owner: 'alice@example.com', definition: { openapi: '3.0.0' }, custom_headers: unset },
      { id: 17, name: 'pass_tool', custom_headers },
      { id: 12, passthrough_auth: true, custom_headers },
    ],
    agents: [
      { id: 901, name: 'y', tools: ['x', 'items', 'nothing', 999], is_default_persona: true },
      { name: 'z', owner: 'nobody@example.com' },
    ],
  }
  const error = await apply(document).catch((thrown: unknown) => thrown)
  const faults = error instanceof InvalidDocument ? error.faults : []
  const found = faults.map(({ loc, type }) => `${loc.join('.')} ${type}`)
  t.same(found, [
    'tools.0.custom_headers.0.value variable_missing',
    'tools.0.custom_headers.1.value missing',
    'tools.0.definition.info missing',
    'tools.0.definition.servers servers_missing',
    'tools.0.definition.paths missing',
    'tools.1.custom_headers.0.key passthrough_auth_conflict',
    'tools.2.passthrough_auth passthrough_auth_conflict',
    ...[1, 2, 3].map(tool => `agents.0.tools.${tool} not_found`),
    'agents.1.owner not_found',
  ])
  t.notOk(await db.selectFrom('label').selectAll().where('name', '=', 'new one').executeTakeFirst())
})

t.test('an entry with an id changes only what it names; a new one needs a name', async t => {
  const entry = (id: number) => [{ id, description: 'without its name' }]
  const { outcomes } = await apply({ tools: entry(17), agents: entry(9) })
  const changed = outcomes.map(({ name, fields }) => [name, ...fields.map(({ field }) => field)])
  t.same(changed, [
    ['pass_tool', 'description'],
    ['Curator Own', 'description'],
  ])
  const nameless = { labels: [{ id: 990 }], groups: [{}], users: [{ active: true }] }
  const faults = [{ loc: ['users', 0, 'email'] }, { loc: ['groups', 0, 'name'] }, { loc: ['labels', 0, 'name'] }]
  t.match(await apply(nameless).catch((error: unknown) => error), { faults })
})

t.test('pruning removes what the lists of the document do not name, and keeps what is still used', async t => {
  const without = <Entry extends { id: number }>(entries: Entry[], ...gone: number[]) =>
    entries.filter(({ id }) => !gone.includes(id))
  const agents: { id: number; tools?: string[] }[] = world.agents
  const byId = (tool: string) => (tool === 'full_tool' ? 16 : tool) // the document no longer contains tool 16, so agents must refer to it by id
  const document = {
    ...world,
    labels: [{ name: 'gamma' }],
    tools: without(world.tools, 13, 16),
    agents: without(agents, 11).map(agent => (agent.tools ? { ...agent, tools: agent.tools.map(byId) } : agent)),
    users: world.users.filter((user: { email: string }) => user.email !== 'perf@example.com'),
  }
  const { outcomes } = await apply(document, { prune: true })
  const fates = outcomes.filter(({ action }) => action === 'removed' || action === 'kept')
  const told = fates.map(({ section, id, action, reason = '' }) => `${section} ${id} ${action} ${reason}`)
  t.same(told, [
    'agents 11 removed ',
    'tools 13 removed ',
    'tools 16 kept agents still refer to it: remove these references first',
    'labels 1 removed ',
    'labels 2 removed ',
    'users a0000000-0000-4000-8000-000000000014 removed ',
  ])
  t.match(await agentRow(11), { deleted: true, version: 3 })
  const shut = db.selectFrom('user_account').select('active').where('email', '=', 'perf@example.com')
  t.same(await shut.executeTakeFirst(), { active: false })
  t.notOk(await toolRow(13))
  t.same((await verifyAudit(db)).findings, [])
  t.match(await counts(document, { prune: true }), { created: 0, changed: 0, removed: 0, kept: 1 })
  await apply({ tools: world.tools.filter((tool: { id: number }) => tool.id === 13) })
  t.match(await toolRow(13), { version: 3 }, 'what comes back goes on with its audit trail')
  t.same((await verifyAudit(db)).findings, [])
})

t.test('a plan that only drops a header says which argument that makes', async t => {
  const get = { operationId: 'g', summary: 'G', parameters: [{ name: 'X-Key', in: 'header', required: true }] }
  const servers = [{ url: 'https://rota.example.com' }]
  const definition = { openapi: '3.1.0', info: { title: 'T' }, servers, paths: { '/x': { get } } }
  const impactOf = async (custom_headers: object[], plan: boolean) => {
    const tool = { name: 'Keyed', owner: 'alice@example.com', description: 'D', definition, custom_headers }
    return (await apply({ tools: [tool] }, { plan })).outcomes.flatMap(({ impact }) => impact ?? [])
  }
  t.strictSame(await impactOf([{ key: 'X-Key', value: 'v' }], false), ['g: GET /x'])
  t.strictSame(await impactOf([], true), ['g: the argument "X-Key" is new and required'])
})

t.test('a header without a value, or with the stored one, stays; masks stay through a rotation', async t => {
  const set = (value: string | undefined, AGENTS_KEY = 'first', more = {}) => {
    const header = { key: 'authorization', ...(value !== undefined && { value }) }
    return counts({ tools: [{ id: 16, custom_headers: [header] }] }, { env: { AGENTS_KEY }, ...more })
  }
  const variable = placeholder('AGENTS_KEY')
  t.match(await set(variable), { changed: 1 })
  const first = await storedHeader(16)
  t.equal(first.value, 'first')
  for (const plan of [true, false])
    for (const value of [variable, 'first', undefined]) t.match(await set(value, 'first', { plan }), { unchanged: 1 })
  t.match(await set(variable, 'second', { plan: true }), { changed: 1 })
  t.same(await storedHeader(16), first)
  t.match(await set(variable, 'second'), { changed: 1 })
  const second = await storedHeader(16)
  t.equal(second.value, 'second')
  t.not(second.mask, first.mask)
  const rotated = parseKeyRing(`${generateKey('new')} ${TEST_SECRET_KEYS}`)
  await rotateKeys(db, rotated)
  t.match(await set(variable, 'second', { ring: rotated }), { unchanged: 1 })
  t.same(await storedHeader(16, rotated), second)
  t.same((await verifyAudit(db)).findings, [])
})
