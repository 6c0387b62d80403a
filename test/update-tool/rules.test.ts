import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'
import { faultsOf, storedTool } from '../updates/stored-state.js'

const world = await worldApp(t)
const { call, admin } = world
const VALIDATE = '/admin/tool/custom/validate'
const put = (id: number, body: unknown, as = admin) => call('PUT', `/admin/tool/custom/${id}`, { token: as, body })

t.test('200: display_name follows the name unless it was set on its own', async t => {
  t.match((await put(10, { name: 'renamed' })).json(), { name: 'renamed', display_name: 'renamed' })
  t.match((await put(16, { name: 'renamed too' })).json(), { name: 'renamed too', display_name: 'Full Tool' })
})

t.test('422: passthrough_auth cannot be combined with an Authorization header, on the merged state', async t => {
  // Tool 16 has an Authorization header, and tool 17 uses passthrough_auth.
  const secret = { key: 'aUTHORIZATION', value: 'Bearer x' }
  const masks = (await put(16, {})).json().custom_headers
  const conflict = await put(16, { passthrough_auth: true })
  t.match(
    conflict.json().detail[0].msg,
    /^passthrough_auth cannot be combined with an Authorization header: turn passthrough_auth off/,
  )
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
  const headers = { Host: 'a', 'X-A': 'a\n' }
  const custom_headers = Object.entries(headers).map(([key, value]) => ({ key, value }))
  const body = { custom_headers, definition: { ...DEFINITION, servers: [] }, oauth_config_id: 999 }
  t.strictSame(faultsOf(await put(11, body)), [
    'body.definition.servers servers_missing',
    'body.custom_headers.0.key header_name_forbidden',
    'body.custom_headers.1.value header_value_invalid',
  ])
})

t.test('200 for a header value that only looks odd', async t => {
  for (const value of '*/*|*|a * b|v1.2|a..b|please wait...|text/plain; q=0.5|x|no-cache|Basic YTpi'.split('|'))
    t.equal((await put(11, { custom_headers: [{ key: 'X-A', value }] })).statusCode, 200, value)
})

t.test('200: a link to an OAuth configuration: the current one again, another, none; the row stays', async t => {
  const linked = async (id: number | null) => (await put(12, { oauth_config_id: id })).json()
  t.match(await linked(1), { oauth_config_id: 1, oauth_config_name: 'GitHub OAuth' })
  t.match(await linked(1), { oauth_config_id: 1 })
  t.match(await linked(null), { oauth_config_id: null, oauth_config_name: null })
  const { rows } = await sql`select id from oauth_config where id = 1`.execute(world.database.db)
  t.equal(rows.length, 1)
})

t.test('200: a definition is stored as it was sent, without whitespace; 422 for a repeated key', async t => {
  const text =
    '{"paths":{"/z":{"get":{"x-n":[1.0,1e2,-0.5,12345678901234567890],"responses":{"404":{"b":1,"a":2},"200":{}},' +
    '"summary":"s\\u00e9\\/","operationId":"z"}},"/a":{"post":{"operationId":"a","summary":"s"}}},' +
    '"servers":[{"url":"https://example.com"}],"info":{"title":"T"},"openapi":"3.0.0"}'
  const stored = text.replace('s\\u00e9\\/', 'sé/')
  for (const make of [(text: string) => text, (text: string) => `${' '.repeat(20_000)}${text}`]) {
    const twice = text.replace('"title":"T"', '"title":"first", "\\u0074itle":"T"')
    const body = make(`{"definition":${twice}}`)
    const detail = [{ loc: ['body', 'definition', 'info', 'title'], type: 'json_key_repeated' }]
    t.match((await put(13, body)).json(), { detail })
    t.match((await call('POST', VALIDATE, { token: admin, body })).json(), { detail })
  }
  const answer = await put(13, ` { "definition" : ${text.replaceAll('":', '" :\t')} } `)
  t.equal(answer.statusCode, 200, answer.body)
  t.equal((await storedTool(world, 13)).definition, stored)
  t.ok(answer.body.includes(`"definition":${stored}`), 'in the answer')
  const validated = await call('POST', VALIDATE, { token: admin, body: `{"definition":${text}}` })
  const [first, second] = validated.json().methods
  t.strictSame([first.name, second.name], ['z', 'a'])
  t.equal(JSON.stringify(first.spec), JSON.stringify(JSON.parse(stored).paths['/z'].get))
})

