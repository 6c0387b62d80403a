import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { sql } from 'kysely'
import t from 'tap'
import { REQUIRED_FIELDS } from '../app.js'
import { untilWaiting } from '../eventually.js'
import { ALICE, BOB } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { faultsOf, warningsOf } from '../updates/stored-state.js'
import { SEVEN, todayWorld } from './world.js'

/* Onyx's newer API below `/api`: requests and answers whose form differs from those at the root. */

const { call, database, admin, alice, bob, made, get, patch, query, apply } = await todayWorld(t)

/** The agent fields that only the newer API has, with their default values. */
const ADDED = {
  ...{ is_listed: true, is_featured: false, default_model_configuration_id: null, hierarchy_nodes: [] },
  ...{ attached_documents: [], skill_ids: [], owner_group: null, user_shares: [], group_shares: [] },
  ...{ public_permission: 'VIEWER', sharing_status: 'PRIVATE', hierarchy_node_count: 0, attached_document_count: 0 },
  knowledge_sources: [],
}
const ABSENT_AT_ROOT = ['num_chunks', 'is_public', 'recency_bias', 'llm_filter_extraction', 'llm_relevance_filter']

type Model = 'full' | 'short' | 'tool' | 'label'
/** JSON Schemas of Onyx's response models. */
const models: Record<Model, object> = JSON.parse(
  readFileSync(new URL('../../../test/fixtures/today/models.json', import.meta.url), 'utf8'),
)
const ajv = new Ajv2020({ strictTypes: false, allErrors: true })

t.test('201, then 200: seven fields are enough, and the answer has the names of today', async t => {
  const created = await call('POST', '/api/persona', { token: alice, body: SEVEN })
  t.equal(created.statusCode, 201, created.body)
  const { id } = created.json()
  t.match(created.json(), { ...ADDED, name: 'Support', num_chunks: 10, is_public: false, owner: { id: ALICE } })
  t.match(created.headers, { location: `/api/persona/${id}`, etag: `"persona-${id}-1"`, warning: undefined })
  t.match(await get(`/api/persona/${id}`, alice), created.json())
  const updated = await patch(`/persona/${id}`, { ...SEVEN, name: 'Sales' }, alice)
  t.equal(updated.statusCode, 200, updated.body)
  t.same(updated.json(), { ...created.json(), name: 'Sales' })
  t.strictSame(await get(`/api/persona/${id}`, alice), { ...(await get(`/persona/${id}`, alice)), ...ADDED })
  const refused = await call('PATCH', `/persona/${id}`, { token: alice, body: SEVEN })
  t.strictSame([...faultsOf(refused)].sort(), ABSENT_AT_ROOT.map(name => `body.${name} missing`).sort())
})

t.test('200: what is absent or null stays as it is', async t => {
  const before = {
    ...{ num_chunks: 3, recency_bias: 'favor_recent', llm_filter_extraction: false, llm_relevance_filter: true },
    ...{ is_public: true, users: [BOB], groups: [], name: 'Kept' },
  }
  const id = await made(before)
  const stored = await get(`/persona/${id}`, alice)
  t.match(stored, { ...before, users: [{ id: BOB }] })
  const names = [...Object.keys(before), 'is_featured', 'display_priority']
  for (const nulls of [{}, Object.fromEntries(names.map(name => [name, null]))]) {
    const answer = await patch(`/persona/${id}`, { ...SEVEN, ...nulls, name: 'Kept' }, alice)
    t.match(answer, { statusCode: 200, headers: { etag: `"persona-${id}-1"` } }, answer.body)
    t.same(await get(`/persona/${id}`, alice), stored)
  }
})

t.test('422 for what this service does not keep, 200 for nothing in its place', async t => {
  const id = await made()
  const nothing = { hierarchy_node_ids: [], document_ids: null, skill_ids: [], default_model_configuration_id: null }
  const lists = { hierarchy_node_ids: [1], document_ids: ['d'], skill_ids: ['s'] }
  const something = { ...lists, default_model_configuration_id: 3 }
  const faults = Object.keys(something).map(name => `body.${name} not_kept`)
  for (const [method, path, taken] of [
    ['PATCH', `/api/persona/${id}`, 200],
    ['POST', '/api/persona', 201],
  ] as const) {
    const send = (body: object) => call(method, path, { token: alice, body: { ...SEVEN, name: randomUUID(), ...body } })
    t.equal((await send(nothing)).statusCode, taken)
    t.strictSame(faultsOf(await send(something)), faults)
  }
})

t.test('is_featured is is_default_persona', async t => {
  const id = await made({ is_public: true }, admin)
  for (const [body, shown] of [
    [{ is_featured: true }, { is_featured: true, is_default_persona: true }],
    [{ is_featured: null }, { is_featured: true }],
    [{}, { is_featured: true }],
    [{ is_default_persona: false }, { is_featured: false }],
    [
      { is_featured: true, is_public: false },
      { is_featured: true, is_public: false },
    ],
  ] as const)
    t.match((await patch(`/persona/${id}`, { ...SEVEN, ...body })).json(), shown)
  const kept = await patch(`/persona/${await made()}`, { ...SEVEN, is_featured: true }, alice)
  t.match(kept, { statusCode: 200, headers: { warning: /is_default_persona was kept/ } })
})

