import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, faultsOf, hashOfEverything, storedTool, warningsOf } from '../updates/stored-state.js'

/* `POST /admin/tool/custom/{id}/restore`: a tool becomes what it was, except for its secrets. */

const world = await worldApp(t)
const { call, database, ring } = world
const { db } = database
const admin = await world.token('admin@example.com')
const curator = await world.token('curator@example.com')
const alice = await world.token('alice@example.com')

async function sent(method: string, url: string, body?: object | string) {
  const answer = await call(method, url, { token: admin, ...(body && { body }) })
  if (answer.statusCode >= 300) throw new Error(answer.body)
  return answer
}
const put = (id: number, body: object | string) => sent('PUT', `/admin/tool/custom/${id}`, body)
const toolOf = async (fields: object = {}) =>
  (
    await sent('POST', '/admin/tool/custom', { name: 'x', definition: DEFINITION, passthrough_auth: false, ...fields })
  ).json().id as number
const restore = (id: number, version: number, { token = admin, query = '', ...headers }: Record<string, string> = {}) =>
  call('POST', `/admin/tool/custom/${id}/restore${query}`, { token, body: { version }, headers })
const apply = (document: object) => applyOrganisation(database, { version: 1, ...document }, { ring, env: {} })
const at = (url: string) => ({ ...DEFINITION, servers: [{ url }] })

t.teardown(async () => {
  const { findings } = await verifyAudit(db)
  if (findings.length > 0) throw new Error(JSON.stringify(findings))
})

t.test('200: the definition comes back text for text, with every field but the secrets', async t => {
  const id = await toolOf({
    custom_headers: [{ key: 'X-Key', value: 'one' }],
    oauth_config_id: 1,
    description: 'first',
  })
  // Keys in no usual order, and numbers as JavaScript would not write them.
  const text = `{"paths":{"/a":{"get":{"operationId":"a","summary":"A","x-n":[1.0,12345678901234567890]}}},"servers":[{"url":"https://a.example.com"}],"info":{"title":"t"},"openapi":"3.1.0"}`
  await put(id, `{"definition":${text},"passthrough_auth":true}`)
  await put(id, { definition: DEFINITION, name: 'third', description: '', oauth_config_id: null })
  await put(id, { custom_headers: [{ key: 'X-Other', value: 'two' }], passthrough_auth: false })
  const answer = await restore(id, 2)
  t.equal(answer.statusCode, 200, answer.body)
  t.match(answer.headers, { etag: `"tool-${id}-5"` })
  t.match(answer.json(), { name: 'x', description: 'first', passthrough_auth: true, oauth_config_id: 1 })
  t.match(answer.json().custom_headers, [{ key: 'X-Other' }])
  t.equal((await storedTool(world, id)).definition, text)
  t.match(warningsOf(answer), [
    'field custom_headers was not restored',
    /^calls of this tool now also take the stored header values.* to https:\/\/a\.example\.com/,
  ])
  const [entry] = (await call('GET', `/tool/${id}/history`, { token: admin })).json()
  t.match(entry, { version: 5, action: 'restored', actor: { email: 'admin@example.com' } })
  t.match(await restore(id, 5), { statusCode: 200, headers: { etag: `"tool-${id}-5"`, warning: undefined } })
  t.equal((await auditRows(db, 'tool', id)).length, 5)
})