/** Returns a definition as JSON text with `numbers` in an enum, and the first of them as the maximum. */
function definitionText(...numbers: string[]): string {
  const schema = `{"type":"integer","enum":[${numbers.join(',')}],"maximum":${numbers[0]}}`
  return (
    '{"openapi":"3.0.0","info":{"title":"t","version":"1"},"servers":[{"url":"https://example.com"}],"paths":{"/a":{"get":' +
    `{"operationId":"getA","summary":"s","parameters":[{"name":"id","in":"query","schema":${schema}}],"x-one":1.0,"x-big":1e30}}}}`
  )
}

const NUMBERS = ['12345678901234567', '-12345678901234568', '9007199254740993', '1.0', '3.14159265358979323846', '-0']
const TEXT = definitionText(...NUMBERS)
const TOOL = '/admin/tool/custom/10'

const putBody = (body: string, headers = {}) => call('PUT', TOOL, { token: admin, body, headers })
const putText = (text: string, headers = {}) => putBody(`{"definition":${text}}`, headers)
const validate = (text: string, query = '') =>
  call('POST', VALIDATE + query, { token: admin, body: `{"definition":${text}}` })

/** Two sizes of a definition: unchanged, and so large that a worker checks it. */
const SIZES = [
  (text: string) => text,
  (text: string) => text.replace('"info"', `"x-filling":"${'x'.repeat(70_000)}","info"`),
]

t.test('200: numbers of a definition are stored and answered as they were written, everywhere', async t => {
  for (const make of SIZES) {
    const text = make(TEXT)
    const stored = await putText(text)
    t.equal(stored.statusCode, 200, stored.body.slice(0, 300))
    t.ok(stored.body.includes(text))
    t.ok((await call('GET', '/tool/10', { token: admin })).body.includes(text))
    const body = { tool_ids: [10] }
    const shown = await call('PATCH', '/persona/1?update_mask=tool_ids', { token: admin, body })
    t.ok(shown.body.includes(text), 'in the answer of an agent')
    const same = await putText(text.replaceAll(',', ' ,\n'))
    t.equal(same.headers.etag, stored.headers.etag, 'the same text changes nothing, and blanks do not count')
    const unchanged = await validate(TEXT, '?tool_id=10')
    t.strictSame(unchanged.json().impact.changes, [], 'beside a large stored definition too')
    const impact = await validate(TEXT.replaceAll('12345678901234567', '22345678901234567'), '?tool_id=10')
    t.match(impact.json().impact.changes, [{ kind: 'argument_values_changed' }])
    const other = text.replace('"x-one":1.0', '"x-one":1')
    const changed = await putText(other)
    t.not(changed.headers.etag, stored.headers.etag, 'another form of a number is another definition')
    t.ok(changed.body.includes(other))
  }
})

t.test('422 finite_number for a number that is too large for a double; 200 for one that is nearly zero', async t => {
  const wanted = ['body.definition.paths./a.get.parameters.0.schema.enum.0 finite_number']
  t.match(faultsOf(await putText(definitionText('1e400'))), wanted)
  t.match(faultsOf(await validate(definitionText('1e400'))), wanted)
  t.ok((await putText(definitionText('1e-400'))).body.includes('1e-400'))
})

t.test('agentctl: what is exported applies with an empty plan, and the stored text stays', async t => {
  const folder = t.testdir()
  t.equal((await putText(TEXT)).statusCode, 200)
  for (const format of ['--json', undefined]) {
    const file = join(folder, `organisation-${format}`)
    const exported = await agentctl({ url: world.url, args: ['export', ...(format ? [format] : [])] })
    writeFileSync(file, exported.stdout)
    t.match(await agentctl({ url: world.url, args: ['apply', file] }), { status: 0, stdout: /^0 created, 0 changed/ })
  }
  t.ok((await call('GET', '/tool/10', { token: admin })).body.includes(TEXT))
})
