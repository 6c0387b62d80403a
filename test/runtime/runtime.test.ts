import fc from 'fast-check'
import t from 'tap'
import { listAudit } from '../../src/admin/audit-list.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { rotateKeys } from '../../src/admin/keys.js'
import { withUniqueNames } from '../../src/runtime/read-runtime.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { appOver, type Call, worldApp } from '../app.js'
import { eventually } from '../eventually.js'
import { DEFINITION } from '../matrix-organisation.js'
import { startedService, UNLIMITED } from '../test-service.js'
import { TEST_SECRET_KEYS } from '../world.js'

const world = await worldApp(t)
const { call, database, query, token } = world
const owner = 'alice@example.com'
const tool = (id: number, columns: object = {}) => ({
  id,
  name: `tool ${id}`,
  owner,
  definition: DEFINITION,
  ...columns,
})
const header = (value: string, key = 'X-Key') => ({ custom_headers: [{ key, value }] })
const SECRET = { 60: 'first secret', 61: 'second secret', 62: 'secret of a disabled tool', 65: 'of no agent' }
await world.apply({
  users: [{ email: 'runtime@example.com', kind: 'service_account', permissions: [] }],
  tools: [
    tool(60, { ...header(SECRET[60]), passthrough_auth: true, oauth_config: 'GitHub OAuth' }),
    tool(61, header(SECRET[61])),
    tool(62, { ...header(SECRET[62]), enabled: false }),
    tool(63, { mcp_server: 'Docs MCP' }),
    tool(65, header(SECRET[65])),
  ],
  agents: [
    {
      ...{ id: 50, name: 'Support', description: 'Helps', owner, users: [{ email: 'runtime@example.com' }] },
      ...{ system_prompt: 'Be brief.', task_prompt: 'Do it.', num_chunks: 5, llm_model_provider_override: 'OpenAI' },
      ...{ recency_bias: 'auto', llm_filter_extraction: true, llm_relevance_filter: false, is_public: false },
      ...{ tools: [1, 60, 61, 62, 63], document_sets: ['Public Docs'], search_start_date: '2024-01-02' },
    },
  ],
})
const runtime = await token('runtime@example.com', { scopes: ['runtime'] })
const admin = await token('admin@example.com')
const read = (options: Call = {}, id = 50) => call('GET', `/runtime/persona/${id}`, { token: runtime, ...options })
const headersOf = (id: number, options: Call = {}) => call('GET', `/tool/${id}/headers`, { token: runtime, ...options })
const put = (id: number, body: object) => call('PUT', `/admin/tool/custom/${id}`, { token: admin, body })
const events = async () => {
  const rows = await query<{ subject: string }>`select subject from access_event where kind = 'headers' order by id`
  return rows.map(({ subject }) => subject)
}

const now = (name: string) => ({
  name,
  operationId: 'now',
  description: 'The weather now',
  parameters: { type: 'object', properties: {} },
  ...{ method: 'get', path: '/now', arguments: [], address: 'https://weather.example.com/now' },
})

t.test('200: an agent with all that a runtime needs, of its enabled tools', async t => {
  const answer = await read()
  const other = { in_code_tool_id: null, mcp_server_id: null, passthrough_auth: false, oauth_config_id: null }
  t.strictSame(answer.json(), {
    ...{ id: 50, version: 1, name: 'Support', description: 'Helps', system_prompt: 'Be brief.' },
    ...{ replace_base_system_prompt: false, task_prompt: 'Do it.', datetime_aware: true, num_chunks: 5 },
    ...{ recency_bias: 'auto', search_start_date: '2024-01-02T00:00:00.000000Z', llm_filter_extraction: true },
    ...{ llm_relevance_filter: false, starter_messages: null, user_file_ids: [], document_set_ids: [1] },
    ...{ is_public: false, is_visible: true, is_default_persona: false, builtin_persona: false },
    ...{ display_priority: null, uploaded_image_id: null, icon_name: null },
    model: { provider: 'OpenAI', version: null },
    tools: [
      { ...other, id: 1, version: 1, name: 'SearchTool', in_code_tool_id: 'SearchTool', headers: [], functions: null },
      {
        ...{ ...other, id: 60, version: 1, name: 'tool 60', passthrough_auth: true, oauth_config_id: 1 },
        ...{ headers: [{ key: 'X-Key', value: SECRET[60] }], functions: [now('now_60')] },
      },
      {
        ...{ ...other, id: 61, version: 1, name: 'tool 61' },
        ...{ headers: [{ key: 'X-Key', value: SECRET[61] }], functions: [now('now_61')] },
      },
      { ...other, id: 63, version: 1, name: 'tool 63', mcp_server_id: 1, headers: [], functions: null },
    ],
  })
  t.match(answer, { statusCode: 200, headers: { 'cache-control': 'no-store', etag: /^"[0-9a-f]{12}"$/ } })
  for (const url of ['/runtime/persona/50', '/tool/60/headers'])
    t.match(await call('HEAD', url, { token: runtime }), { statusCode: 200, body: '' }, `HEAD ${url}`)
})