t.test('200 of a dry run, 204 of return=minimal; 412, 428, 404 and 410 with sentences; nothing is changed', async t => {
  const id = await toolOf()
  for (let n = 2; n <= 6; n++) await put(id, { name: `name ${n}`, definition: at(`https://${n}.example.com`) })
  await pruneHistory(db, { auditRetentionDays: 400, versionsMax: 3, bytesMax: 2 ** 26 })
  const before = await hashOfEverything(db)
  const dry = await restore(id, 3, { query: '?dry_run=true' })
  t.match(dry, { statusCode: 200, headers: { 'dry-run': 'true', etag: `"tool-${id}-6"` } })
  t.equal(dry.json().name, 'name 3')
  t.match((await restore(id, 3, { 'if-match': `"tool-${id}-4"` })).json(), { reason: 'changed' })
  t.match((await restore(id, 9)).json(), {
    error_code: 'VERSION_NOT_FOUND',
    detail: `The versions of tool ${id} go to 6.`,
  })
  t.match((await restore(id, 2)).json(), { error_code: 'VERSION_GONE', reason: 'pruned' })
  t.same(faultsOf(await restore(id, '3' as never)), ['body.version int_parsing'])
  const large = { version: 3, x: 'x'.repeat(20_000) }
  t.equal((await call('POST', `/admin/tool/custom/${id}/restore`, { token: admin, body: large })).statusCode, 413)
  t.same(await hashOfEverything(db), before)
  t.match((await restore(id, 3, { 'if-none-match': '*' })).json(), { reason: 'matched' })
  const careful = await world.token('admin@example.com', { requireIfMatch: true })
  t.equal((await restore(id, 3, { token: careful })).statusCode, 428)
  const minimal = await restore(id, 3, { prefer: 'return=minimal', 'if-match': `"tool-${id}-6"` })
  t.match(minimal, { statusCode: 204, headers: { etag: `"tool-${id}-7"` } })
})

t.test(
  "422 for what breaks a rule of today, at the update's places; 409 for an OAuth configuration that is gone",
  async t => {
    const id = await toolOf({ passthrough_auth: true, oauth_config_id: 2 })
    await put(id, { passthrough_auth: false, oauth_config_id: null })
    await put(id, { custom_headers: [{ key: 'Authorization', value: 'Bearer x' }] })
    t.same(faultsOf(await restore(id, 1)), ['body.passthrough_auth passthrough_auth_conflict'])
    await put(id, { custom_headers: [] })
    await applyOrganisation(
      database,
      { version: 1, oauth_configs: [{ id: 1, name: 'GitHub OAuth' }] },
      { ring, env: {}, prune: true },
    )
    const before = await hashOfEverything(db)
    const refused = await restore(id, 1)
    t.match(refused.json(), {
      error_code: 'VERSION_UNUSABLE',
      detail: /now: OAuth configuration 2\. A read with/,
    })
    t.same(await hashOfEverything(db), before)
  },
)

t.test('columns that only the operator changes stay, with a Warning; strict handling refuses them', async t => {
  const id = await toolOf()
  await apply({ tools: [{ id, name: 'x', enabled: false, display_name: 'Shown' }] })
  await put(id, { name: 'other' })
  t.equal((await restore(id, 1, { prefer: 'handling=strict' })).statusCode, 403)
  const answer = await restore(id, 1)
  t.match(answer.json(), { name: 'x', enabled: false, display_name: 'Shown' })
  t.same(
    warningsOf(answer),
    ['display_name', 'enabled'].map(name => `field ${name} was not restored`),
  )
})

t.test('403 for those who may not update it, with the reason; 400 for built-in tools; 404 for none', async t => {
  const id = await toolOf()
  t.equal((await restore(id, 1, { token: alice })).statusCode, 403)
  t.match((await restore(id, 1, { token: curator })).json(), {
    detail: /A group manager may update a tool that they own/,
  })
  t.match((await restore(1, 1)).json(), { error_code: 'BUILTIN_READ_ONLY' })
  t.match((await restore(999_999, 1)).json(), { error_code: 'NOT_FOUND' })
  const bound = await world.token('admin@example.com', { toolIds: [10] })
  t.equal((await restore(id, 1, { token: bound })).statusCode, 403)
})

t.test('404 of a deleted tool, which is gone with its secrets', async t => {
  const id = await toolOf({ custom_headers: [{ key: 'X-Key', value: 'one' }] })
  await put(id, { name: 'other' })
  await sent('DELETE', `/admin/tool/custom/${id}`)
  for (const token of [admin, curator]) t.equal((await restore(id, 1, { token })).statusCode, 404)
  await apply({ tools: [{ id, name: 'made anew', definition: DEFINITION }] })
  t.match((await restore(id, 1)).json(), { error_code: 'VERSION_GONE', reason: 'deleted' })
})
