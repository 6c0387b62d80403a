import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { faultsOf } from '../updates/stored-state.js'
import { storedTool } from './stored-tool.js'

const world = await worldApp(t)
const { call } = world
const admin = await world.token('admin@example.com')
const put = (id: number, body: unknown, as = admin) => call('PUT', `/admin/tool/custom/${id}`, { token: as, body })

t.test('200: display_name follows the name unless it was set on its own', async t => {
  t.match((await put(10, { name: 'renamed' })).json(), { name: 'renamed', display_name: 'renamed' })
  t.match((await put(16, { name: 'renamed too' })).json(), { name: 'renamed too', display_name: 'Full Tool' })
})

t.test('422: passthrough_auth and an Authorization header exclude each other, on the merged state', async t => {
  // Tool 16 has an Authorization header, tool 17 passes the caller's through.
  const secret = { key: 'aUTHORIZATION', value: 'Bearer x' }
  const masks = (await put(16, {})).json().custom_headers
  const conflict = await put(16, { passthrough_auth: true })
  t.equal(conflict.json().detail[0].msg, 'passthrough_auth and an Authorization header exclude each other')
  for (const [id, body, place] of [
    [16, { passthrough_auth: true }, 'passthrough_auth'],
    [16, { passthrough_auth: true, custom_headers: masks }, 'passthrough_auth'],
    [17, { custom_headers: [{ key: 'X-A', value: '1' }, secret] }, 'custom_headers.1.key'],
    [10, { passthrough_auth: true, custom_headers: [secret] }, 'passthrough_auth'],
  ] as const)
    t.strictSame(faultsOf(await put(id, body)), [`body.${place} passthrough_auth_conflict`])
  t.equal((await put(16, { passthrough_auth: true, custom_headers: [] })).statusCode, 200)
  t.equal((await put(17, { passthrough_auth: false, custom_headers: [secret] })).statusCode, 200)
  t.match(await storedTool(world, 17), { passthrough_auth: false, headers: [{ name: 'aUTHORIZATION' }] })
})

t.test('422: every fault of definition and headers at once, in the declared order', async t => {
  const custom_headers = [
    { key: 'Host', value: 'a' },
    { key: 'X-A', value: 'a\n' },
  ]
  const body = { custom_headers, definition: { ...DEFINITION, servers: [] }, oauth_config_id: 999 }
  t.strictSame(faultsOf(await put(11, body)), [
    'body.definition.servers servers_missing',
    'body.custom_headers.0.key header_name_forbidden',
    'body.custom_headers.1.value header_value_invalid',
  ])
})

t.test('422: a header value that no client can send names the character; 200 for what only looks odd', async t => {
  const of = (value: string) => put(11, { custom_headers: [{ key: 'X-A', value }] })
  const told = async (value: string) => (await of(value)).json().detail[0].msg
  t.equal(await told('key “a”'), 'Header value should have characters that a client can send: character 5 is U+201C')
  t.equal(await told('key '), 'Header value should end without a blank: character 4 is one')
  for (const value of '*/*|*|a * b|v1.2|a..b|please wait...|text/plain; q=0.5|x|no-cache|Basic YTpi'.split('|'))
    t.equal((await of(value)).statusCode, 200, value)
})

t.test('200: a link to an OAuth configuration: the current one again, another, none; the row stays', async t => {
  const linked = async (id: number | null) => (await put(12, { oauth_config_id: id })).json()
  t.match(await linked(1), { oauth_config_id: 1, oauth_config_name: 'GitHub OAuth' })
  t.match(await linked(1), { oauth_config_id: 1 })
  t.match(await linked(null), { oauth_config_id: null, oauth_config_name: null })
  const { rows } = await sql`select id from oauth_config where id = 1`.execute(world.database.db)
  t.equal(rows.length, 1)
})

t.test('200: a definition keeps the order of its keys, text for text; integer-like keys come first', async t => {
  const text =
    '{"paths":{"/z":{"get":{"x-n":[1.0,1e2,-0.5,12345678901234567890],"responses":{"404":{"b":1,"a":2},"200":{}},' +
    '"summary":"s\\u00e9\\/","operationId":"z"}},"/a":{"post":{"operationId":"a","summary":"s"}}},' +
    '"servers":[{"url":"https://example.com"}],"info":{"title":"first","title":"T"},"openapi":"3.0.0"}'
  const stored = text
    .replace('"404":{"b":1,"a":2},"200":{}', '"200":{},"404":{"b":1,"a":2}')
    .replace('s\\u00e9\\/', 'sé/')
    .replace('"title":"first",', '')
  const answer = await put(13, `{"definition":${text}}`)
  t.equal(answer.statusCode, 200, answer.body)
  t.equal((await storedTool(world, 13)).definition, stored)
  t.ok(answer.body.includes(`"definition":${stored}`), 'in the answer')
  t.ok((await call('GET', '/tool/13', { token: admin })).body.includes(stored), 'in the read')
  const body = { tool_ids: [13] }
  const agent = await call('PATCH', '/persona/1?update_mask=tool_ids', { token: admin, body })
  t.ok(agent.body.includes(stored), 'in an agent that has the tool')
  const validated = await call('POST', '/admin/tool/custom/validate', { token: admin, body: `{"definition":${text}}` })
  const [first, second] = validated.json().methods
  t.strictSame([first.name, second.name], ['z', 'a'])
  t.equal(JSON.stringify(first.spec), JSON.stringify(JSON.parse(stored).paths['/z'].get))
})

t.test('403 does not tell a group manager which agents keep a tool out of scope', async t => {
  const refused = await put(15, { name: 'x' }, await world.token('curator@example.com'))
  t.equal(refused.statusCode, 403)
  t.match(refused.headers['www-authenticate'], /error="insufficient_scope", scope="manage:actions"$/)
  t.notMatch(refused.body.replace(/"request_id":"[^"]*"/, ''), /Eng|Sales|Alice|\d{2}/)
})
