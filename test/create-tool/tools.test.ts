import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { eventually } from '../eventually.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, faultsOf, hashOfEverything, newPerson, storedTool, warningsOf } from '../updates/stored-state.js'

/* Tests the creation and deletion of custom tools: `POST /admin/tool/custom` and `DELETE /admin/tool/custom/{id}`. */

const world = await worldApp(t)
const { call, database, admin, alice } = world
await newPerson(database, 'maker@example.com', 'manage:actions')
const maker = await world.token('maker@example.com')

const NEW = { name: 'weather', definition: DEFINITION, passthrough_auth: false }
const NULLS = { name: null, definition: null, passthrough_auth: null }
const SECRET = { key: 'X-Api-Key', value: 'a-secret-of-the-tool' }

const post = (body: object, headers: Record<string, string> = {}, query = '', token = maker) =>
  call('POST', `/admin/tool/custom${query}`, { token, body, headers })
const remove = (id: number, headers: Record<string, string> = {}, query = '', token = maker) =>
  call('DELETE', `/admin/tool/custom/${id}${query}`, { token, headers })

async function idOf(creation: ReturnType<typeof call>): Promise<number> {
  const answer = await creation
  if (answer.statusCode !== 201) throw new Error(answer.body)
  return answer.json().id
}

const made = (fields: object = {}) => idOf(post({ ...NEW, ...fields }))

/** Creates an agent with the tool and returns the agent's id. */
async function agentWith(tool: number, fields: object = {}, token = maker): Promise<number> {
  const body = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [tool], ...fields }
  return await idOf(call('POST', '/persona', { token, body }))
}

t.teardown(async () => {
  const { findings } = await verifyAudit(database.db)
  if (findings.length > 0) throw new Error(JSON.stringify(findings))
})

