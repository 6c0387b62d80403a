import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { sha256 } from '../../src/updates/audit.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { linked, REQUIRED_FIELDS, worldApp } from '../app.js'
import { ADMIN, ALICE, BOB, CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { newPerson, warningsOf } from '../updates/stored-state.js'

/* `GET /persona/{id}/history` and `GET /tool/{id}/history`. */

const world = await worldApp(t)
const { call, database, ring } = world
const alice = await world.token('alice@example.com')
const bob = await world.token('bob@example.com')
const admin = await world.token('admin@example.com')

const get = (url: string, token = admin, headers: Record<string, string> = {}) => call('GET', url, { token, headers })
async function sent(method: string, url: string, body: object | undefined, token = alice) {
  const answer = await call(method, url, { token, ...(body && { body }) })
  if (answer.statusCode >= 300) throw new Error(answer.body)
  return answer
}
const patch = (id: number, body: object, token = alice) =>
  sent('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, body, token)
const put = (id: number, body: object) => sent('PUT', `/admin/tool/custom/${id}`, body, admin)
const NEW = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }
const agentOf = async (token: string, fields: object = {}) =>
  (await sent('POST', '/persona', { ...NEW, ...fields }, token)).json().id as number
const toolOf = async (fields: object = {}) =>
  (
    await sent(
      'POST',
      '/admin/tool/custom',
      { name: 'x', definition: DEFINITION, passthrough_auth: false, ...fields },
      admin,
    )
  ).json().id as number

t.test('200, newest first: who changed what of an agent, when, by which request', async t => {
  const id = await agentOf(alice, { users: [BOB] })
  const long = 'p'.repeat(5_000)
  const second = await patch(id, { label_ids: [2], system_prompt: long, tool_ids: [10], document_set_ids: [1] })
  await patch(id, { is_public: true, groups: [1], name: 'of the administrator' }, admin)
  const name = (await database.db.selectFrom('persona').select('name').where('id', '=', id).executeTakeFirst())?.name
  const entry = { id, name, owner: 'carol@example.com' }
  await applyOrganisation(database, { version: 1, agents: [entry] }, { ring, env: {} })
  const answer = await get(`/persona/${id}/history`)
  t.equal(answer.statusCode, 200, answer.body)
  const [applied, third, changed, created, ...others] = answer.json()
  t.same(others, [])
  t.match(applied, { version: 4, action: 'applied', actor: { id: null, command: 'agentctl' }, fields: ['owner_id'] })
  t.same(applied.changes, [
    {
      field: 'owner_id',
      from: { id: ALICE, email: 'alice@example.com' },
      to: { id: CAROL, email: 'carol@example.com' },
    },
  ])
  t.match(third, { version: 3, action: 'updated', actor: { id: ADMIN, email: 'admin@example.com' } })
  t.match(third.changes, [
    { field: 'name', from: 'Agent', to: 'of the administrator' },
    { field: 'is_public', from: false, to: true },
    { field: 'groups', from: [], to: [{ id: 1, name: 'Engineering', level: 'viewer' }] },
  ])
  t.equal(changed.request_id, second.headers['x-request-id'])
  t.same(changed.changes, [
    { field: 'document_set_ids', from: [], to: [{ id: 1, name: 'Public Docs' }] },
    { field: 'tool_ids', from: [], to: [{ id: 10, name: 'items' }] },
    {
      field: 'system_prompt',
      from: 'sys',
      shortened: { to: { digest: sha256(long), bytes: 5_000, href: `../${id}?version=2` } },
    },
    { field: 'label_ids', from: [], to: [{ id: 2, name: 'beta' }] },
  ])
  const address = new URL(changed.changes[2].shortened.to.href, `http://x/persona/${id}/history`)
  t.equal((await get(address.pathname + address.search)).json().system_prompt, long)
  t.match(created, { version: 1, action: 'created', actor: { email: 'alice@example.com' } })
  t.match(
    created.changes.find(({ field }: { field: string }) => field === 'users'),
    { from: [], to: [{ id: BOB, email: 'bob@example.com', level: 'viewer' }] },
  )
})

t.test('200 in pages, each led to by Link; 304 for what the caller has, and HEAD', async t => {
  const id = await agentOf(alice)
  for (let n = 2; n <= 25; n++) await patch(id, { name: `name ${n}` })
  const versions: number[] = []
  for (let url: string | undefined = `/persona/${id}/history?limit=10`; url !== undefined; ) {
    const page = await get(url, alice)
    versions.push(...page.json().map(({ version }: { version: number }) => version))
    url = page.headers.link === undefined ? undefined : linked(url, page.headers.link, 'next')
  }
  t.same(
    versions,
    Array.from({ length: 25 }, (_, n) => 25 - n),
  )
  const first = await get(`/persona/${id}/history`, alice)
  t.equal(first.json().length, 20)
  t.same(warningsOf(first), ['there are more changes: Link names the next page'])
  t.equal((await get(`/persona/${id}/history`, alice, { 'if-none-match': String(first.headers.etag) })).statusCode, 304)
  t.match(await call('HEAD', `/persona/${id}/history`, { token: alice }), { statusCode: 200, body: '' })
  for (const [query, type] of [
    ['limit=101', 'less_than_equal'],
    ['limit=0', 'greater_than_equal'],
    ['before=x', 'int_parsing'],
    ['after=1', 'extra_forbidden'],
  ] as const) {
    const refused = await get(`/persona/${id}/history?${query}`, alice)
    t.match(refused.json(), { detail: [{ type }] }, query)
  }
})

t.test('200 of a tool: masks of secrets, operations of definitions, the hash of a long one', async t => {
  const secret = 'a value that nobody reads'
  const id = await toolOf({ custom_headers: [{ key: 'X-Key', value: secret }] })
  const paths = { '/later': { get: { operationId: 'later', summary: 'x'.repeat(5_000) } } }
  await put(id, { definition: { ...DEFINITION, paths }, oauth_config_id: 1 })
  await put(id, { custom_headers: [], oauth_config_id: null })
  const answer = await get(`/tool/${id}/history`)
  t.equal(answer.statusCode, 200, answer.body)
  t.notMatch(answer.body, secret)
  const [third, second, first] = answer.json()
  t.match(third.changes, [
    { field: 'custom_headers', from: [{ key: 'X-Key', value: /^\*{4}#[0-9a-f]{12}$/ }], to: [] },
    { field: 'oauth_config_id', from: { id: 1, name: 'GitHub OAuth' }, to: null },
  ])
  const [definition] = second.changes
  t.same(definition.from, DEFINITION)
  const { to: shortened } = definition.shortened
  t.match(shortened, { digest: /^[0-9a-f]{64}$/, href: `../${id}?version=2` })
  t.ok(shortened.bytes > 5_000)
  t.notOk('to' in definition)
  t.match(definition.operations, [
    { kind: 'operation_removed', operation: 'now' },
    { kind: 'operation_added', operation: 'later' },
  ])
  t.match(first, {
    action: 'created',
    changes: [
      { field: 'name', to: 'x' },
      { field: 'definition', from: null },
    ],
  })
  t.equal((await get(`/tool/1/history`)).statusCode, 200, 'a built-in tool')
})

t.test('200: a stored value of the shape of a shortened one is shown as the value that it is', async t => {
  const like = { digest: 'a'.repeat(64), bytes: 1, href: '../1?version=1' }
  const shaped = (more: object) => ({ ...DEFINITION, ...like, ...more, email: 'a@example.com', name: 'x', id: 1 })
  const id = await toolOf({ definition: shaped({}) })
  await put(id, { definition: shaped({ shortened: { to: like } }) })
  const [{ changes }] = (await get(`/tool/${id}/history`)).json()
  const [{ operations: _, ...change }] = changes
  t.strictSame(change, { field: 'definition', from: shaped({}), to: shaped({ shortened: { to: like } }) })
})

t.test('403 for readers, with a sentence; 404 for what is invisible, and for what does not exist', async t => {
  const id = await agentOf(alice, { is_public: true, users: [BOB] })
  const refused = await get(`/persona/${id}/history`, bob)
  t.match(refused.json(), {
    error_code: 'INSUFFICIENT_PERMISSIONS',
    detail: /^You can see this agent but not its earlier/,
  })
  await sql`update persona_user set level = 'editor' where persona_id = ${id}`.execute(database.db)
  t.equal((await get(`/persona/${id}/history`, bob)).statusCode, 200, 'an editor by a share')
  t.match((await get('/tool/10/history', bob)).json(), {
    detail: /^You can see this tool but not its earlier versions/,
  })
  for (const url of ['/persona/1/history', '/persona/999999/history', '/persona/99999999999/history'])
    t.match((await get(url, bob)).json(), { error_code: 'PERSONA_NOT_FOUND' }, url)
  t.match((await get('/tool/999999/history', admin)).json(), { error_code: 'NOT_FOUND' })
  const bound = await world.token('alice@example.com', { personaIds: [id] })
  t.equal((await get('/persona/2/history', bound)).statusCode, 403)
})

t.test('no name of a tool or document set that the caller could not read elsewhere', async t => {
  const editor = await newPerson(database, 'history-editor@example.com')
  const id = await agentOf(alice, { users: [editor], tool_ids: [13], document_set_ids: [2] })
  await sql`update persona_user set level = 'editor' where persona_id = ${id}`.execute(database.db)
  await patch(id, { tool_ids: [], document_set_ids: [] })
  const namesFor = async (token: string) => {
    const [entry] = (await get(`/persona/${id}/history`, token)).json()
    return entry.changes.map(({ from }: { from: unknown }) => from)
  }
  const tool = { id: 13, name: 'alice_tool' }
  t.same(await namesFor(alice), [[{ id: 2, name: 'Private Docs' }], [tool]])
  const token = await world.token('history-editor@example.com')
  t.same(await namesFor(token), [[{ id: 2, name: null }], [tool]], 'a document set that is not shared with them')
  const bound = await world.token('alice@example.com', { personaIds: [id] })
  t.same(
    await namesFor(bound),
    [[{ id: 2, name: 'Private Docs' }], [{ id: 13, name: null }]],
    'a tool that a bound token sees not',
  )
  await patch(id, { document_set_ids: [2] })
  t.match((await get(`/persona/${id}/history`, token)).json()[1].changes, [{ from: [{ id: 2, name: 'Private Docs' }] }])
})

t.test('people who were erased stay erased; a pruned past says from where on it is kept', async t => {
  await newPerson(database, 'gone@example.com', 'manage:actions')
  const gone = await world.token('gone@example.com')
  const id = await agentOf(gone, { users: [ALICE] })
  for (let n = 2; n <= 6; n++) await patch(id, { name: `name ${n}` }, gone)
  await eraseUser(database.db, 'gone@example.com')
  const erased = await get(`/persona/${id}/history`)
  t.notMatch(erased.body, 'gone@example.com')
  t.match(erased.json()[0].actor, { email: /^erased-.*@erased\.invalid$/ })
  await pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 3, bytesMax: 2 ** 26 })
  const pruned = await get(`/persona/${id}/history`)
  t.same(
    pruned.json().map(({ changes }: { changes: unknown }) => changes === null),
    [false, false, false, true, true, true],
  )
  t.same(warningsOf(pruned), ['contents are kept from version 3 on'])
  t.equal((await get(`/persona/${id}?version=3`)).statusCode, 200)
  t.equal((await get(`/persona/${id}?version=2`)).statusCode, 410)
  t.same(warningsOf(await get(`/persona/${id}/history?limit=2`)), [])
})

t.test('200 of a tool that was made anew: only what it is since', async t => {
  const id = await toolOf({ name: 'first' })
  await sent('DELETE', `/admin/tool/custom/${id}`, undefined, admin)
  t.equal((await get(`/tool/${id}/history`)).statusCode, 404)
  const entry = { id, name: 'second', definition: DEFINITION }
  await applyOrganisation(database, { version: 1, tools: [entry] }, { ring, env: {} })
  t.match((await get(`/tool/${id}/history`)).json(), [{ version: 3, action: 'created', changes: [{ to: 'second' }] }])
  t.equal((await get(`/tool/${id}/history`)).json().length, 1)
})