t.test('the rules of the root hold: rights, tags, keys, dry runs, strict handling, deletion', async t => {
  const id = await made()
  const path = `/api/persona/${id}`
  const send = (body: object, headers: Record<string, string> = {}, query = '') =>
    patch(`/persona/${id}${query}`, { ...SEVEN, ...body }, alice, headers)
  t.equal((await send({ name: 'x' }, { 'if-match': `"persona-${id}-9"` })).statusCode, 412)
  t.match((await send({ name: 'Dry' }, {}, '?dry_run=true')).json(), { name: 'Dry', is_listed: true })
  t.match(warningsOf(await send({ nmae: 1 })), [/unknown field nmae was ignored/])
  const strict = await send({ nmae: 1, is_featured: null }, { prefer: 'handling=strict' })
  t.strictSame(faultsOf(strict), ['body.nmae extra_forbidden'])
  const sent = { token: alice, body: { ...SEVEN, name: 'Once' }, headers: { 'idempotency-key': '"once"' } }
  const [first, again] = [await call('POST', '/api/persona', sent), await call('POST', '/api/persona', sent)]
  t.match(again, { statusCode: 201, headers: { 'idempotent-replayed': 'true' } })
  t.same(again.json(), first.json())
  t.equal((await call('DELETE', path, { token: alice })).statusCode, 204)
  t.equal((await call('GET', path, { token: alice })).statusCode, 404)
})

t.test('200: a validation answers the names of its methods twice, and numbers as JavaScript writes them', async t => {
  const operation =
    '{"operationId":"listAll","summary":"All","parameters":[{"name":"n","in":"query","schema":{"maximum":1.5}}]}'
  const document = `{"openapi":"3.0.0","info":{"title":"A"},"servers":[{"url":"https://a.example.com"}],"paths":{"/a":{"get":${operation}}}}`
  const body = `{"definition":${document}}`
  const validate = (prefix: string, query = '') =>
    call('POST', `${prefix}/admin/tool/custom/validate${query}`, { token: admin, body })
  const method = `{"name":"listAll","raw_name":"listAll","summary":"All","path":"/a","method":"get","spec":${operation}}`
  t.equal((await validate('/api')).body, `{"methods":[${method}]}`)
  t.notMatch((await validate('')).body, /raw_name/)
  t.equal((await validate('/api', '?raw_names=true')).statusCode, 422)
})

t.test('200 by either header, X-Onyx-Authorization first; 401 without a token', async t => {
  const status = async (headers: Record<string, string>) => (await call('GET', '/api/tool/10', { headers })).statusCode
  const own = `Bearer ${alice}`
  t.equal(await status({ authorization: own }), 200)
  t.equal(await status({ authorization: 'Basic cHJveHk6cHJveHk=', 'x-onyx-authorization': own }), 200)
  t.equal(await status({ authorization: own, 'x-onyx-authorization': 'Bearer x' }), 401)
  t.equal(await status({ cookie: 'fastapiusersauth=x' }), 401)
  const { statusCode } = await call('GET', '/me', { headers: { 'x-onyx-authorization': own } })
  t.equal(statusCode, 401, 'the root reads it where the operator says so')
})

t.test('400 for the name of a live agent of the caller, or for administrators any; at the root a Warning', async t => {
  const id = await made({ name: 'Taken' })
  const post = (token: string, path = '/api/persona', fields = {}) =>
    call('POST', path, { token, body: { ...SEVEN, ...fields, name: 'Taken' } })
  const detail = `Agent ${id} already has this name: choose another name.`
  for (const token of [alice, admin])
    t.match(await post(token), { statusCode: 400, body: new RegExp(`BAD_REQUEST.*${detail}|${detail}.*BAD_REQUEST`) })
  t.equal((await post(bob)).statusCode, 201, 'a name of somebody else')
  const root = await post(alice, '/persona', REQUIRED_FIELDS)
  t.match(root, { statusCode: 201, headers: { warning: new RegExp(`agent ${id} already has this name`) } })
  for (const gone of [id, root.json().id]) await call('DELETE', `/api/persona/${gone}`, { token: alice })
  t.equal((await post(alice)).statusCode, 201, 'deleted agents do not count')
})

t.test('400 for one of two concurrent creations with the same name', async t => {
  const trx = await database.db.startTransaction().execute()
  await sql`lock table audit in share mode`.execute(trx) // prevents both creations from storing their audit rows until the commit
  const creating = [1, 2].map(() => call('POST', '/api/persona', { token: alice, body: { ...SEVEN, name: 'Twice' } }))
  await untilWaiting(database.db, 2)
  await trx.commit().execute()
  t.strictSame((await Promise.all(creating)).map(({ statusCode }) => statusCode).sort(), [201, 400])
})

