import { sql } from 'kysely'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, faultsOf, hashOfEverything, storedTool, warningsOf } from '../updates/stored-state.js'
import { historyWorld } from './world.js'

/* `POST /admin/tool/custom/{id}/restore`: restores an earlier version of a tool without its secrets. */

const world = await historyWorld(t)
const { db, admin, get, put, toolOf, apply } = world
const restore = (id: number, version: number, token = admin, headers: Record<string, string> = {}, query = '') =>
  world.restore(`/admin/tool/custom/${id}`, version, token, headers, query)

t.test('200: the definition comes back text for text, with every field but the secrets', async t => {
  const custom_headers = [{ key: 'X-Key', value: 'one' }]
  const id = await toolOf({ custom_headers, oauth_config_id: 1, description: 'first' })
  const text = `{"paths":{"/a":{"get":{"operationId":"a","summary":"A","x-n":[1.0,12345678901234567890]}}},"servers":[{"url":"https://a.example.com"}],"info":{"title":"t"},"openapi":"3.1.0"}`
  await put(id, `{"definition":${text},"passthrough_auth":true}`)
  await put(id, { definition: DEFINITION, name: 'third', description: '', oauth_config_id: null })
  await put(id, { custom_headers: [{ key: 'X-Other', value: 'two' }], passthrough_auth: false })
  const answer = await restore(id, 2)
  t.match(answer, { statusCode: 200, headers: { etag: `"tool-${id}-5"` } }, answer.body)
  t.match(answer.json(), { name: 'x', description: 'first', passthrough_auth: true, oauth_config_id: 1 })
  t.match(answer.json().custom_headers, [{ key: 'X-Other' }])
  t.equal((await storedTool(world, id)).definition, text)
  t.match(warningsOf(answer), [
    'field custom_headers was not restored',
    /^calls of this tool now also send the stored header values.* to https:\/\/a\.example\.com/,
  ])
  const [entry] = (await get(`/tool/${id}/history`)).json()
  t.match(entry, { version: 5, action: 'restored', actor: { email: 'admin@example.com' } })
  t.match(await restore(id, 5), { statusCode: 200, headers: { etag: `"tool-${id}-5"`, warning: undefined } })
  t.equal((await auditRows(db, 'tool', id)).length, 5)
})

t.test('200 of a dry run, 204 of return=minimal; 412, 413 and 428: nothing is changed', async t => {
  const id = await toolOf()
  for (let n = 2; n <= 6; n++) await put(id, { name: `name ${n}` })
  const careful = await world.token('admin@example.com', { requireIfMatch: true })
  const before = await hashOfEverything(db)
  const dry = await restore(id, 3, admin, {}, '?dry_run=true')
  t.match(dry, { statusCode: 200, headers: { 'dry-run': 'true', etag: `"tool-${id}-6"` } })
  t.equal(dry.json().name, 'name 3')
  const stale = await restore(id, 3, admin, { 'if-match': `"tool-${id}-4"` })
  t.match(stale.json(), { reason: 'changed', applied_etag: null })
  t.same(faultsOf(await restore(id, '3' as never)), ['body.version int_parsing'])
  const body = { version: 3, x: 'x'.repeat(20_000) }
  t.equal((await world.call('POST', `/admin/tool/custom/${id}/restore`, { token: admin, body })).statusCode, 413)
  t.match((await restore(id, 3, admin, { 'if-none-match': '*' })).json(), { reason: 'matched' })
  t.equal((await restore(id, 3, careful)).statusCode, 428)
  t.same(await hashOfEverything(db), before)
  const minimal = await restore(id, 3, careful, { prefer: 'return=minimal', 'if-match': `"tool-${id}-6"` })
  t.match(minimal, { statusCode: 204, headers: { etag: `"tool-${id}-7"` } })
})

t.test('422 for what breaks a rule of today and for an OAuth configuration gone, at the version', async t => {
  const id = await toolOf({ passthrough_auth: true, oauth_config_id: 2 })
  await put(id, { passthrough_auth: false, oauth_config_id: null })
  await put(id, { custom_headers: [{ key: 'Authorization', value: 'Bearer x' }] })
  const broken = await restore(id, 1)
  t.same(faultsOf(broken), ['body.version passthrough_auth_conflict'])
  t.match(broken.json().detail[0].msg, /^passthrough_auth: passthrough_auth cannot be/)
  await put(id, { custom_headers: [] })
  await apply({ oauth_configs: [{ id: 1, name: 'GitHub OAuth' }] }, { prune: true })
  const before = await hashOfEverything(db)
  t.same(faultsOf(await restore(id, 1)), ['body.version not_found'])
  t.same(await hashOfEverything(db), before)
})

t.test('a definition from before rules became stricter stays, and comes back', async t => {
  const id = await toolOf({ description: 'first' })
  const definitionAt = (url: string) => JSON.stringify({ ...DEFINITION, servers: [{ url }] })
  const text = definitionAt('https://a.example.com/v1?old=1')
  const content = sql`insert into tool_definition (hash, content, size_bytes) values (sha256(${text}::text::bytea), ${text}, 9)`
  await content.execute(db)
  await sql`update tool set definition_hash = sha256(${text}::text::bytea) where id = ${id}`.execute(db)
  const whole = (definition: string) => put(id, `{"definition":${definition},"description":"whole"}`)
  t.match((await whole(text)).json(), { description: 'whole', definition: JSON.parse(text) })
  await t.rejects(whole(definitionAt('https://a.example.com/v2?old=1')), /server_url_invalid/)
  t.match((await restore(id, 1)).json(), { description: 'first', definition: JSON.parse(text) })
  t.equal((await put(id, { definition: DEFINITION })).statusCode, 200)
  t.match((await restore(id, 2)).json(), { description: 'whole', definition: JSON.parse(text) })
  const functions = (await get(`/tool/${id}?view=functions`)).json()
  t.match(functions, { functions: [], faults: [{ type: 'server_url_invalid' }] }, 'no model gets it')
})

t.test('columns that only the operator changes stay, with a Warning; strict handling refuses them', async t => {
  const id = await toolOf()
  await apply({ tools: [{ id, name: 'x', enabled: false, display_name: 'Shown' }] })
  await put(id, { name: 'other' })
  t.equal((await restore(id, 1, admin, { prefer: 'handling=strict' })).statusCode, 403)
  const answer = await restore(id, 1)
  t.match(answer.json(), { name: 'x', enabled: false, display_name: 'Shown' })
  const kept = ['display_name', 'enabled'].map(name => `field ${name} was not restored`)
  t.same(warningsOf(answer), kept)
})

t.test('403 for those who may not update it, with the reason; 404 for what is gone', async t => {
  const id = await toolOf({ custom_headers: [{ key: 'X-Key', value: 'one' }] })
  const curator = await world.token('curator@example.com')
  t.match((await restore(id, 1, curator)).json(), { detail: /A group manager may update only their own tools/ })
  await world.remove(`/admin/tool/custom/${id}`, admin)
  for (const token of [admin, curator]) t.equal((await restore(id, 1, token)).statusCode, 404)
  await apply({ tools: [{ id, name: 'made anew', definition: DEFINITION }] })
  t.match((await restore(id, 1)).json(), { error_code: 'VERSION_GONE', reason: 'deleted' })
})