t.test('the tag changes with all that is answered, and rights are checked before a 304', async t => {
  const rename = (name: string) => call('PATCH', '/persona/50?update_mask=name', { token: admin, body: { name } })
  const steps: Record<string, () => Promise<unknown>> = {
    'an agent': () => rename('Help desk'),
    'a header': () => put(61, header('third secret')),
    'a tool': () => put(61, { name: 'renamed' }),
    'a tool that is disabled': () => query`update tool set enabled = false where id = 61`,
    'and enabled again': () => query`update tool set enabled = true where id = 61`,
    'an OAuth configuration': () => query`update tool set oauth_config_id = null where id = 60`,
    'a tool that is taken off': () => query`delete from persona_tool where persona_id = 50 and tool_id = 1`,
  }
  let tag = String((await read()).headers.etag)
  const known = () => read({ headers: { 'if-none-match': tag } })
  t.match(await known(), { statusCode: 304, body: '', headers: { etag: tag } })
  for (const [what, step] of Object.entries(steps)) {
    await step()
    const answer = await known()
    t.equal(answer.statusCode, 200, what)
    t.not(answer.headers.etag, tag, what)
    tag = String(answer.headers.etag)
  }
  await put(65, { name: 'of no agent' })
  t.equal((await known()).statusCode, 304, 'another tool changes nothing')
  t.equal((await read({ token: admin, headers: { 'if-none-match': '*' } })).statusCode, 403)
  await query`update persona set deleted = true where id = 50`
  t.equal((await known()).statusCode, 404)
  await query`update persona set deleted = false where id = 50`
})

t.test('headers of a tool: only of an enabled one on a live agent that user and token may see', async t => {
  t.match(await headersOf(60), { statusCode: 200, headers: { 'cache-control': 'no-store' } })
  t.strictSame((await headersOf(60)).json(), { headers: [{ key: 'X-Key', value: SECRET[60] }] })
  t.strictSame((await headersOf(63)).json(), { headers: [] }, 'of an MCP server')
  const bound = async (ids: object) => ({ token: await token('runtime@example.com', { scopes: ['runtime'], ...ids }) })
  const stranger = await token('bob@example.com', { scopes: ['runtime'] })
  const rows: [what: string, status: number, id: number, options?: Call][] = [
    ['a disabled tool', 404, 62],
    ['a tool of no agent', 404, 65],
    ['a tool of agents that the user does not see', 404, 60, { token: stranger }],
    ['bound to the agent', 200, 60, await bound({ personaIds: [50] })],
    ['bound to another agent', 404, 60, await bound({ personaIds: [2] })],
    ['bound to the tool', 200, 60, await bound({ toolIds: [60] })],
    ['bound to another tool', 404, 61, await bound({ toolIds: [60] })],
    ['an administrator without a token of a runtime', 403, 60, { token: admin }],
    ['a read-only token', 403, 60, { token: await token('admin@example.com', { scopes: ['read'] }) }],
    ['an administrator for a runtime', 200, 60, { token: await token('admin@example.com', { scopes: ['runtime'] }) }],
  ]
  for (const [what, status, id, options] of rows) t.equal((await headersOf(id, options)).statusCode, status, what)
  await query`update persona set deleted = true where id = 50`
  t.equal((await headersOf(60)).statusCode, 404, 'a deleted agent')
  await query`update persona set deleted = false where id = 50`
})

t.test('names of functions are unique, and of 64 characters at most', async t => {
  const long = 'x'.repeat(64)
  const rows: [given: string[][], names: string[][]][] = [
    [
      [['a', 'b'], ['c']],
      [['a', 'b'], ['c']],
    ],
    [
      [['a', 'b'], ['a']],
      [['a_1', 'b'], ['a_2']],
    ],
    [
      [['a'], ['a'], ['a_1']],
      [['a_2_1'], ['a_2'], ['a_1']],
    ],
    [
      [[long], [long]],
      [[`${long.slice(2)}_1`], [`${long.slice(2)}_2`]],
    ],
  ]
  const namesOf = (given: string[][]) => {
    const tools = given.map((names, i) => ({ id: i + 1, functions: names.map(name => ({ name })) }))
    return withUniqueNames(tools).map(({ functions }) => functions?.map(({ name }) => name))
  }
  for (const [given, names] of rows) t.strictSame(namesOf(given), names)
  const name = fc.stringMatching(/^[ab]{1,2}(_[123]){0,2}(x{60})?$/).filter(name => name.length <= 64)
  const tools = fc.array(fc.uniqueArray(name, { maxLength: 6 }), { maxLength: 4 })
  const isUnique = (given: string[][]) => {
    const all = namesOf(given).flat()
    return new Set(all).size === all.length && all.every(name => /^[\w-]{1,64}$/.test(name ?? ''))
  }
  t.doesNotThrow(() => fc.assert(fc.property(tools, isUnique), { numRuns: 2_000 }))
})

