import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { ALICE, BOB } from '../fixtures/users.js'
import { auditRows, faultsOf, hashOfEverything, storedAgent, warningsOf } from '../updates/stored-state.js'
import { auditHolds } from '../world.js'

/* Tests the creation and deletion of agents: `POST /persona` and `DELETE /persona/{id}`. */

const world = await worldApp(t)
const { call, database, query, alice, admin } = world
auditHolds(t, database)
const bob = await world.token('bob@example.com')

const NEW = { ...REQUIRED_FIELDS, name: ' Support ', document_set_ids: [], tool_ids: [] }

const post = (body: object, headers: Record<string, string> = {}, query = '', token = alice) =>
  call('POST', `/persona${query}`, { token, body, headers })
const remove = (id: number, headers: Record<string, string> = {}, query = '', token = alice) =>
  call('DELETE', `/persona/${id}${query}`, { token, headers })

async function made(fields: object = {}, token = alice): Promise<number> {
  const answer = await post({ ...NEW, ...fields }, {}, '', token)
  if (answer.statusCode !== 201) throw new Error(answer.body)
  return answer.json().id
}

t.test('201 with the agent, its address and its tag; the caller owns it, and version 1 is audited', async t => {
  const answer = await post({ ...NEW, users: [ALICE, BOB], starter_messages: [{ name: 'Hi', message: 'Hello' }] })
  t.equal(answer.statusCode, 201, answer.body)
  const { id, ...shown } = answer.json()
  t.match(shown, { name: 'Support', owner: { id: ALICE }, users: [{ id: BOB }], is_public: false, is_visible: true })
  t.match(answer.headers, { location: `/persona/${id}`, etag: `"persona-${id}-1"` })
  t.match(warningsOf(answer), [`users: ${ALICE} was left out, because this user owns the agent`])
  const read = await call('GET', String(answer.headers.location), { token: alice })
  t.match(read.json(), answer.json())
  t.equal((await call('GET', `/persona/${id}`, { token: bob })).statusCode, 200, 'shared from the beginning')
  const [row, ...others] = await auditRows(database.db, 'persona', id)
  t.match(row, { version_before: 0, version_after: 1, actor_id: ALICE, actor: 'alice@example.com' })
  t.match(row?.difference, { owner_id: { from: null, to: ALICE }, name: { from: '', to: 'Support' } })
  t.equal(others.length, 0)
  t.match(await storedAgent(world, id), { version: 1, owner_id: ALICE, users: [{ id: BOB, level: 'viewer' }] })
})

t.test('412 for If-Match, which nothing can meet before a creation; If-None-Match holds', async t => {
  const before = await hashOfEverything(database.db)
  for (const tag of ['"persona-1-1"', '*']) {
    const { statusCode, body } = await post(NEW, { 'if-match': tag })
    t.match([statusCode, JSON.parse(body)], [412, { reason: 'nothing_stored', current_etag: null, changed: null }])
  }
  t.same(await hashOfEverything(database.db), before)
  for (const tag of ['*', '"persona-1-1"'])
    t.equal((await post({ ...NEW, name: `New ${tag}` }, { 'if-none-match': tag })).statusCode, 201)
  t.same(faultsOf(await post(NEW, { 'if-match': 'x' })), ['header.if-match string_pattern_mismatch'])
})

t.test('201 without the record, and 201 of a dry run that leaves nothing', async t => {
  const minimal = await post(NEW, { prefer: 'return=minimal' })
  t.match(minimal, { statusCode: 201, body: '', headers: { 'preference-applied': 'return=minimal' } })
  t.match(minimal.headers.location, /^\/persona\/\d+$/)
  const before = await hashOfEverything(database.db)
  const dry = await post(NEW, { 'idempotency-key': '"dry"' }, '?dry_run=true')
  t.match(dry, { statusCode: 201, headers: { 'dry-run': 'true', location: undefined, etag: undefined } })
  t.equal((await call('GET', `/persona/${dry.json().id}`, { token: alice })).statusCode, 404)
  t.same(await hashOfEverything(database.db), before)
  t.not((await post(NEW)).json().id, dry.json().id, 'nobody gets its id')
})

t.test('a field for administrators is that of a new agent, with a Warning; strict handling refuses it', async t => {
  const forAdmins = { is_public: true, is_default_persona: true, display_priority: 3 }
  const fields = { ...NEW, name: 'For administrators', ...forAdmins, nmae: 1 }
  const answer = await post(fields)
  t.match(answer.json(), { is_default_persona: false, display_priority: 3 })
  t.match(warningsOf(answer), [/is_default_persona has its default value/, /unknown field nmae was ignored/])
  t.equal((await post({ ...fields, nmae: undefined }, { prefer: 'handling=strict' })).statusCode, 403)
  t.same(faultsOf(await post(fields, { prefer: 'handling=strict' })), ['body.nmae extra_forbidden'])
  t.match((await post(fields, {}, '', admin)).json(), { is_default_persona: true, display_priority: 3 })
})