t.test('200 and 201 name the owner that users has: the owner needs no share', async t => {
  const warning = `users: ${ALICE} was left out, because this user owns the agent`
  const body = { ...SEVEN, name: 'Owned', users: [ALICE.toUpperCase(), BOB] }
  const created = await call('POST', '/api/persona', { token: alice, body })
  t.match(created.json(), { users: [{ id: BOB }] })
  t.match(warningsOf(created), [warning])
  const path = `/persona/${created.json().id}?update_mask=users`
  for (const prefix of ['', '/api']) {
    const masked = await call('PATCH', prefix + path, { token: alice, body: { users: [ALICE] } })
    t.match(warningsOf(masked), [warning])
  }
})

t.test('each answer has what the models of today require', async t => {
  const [group] = await database.db.selectFrom('user_group').select('name').orderBy('id').execute()
  const shares = {
    users: [{ email: 'bob@example.com', level: 'editor' }],
    groups: [{ name: group?.name, level: 'viewer' }],
  }
  const agent = { name: 'Shared by levels', owner: 'alice@example.com', ...shares }
  await apply({ agents: [agent] })
  const body = { ...SEVEN, name: 'With all', users: [BOB], tool_ids: [10] }
  const created = await call('POST', '/api/persona', { token: alice, body })
  const { id } = created.json()
  const weather = { name: 'weather', definition: DEFINITION, passthrough_auth: false }
  const tool = await call('POST', '/api/admin/tool/custom', { token: admin, body: weather })
  const read = (path: string, token = admin) => call('GET', `/api${path}`, { token })
  const answers: [Awaited<ReturnType<typeof read>>, Model][] = [
    [created, 'full'],
    [await patch(`/persona/${id}`, { ...SEVEN, document_set_ids: [1, 2, 3], label_ids: [1] }), 'full'],
    [await patch(`/persona/${id}/share`, { is_public: true }), 'full'],
    [await patch(`/admin/persona/${id}/featured`, { is_featured: true }), 'full'],
    [await read(`/persona/${id}`, alice), 'full'],
    [await read('/persona'), 'short'],
    [await read('/admin/persona'), 'full'],
    [tool, 'tool'],
    [await read('/tool/10'), 'tool'],
    [await read('/tool'), 'tool'],
    [await read('/tool/openapi'), 'tool'],
    [await read('/persona/labels'), 'label'],
  ]
  for (const [answer, model] of answers) {
    t.ok(answer.statusCode < 300, answer.body)
    const isModel = ajv.compile(models[model])
    for (const record of [answer.json()].flat()) t.ok(isModel(record), JSON.stringify(isModel.errors))
  }
  const all: { id: number; name: string }[] = await get('/api/admin/persona')
  const shared = all.find(({ name }) => name === agent.name)
  t.match(shared, {
    user_shares: [{ user: { id: BOB, email: 'bob@example.com' }, permission: 'EDITOR' }],
    group_shares: [{ group_name: group?.name, permission: 'VIEWER' }],
    ...{ owner: { id: ALICE }, sharing_status: 'SHARED', public_permission: 'VIEWER' },
  })
  const open = all.find(one => one.id === id)
  t.match(open, { sharing_status: 'PUBLIC' })
})

t.test('a dry run shows the groups and levels that it would store; an earlier version only known levels', async t => {
  const id = await made({ name: 'Levels', users: [BOB] }, admin)
  const [group] = await database.db.selectFrom('user_group').select(['id', 'name']).orderBy('id').execute()
  const body = { user_ids: [], group_ids: [group?.id] }
  const shared = [{ group_id: group?.id, group_name: group?.name, permission: 'VIEWER' }]
  for (const query of ['?dry_run=true', ''])
    t.same((await patch(`/persona/${id}/share${query}`, body)).json().group_shares, shared)
  t.match(await get(`/api/persona/${id}?version=1`), {
    users: [{ id: BOB }],
    user_shares: [],
    group_shares: [],
    sharing_status: 'SHARED',
  })
})

t.test('503 applied where the shares cannot be read after a change is stored', async t => {
  const id = await made({ name: 'Unread', users: [BOB] }, admin)
  await query`alter table user_group rename to user_group_gone`
  const answer = await patch(`/admin/persona/${id}/featured`, { is_featured: true })
  await query`alter table user_group_gone rename to user_group`
  t.match(answer, { statusCode: 503 })
  t.match(answer.json(), { error_code: 'SERVICE_UNAVAILABLE', outcome: 'applied' })
})

t.test('204 once for return=minimal, also of one-field changes', async t => {
  const id = await made({ name: 'Brief', users: [BOB] }, admin)
  for (const [path, body] of [
    [`/persona/${id}/share`, { is_public: true }],
    [`/admin/persona/${id}/featured`, { is_featured: true }],
  ] as const) {
    const answer = await patch(path, body, admin, { prefer: 'return=minimal' })
    t.match(answer, { statusCode: 204, body: '', headers: { 'preference-applied': 'return=minimal' } })
  }
})