t.test('503: a key that is missing is named, with the tool; a 304 needs no key', async t => {
  const keys = `${generateKey('new')},${TEST_SECRET_KEYS}`
  const tag = String((await read()).headers.etag)
  t.match(await rotateKeys(database.db, parseKeyRing(keys)), { left_tools: [] })
  for (const answer of [await read(), await headersOf(60)]) {
    t.match(answer, { statusCode: 503, headers: { 'retry-after': undefined } }, 'waiting does not help')
    t.match(answer.json(), { reason: 'key_missing', detail: /tool 60\b.*"new"/ })
  }
  t.equal((await read({ headers: { 'if-none-match': tag } })).statusCode, 304)
  const rotated = await startedService(t, database, { settings: UNLIMITED, secretKeys: keys })
  const answer = await rotated.call('GET', '/runtime/persona/50', { token: runtime })
  t.equal(answer.json().tools[0].headers[0].value, SECRET[60])
  t.equal(answer.headers.etag, tag, 'a rotation is no change')
  await rotateKeys(database.db, parseKeyRing(`${TEST_SECRET_KEYS},${keys.split(',')[0]}`))
})

t.test('409: header values beyond SNAPSHOT_BYTES_MAX; a large one is read in a worker', async t => {
  await put(65, header(SECRET[65], 'X-Other')) // new header names, so that no functions are cached
  await query`insert into persona_tool values (50, 65)`
  const small = await appOver(t, database, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
  const headers = (from: number, to: number) => query`
    insert into tool_header (tool_id, position, name, mask, key_id, nonce, ciphertext)
    select 65, n, 'x-' || n, '\\x00', 'k', '\\x00', decode(repeat('00', 8192), 'hex') from generate_series(${from}::int, ${to}::int) n`
  await headers(100, 250)
  t.match(await small.call('GET', '/runtime/persona/50', { token: runtime }), { statusCode: 409 }, 'by header values')
  await headers(251, 1_200)
  t.match(await read(), { statusCode: 409 })
  await query`delete from tool_header where tool_id = 65 and position >= 100`
  await query`update tool_definition set size_bytes = ${2 ** 20}`
  await eventually(async () => (await read()).statusCode === 200) // on a busy machine, the worker can be late
  t.match((await read()).json().tools.at(-1), { id: 65, functions: [{ name: 'now_65' }] })
  await query`delete from persona_tool where tool_id = 65`
})

t.test('the first read of headers by a token in an hour is an event, stored before the answer', async t => {
  const token = await world.token('runtime@example.com', { scopes: ['runtime'] })
  await query`delete from access_event where kind = 'headers'`
  await Promise.all(Array.from({ length: 8 }, () => read({ token })))
  await headersOf(60, { token })
  t.strictSame(await events(), ['60', '61'])
  await headersOf(60)
  t.strictSame(await events(), ['60', '61', '60'], 'of each token')
  const list = await listAudit(database.db, { kind: 'headers', subject: '61' })
  t.match(list, [{ action: 'read', actor: 'runtime@example.com', token_id: Number, client_address: '127.0.0.1' }])

  await query`update access_event set at = at - interval '1 hour' where kind = 'headers'`
  await query`create function refuse() returns trigger language plpgsql as $$ begin raise 'full'; end $$`
  await query`create trigger refused before insert on access_event for each row execute function refuse()`
  for (const answer of [await read({ token }), await headersOf(60, { token })]) {
    t.match(answer, { statusCode: 503 })
    t.equal(answer.json().reason, 'not_recorded')
    t.notMatch(answer.body, /secret of|first secret/)
  }
  await query`drop trigger refused on access_event`
  await read({ token })
  t.strictSame(await events(), ['60', '61', '60', '60', '61'], 'and of each hour')

  await eraseUser(database.db, 'runtime@example.com')
  const addresses = await query<{ client_address: string }>`
    select distinct client_address from access_event where kind = 'headers'`
  t.strictSame(addresses, [{ client_address: 'erased' }])
  await query`update access_event set at = at - interval '3 days' where kind = 'headers' and subject = '61'`
  await pruneHistory(database.db, { auditRetentionDays: 2, versionsMax: 100 })
  t.strictSame(await events(), ['60', '60', '60'])
})