t.test('201 with the tool, its address and its tag; the caller owns it, its secrets are sealed and masked', async t => {
  const answer = await post({ ...NEW, description: 'Says it', custom_headers: [SECRET] })
  t.equal(answer.statusCode, 201, answer.body)
  const { id, ...shown } = answer.json()
  t.match(answer.headers, { location: `/tool/${id}`, etag: `"tool-${id}-1"` })
  const named = { name: 'weather', display_name: 'weather', description: 'Says it' }
  t.match(shown, { ...named, definition: DEFINITION, enabled: true })
  t.match(shown.custom_headers, [{ key: 'X-Api-Key', value: /^\*{4}#[0-9a-f]{12}$/ }])
  t.same((await call('GET', String(answer.headers.location), { token: maker })).json(), answer.json())
  const stored = await storedTool(world, id)
  t.match(stored, { version: 1, definition: JSON.stringify(DEFINITION), headers: [{ name: 'X-Api-Key' }] })
  const [row, ...others] = await auditRows(database.db, 'tool', id)
  t.match(row, { version_before: 0, version_after: 1, actor: 'maker@example.com' })
  t.match(row?.difference, { name: { from: '', to: 'weather' }, user_id: { from: null }, definition: { from: null } })
  t.equal(others.length, 0)
  t.notMatch(JSON.stringify([stored, row]), /a-secret-of-the-tool/)
  const same = { custom_headers: [{ ...SECRET, value: shown.custom_headers[0].value }] }
  const kept = await call('PUT', `/admin/tool/custom/${id}`, { token: maker, body: same })
  t.match(kept, { statusCode: 200, headers: { etag: answer.headers.etag } }, 'the mask stands for the secret')
})

t.test('422 for everything that an update refuses, with the same places, and nothing is stored', async t => {
  const before = await hashOfEverything(database.db)
  const missing = { name: undefined, definition: undefined, passthrough_auth: undefined }
  const mask = { custom_headers: [{ key: 'X-A', value: '****#0123456789ab' }] }
  for (const [change, ...faults] of [
    [missing, 'body.name missing', 'body.definition missing', 'body.passthrough_auth missing'],
    [NULLS, 'body.name string_type', 'body.definition dict_type', 'body.passthrough_auth bool_type'],
    [mask, 'body.custom_headers.0.value mask_mismatch'],
    [{ oauth_config_id: 999_999 }, 'body.oauth_config_id not_found'],
  ] as const) {
    const answer = await post({ ...NEW, ...change })
    t.equal(answer.statusCode, 422, JSON.stringify(change))
    t.same(faultsOf(answer), faults)
  }
  t.same(await hashOfEverything(database.db), before)
  t.match(warningsOf(await post({ ...NEW, nmae: 1 })), [/unknown field nmae was ignored/])
  t.equal((await post({ ...NEW, description: null, custom_headers: null, oauth_config_id: null })).statusCode, 201)
  const long = { ...DEFINITION, 'x-long': 'x'.repeat(100_000) }
  t.equal((await post({ ...NEW, definition: long })).statusCode, 201, 'from a worker')
})

t.test('204: a deleted tool is gone with its secrets, and its last audit row says so', async t => {
  const id = await made({ custom_headers: [SECRET, { key: 'X-B', value: 'b' }] })
  const before = await hashOfEverything(database.db)
  const dry = await remove(id, {}, '?dry_run=true')
  t.match(dry, { statusCode: 204, headers: { 'dry-run': 'true' } })
  t.match(warningsOf(dry), [/the secrets of these headers are deleted: X-Api-Key, X-B/])
  t.match((await remove(id, { 'if-match': `"tool-${id}-9"` })).json(), { reason: 'unknown_tag' })
  t.same(await hashOfEverything(database.db), before)
  t.match(await remove(id, { 'if-match': `"tool-${id}-1"` }), { statusCode: 204, body: '' })
  t.equal((await call('GET', `/tool/${id}`, { token: admin })).statusCode, 404)
  t.equal((await remove(id)).statusCode, 404)
  const { rows } = await sql`select from tool_header where tool_id = ${id}`.execute(database.db)
  t.equal(rows.length, 0)
  const trail = await auditRows(database.db, 'tool', id)
  const difference = { removed: { from: false, to: true } }
  t.match(trail.at(-1), { version_after: 2, actor: 'maker@example.com', difference })
})

t.test('409 TOOL_IN_USE names the agents that the caller sees and counts others, except deleted ones', async t => {
  const id = await made()
  const own = await agentWith(id, { name: 'Mine' })
  const hidden = await agentWith(id, { name: 'Hidden' }, alice)
  const refused = await remove(id)
  t.equal(refused.statusCode, 409)
  t.match(refused.json(), { error_code: 'TOOL_IN_USE', agents: [{ id: own, name: 'Mine' }], others: 1 })
  t.match(refused.json().detail, 'Agents use this tool (2 in total; `agents` lists')
  const all = { agents: [{ id: own }, { id: hidden, name: 'Hidden' }], others: 0 }
  t.match((await remove(id, {}, '', admin)).json(), all)
  t.equal((await remove(id, {}, '?dry_run=true')).statusCode, 409)
  t.equal((await call('DELETE', `/persona/${own}`, { token: maker })).statusCode, 204)
  const detail = /use this tool \(1 in total; /
  t.match((await remove(id)).json(), { detail, agents: [], others: 1 })
  const deleted = { version: 1, agents: [{ id: hidden, deleted: true }] }
  await applyOrganisation(database, deleted, { ring: world.ring, env: {} })
  t.equal((await remove(id)).statusCode, 204)
})

t.test('a key stands for the values of headers too, and deletes once', async t => {
  const key = { 'idempotency-key': '"made once"' }
  const body = { ...NEW, custom_headers: [SECRET] }
  const first = await post(body, key)
  t.match(await post(body, key), { statusCode: 201, body: first.body, headers: { 'idempotent-replayed': 'true' } })
  const other = { ...body, custom_headers: [{ ...SECRET, value: 'another' }] }
  t.same(faultsOf(await post(other, key)), ['header.idempotency-key idempotency_key_reused'])
  const gone = { 'idempotency-key': '"gone once"' }
  for (const replayed of [undefined, 'true'])
    t.match(await remove(first.json().id, gone), { statusCode: 204, headers: { 'idempotent-replayed': replayed } })
  t.match((await post(body, key)).json(), { error_code: 'VERSION_GONE' })
})

t.test('204 waits for an agent that is about to get the tool, and then is 409', async t => {
  const id = await made()
  const agent = await agentWith(id, { tool_ids: [] })
  const trx = await database.db.startTransaction().execute()
  await sql`insert into persona_tool (persona_id, tool_id) values (${agent}, ${id})`.execute(trx)
  const waiting = sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
  const deleting = remove(id)
  await eventually(async () => (await waiting.execute(database.db)).rows.length > 0)
  await trx.commit().execute()
  t.equal((await deleting).json().error_code, 'TOOL_IN_USE')
  await sql`delete from persona_tool where persona_id = ${agent}`.execute(database.db)
})