t.test('422 for everything that an update refuses, and nothing is stored', async t => {
  const before = await hashOfEverything(database.db)
  for (const [change, faults] of [
    [{ name: undefined, num_chunks: 'x' }, ['body.name missing', 'body.num_chunks float_parsing']],
    [{ name: ' ' }, ['body.name string_too_short']],
    [{ is_default_persona: true }, ['body.is_default_persona default_persona_private']],
    [{ tool_ids: [999_999], label_ids: [999_999] }, ['body.tool_ids.0 not_found', 'body.label_ids.0 not_found']],
    [{ document_set_ids: [999_999] }, ['body.document_set_ids.0 not_found']],
    [{ tool_ids: [1e10] }, ['body.tool_ids.0 not_found']],
    [{ users: ['a0000000-0000-4000-8000-0000000000ff'] }, ['body.users.0 not_found']],
  ] as const)
    t.same(faultsOf(await post({ ...NEW, ...change }, {}, '', admin)), faults, JSON.stringify(change))
  t.same(faultsOf(await post(NEW, {}, '?update_mask=name')), ['query.update_mask extra_forbidden'])
  t.equal((await call('POST', '/persona', { token: alice })).statusCode, 422)
  t.same(await hashOfEverything(database.db), before)
})

t.test('204: a deleted agent is 404 for everybody, is in no list, and has what it had in its audit row', async t => {
  const id = await made({ users: [BOB], label_ids: [1], is_public: true })
  const answer = await remove(id, { 'if-match': `"persona-${id}-1"`, prefer: 'return=minimal, handling=strict' })
  t.match(answer, { statusCode: 204, body: '', headers: { etag: undefined, 'preference-applied': undefined } })
  for (const token of [alice, bob, admin]) {
    for (const method of ['GET', 'DELETE'])
      t.equal((await call(method, `/persona/${id}`, { token })).json().error_code, 'PERSONA_NOT_FOUND')
    const list = (await call('GET', `/persona?after=${id - 1}&limit=1`, { token })).json() as { id: number }[]
    t.notMatch(list, [{ id }])
  }
  t.match(await storedAgent(world, id), { deleted: true, users: [], label_ids: [], version: 2, owner_id: ALICE })
  const rows = await auditRows(database.db, 'persona', id)
  t.match(rows.at(-1)?.difference, { deleted: { from: false, to: true }, label_ids: { from: [1], to: [] } })
})

t.test('204 of a dry run deletes nothing; 412 and 428 where the state is not the one that was seen', async t => {
  const id = await made()
  const careful = await world.token('alice@example.com', { requireIfMatch: true })
  const before = await hashOfEverything(database.db)
  t.match(await remove(id, {}, '?dry_run=true'), { statusCode: 204, headers: { 'dry-run': 'true' } })
  t.equal((await remove(id, {}, '', careful)).statusCode, 428)
  t.equal((await post(NEW, {}, '?dry_run=true', careful)).statusCode, 201, 'what is new has no state to name')
  t.match((await remove(id, { 'if-match': '"persona-1-1"' })).json(), { reason: 'unknown_tag' })
  t.match((await remove(id, { 'if-none-match': '*' })).json(), { reason: 'matched' })
  t.same(faultsOf(await remove(id, { 'if-match': 'x' })), ['header.if-match string_pattern_mismatch'])
  t.same(await hashOfEverything(database.db), before)
  await call('PATCH', `/persona/${id}?update_mask=name`, { token: alice, body: { name: 'Other' } })
  const stale = await remove(id, { 'if-match': `"persona-${id}-1"` })
  t.match(stale.json(), { reason: 'changed', current_etag: `"persona-${id}-2"`, changed: [{ field: 'name' }] })
  t.equal((await remove(id, { 'if-match': `"persona-${id}-2"` }, '', careful)).statusCode, 204)
})

t.test('a key creates once and deletes once, whatever became of the agent', async t => {
  const key = { 'idempotency-key': '"made once"' }
  const first = await post(NEW, key)
  const id = first.json().id as number
  const again = await post(NEW, key)
  t.match(again.headers, { location: `/persona/${id}`, etag: `"persona-${id}-1"`, 'idempotent-replayed': 'true' })
  t.match(again, { statusCode: 201, body: first.body })
  t.same(faultsOf(await post({ ...NEW, name: 'Other' }, key)), ['header.idempotency-key idempotency_key_reused'])
  t.not((await post(NEW, key, '', bob)).json().id, id, 'a key is of one user')
  await call('PATCH', `/persona/${id}?update_mask=name`, { token: alice, body: { name: 'Other' } })
  t.equal((await post(NEW, key)).json().name, 'Other', 'the agent as it is')
  t.match(await post(NEW, { ...key, prefer: 'return=minimal' }), { statusCode: 201, body: '' })
  const own = (owner: string) => query`update persona set owner_id = ${owner} where id = ${id}`
  await own(BOB)
  t.equal((await post(NEW, key)).statusCode, 410, 'it is hidden by now')
  await own(ALICE)
  const gone = { 'idempotency-key': '"gone once"' }
  t.equal((await remove(id, key)).statusCode, 422, 'the key stands for another request')
  t.equal((await remove(id, gone)).statusCode, 204)
  t.match(await remove(id, gone), { statusCode: 204, headers: { 'idempotent-replayed': 'true' } })
  t.equal((await remove(id)).statusCode, 404)
  const detail = new RegExp(`was already applied, but record ${id} is now deleted`)
  t.match((await post(NEW, key)).json(), { error_code: 'VERSION_GONE', detail })
  t.equal((await auditRows(database.db, 'persona', id)).length, 3)
})
