import fc from 'fast-check'
import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { makeLogger } from '../../src/http/logging.js'
import { worldApp } from '../app.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'
import { DEFINITION } from '../matrix-organisation.js'

/* Malicious requests. `FUZZ_SEED` repeats a run. */

const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31)

/** Strings that are dangerous in SQL, a path, a regular expression, a header or a prototype. */
const NASTY_TEXTS = [
  ...["'; drop table persona; --", "' or '1'='1", '1); select pg_sleep(10); --', '$1', '$$; select 1; $$'],
  ...['%s%n%x', '\\', '\\x00', '{1,2,3}', 'null', '../../../../etc/passwd', 'file:///etc/passwd', '__proto__'],
  ...['constructor', 'toString', '{{7*7}}', '<script>alert(1)</script>', 'a\r\nSet-Cookie: x=1'],
  ...['\u0001\u0002\u001f\u007f', 'a\u0000b', '\ud800'],
  ...['a\udc00\ud800b', '\ufeff', '\ufffe\uffff', '\u202egnp.exe', 'e\u0301\u0301', 'ǅß İ ı K', '👩‍👩‍👧‍👦'],
  ...['\u2028\u2029', '(a+)+$', '****#0123456789ab', '****#', ' ', ''],
]

const nasty: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom(...NASTY_TEXTS),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(0, -0, 2 ** 31, -(2 ** 31) - 1, 2 ** 53, 1e20, 1e308, 5e-324, null, true, [], {}, 'x'.repeat(12_000)),
  fc.jsonValue({ maxDepth: 3 }),
  fc.integer({ min: 1, max: 200 }).map(depth => JSON.parse(`${'[{"a":'.repeat(depth)}1${'}]'.repeat(depth)}`)),
)

/** Generates copies of a value, some with nested values replaced with nasty ones. */
function damaged(value: unknown): fc.Arbitrary<unknown> {
  if (typeof value !== 'object' || value === null) return fc.oneof({ weight: 9, arbitrary: fc.constant(value) }, nasty)
  const whole = Array.isArray(value)
    ? fc.tuple(...value.map(damaged))
    : fc.record(Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, damaged(inner)])))
  return fc.oneof({ weight: 15, arbitrary: whole }, { weight: 1, arbitrary: nasty })
}

/** JSON texts that `JSON.stringify` never writes. */
const RAW_BODIES = [
  ...['{"__proto__":{"admin":true}}', '{"\\u005f_proto__":{}}', '{"constructor":{"protot\\u0079pe":{}}}', '\ufeff{}'],
  ...['{"name":"a","name":"b"}', '{"num_chunks":1e400}', '{"tool_ids":[18446744073709551616]}', '{"name":"\\ud800"}'],
  ...['{}garbage', '[]', '""', '0', ' \n', '{"a":01}', "{'a':1}", '{"a":1,}', '{', '['.repeat(5_000)],
  '{"definition":{"openapi":{"toString":"x"}}}', // found with seed 537056555
]
const PATH_TRICKS = [
  ...'%31 0 -1 2147483648 99999999999999999999 1e1 0x1 %D9%A3 1%00 1%2f2 ..%2f1 %2e%2e . .. 1;a=b +1 %201'.split(' '),
  ...'1%0d%0aX:%20y % %zz %c0%af %ff null __proto__ constructor / // 1/ validate'.split(' '),
  ...['', '1'.repeat(257), 'a'.repeat(3_000)],
]
const QUERY_TRICKS = [
  ...'dry_run dry_run=TRUE dry_run=true&dry_run=true update_mask= update_mask=name update_mask=__proto__'.split(' '),
  ...'update_mask=%00 update_mask=%ff update_mask[]=name __proto__[a]=1 %zz %00=%00 &&& =1 a=1;b=2'.split(' '),
  ...'report=half tool_id=10 tool_id=-1 tool_id=1e1 version=x version=0'.split(' '),
  Array.from({ length: 300 }, (_, i) => `k${i}=1`).join('&'),
]
const HEADERS = 'if-match if-none-match prefer idempotency-key traceparent x-request-id x-forwarded-for'.split(' ')
const HEADER_TEXTS = '*|"persona-1-1"|W/"a"|"|,||handling=strict|,,,handling = "strict";x|\u0080\u00ff'.split('|')
const MORE_HEADERS = [
  fc.constantFrom(...HEADERS),
  fc.constantFrom(...HEADER_TEXTS),
  { maxKeys: 2, noNullPrototype: true },
] as const
const METHODS = 'GET HEAD POST PUT PATCH DELETE OPTIONS PROPFIND'.split(' ')
const TYPES =
  `|text/plain|application/json;charset=latin1|application/json; ; ;|;|__proto__/json|${'a'.repeat(999)}`.split('|')

const TOOLS = '/admin/tool/custom'
const TOOL = { name: 'n', definition: DEFINITION, custom_headers: [{ key: 'X-A', value: 'v' }] }
const OPERATIONS = [
  { method: 'PATCH', path: '/persona/', ids: ['1', '2', '5', '8', '11'], body: FULL_AGENT_UPDATE },
  { method: 'PUT', path: `${TOOLS}/`, ids: ['10', '11', '16', '17', '1'], body: { ...TOOL, oauth_config_id: 1 } },
  { method: 'POST', path: `${TOOLS}/validate`, ids: [''], body: { definition: DEFINITION } },
  { method: 'POST', path: '/persona', ids: [''], body: FULL_AGENT_UPDATE },
  { method: 'POST', path: TOOLS, ids: [''], body: { ...TOOL, passthrough_auth: false } },
] as const

/** Generates mostly the usual value, and sometimes one of the others. */
const mostly = <Value>(usual: fc.Arbitrary<Value>, ...others: Value[]) =>
  fc.oneof({ weight: 12, arbitrary: usual }, { weight: 1, arbitrary: fc.constantFrom(...others) })

function hostileRequest([usual = '', ...others]: readonly string[]) {
  const authorization = mostly(fc.constant(usual), ...others, 'Basic YTpi', `Bearer pat_${'0'.repeat(28)}`, '')
  return fc.constantFrom(...OPERATIONS).chain(({ method, path, ids, body }) => {
    const json = damaged(body).map(value => Buffer.from(JSON.stringify(value)))
    return fc.record({
      method: mostly(fc.constant<string>(method), ...METHODS),
      url: fc
        .tuple(mostly(fc.constantFrom<string>(...ids), ...PATH_TRICKS), mostly(fc.constant(''), ...QUERY_TRICKS))
        .map(([id, query]) => path + (ids.length > 1 ? id : '') + (query && `?${query}`)),
      headers: fc
        .tuple(mostly(fc.constant('application/json'), ...TYPES), authorization, fc.dictionary(...MORE_HEADERS))
        .map(([type, authorization, more]) => ({ 'content-type': type, authorization, ...more })),
      payload: fc.oneof(
        { weight: 12, arbitrary: json },
        { weight: 1, arbitrary: json.map(bytes => bytes.subarray(0, bytes.length - 7)) },
        { weight: 2, arbitrary: fc.constantFrom(...RAW_BODIES).map(text => Buffer.from(text)) },
        { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map(bytes => Buffer.from(bytes)) },
      ),
    })
  })
}

const STATUSES = [200, 201, 204, 302, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 428, 431]
const MORE = ['reason', 'current_etag', 'changed', 'agents', 'others']

/** Describes what is wrong with an answer; undefined if nothing is. */
function strangeness({ statusCode, headers, body }: LightMyRequestResponse, method: string): string | undefined {
  if (!STATUSES.includes(statusCode)) return 'the status'
  if (headers['cache-control'] !== 'no-store' || headers['x-request-id'] === undefined) return 'a header that lacks'
  if (Object.values(headers).some(value => /[^\t\x20-\x7e]/.test(String(value)))) return 'a header that is not ASCII'
  if (statusCode === 302) return headers.location === 'docs' ? undefined : 'the location' // a client resolves /persona/.. to /
  if (method === 'HEAD' || statusCode === 304 || statusCode < 300) return undefined
  const { error_code: code, detail, request_id: id, ...rest } = JSON.parse(body)
  if (statusCode !== 422) {
    const more = Object.keys(rest).filter(name => !MORE.includes(name))
    const isError = typeof code === 'string' && typeof detail === 'string' && id === headers['x-request-id']
    return isError && more.length === 0 ? undefined : 'the error'
  }
  if (!Array.isArray(detail) || detail.length === 0 || detail.length > 100 || Object.keys(rest).length > 0)
    return 'the list'
  return detail.every(isFault) ? undefined : 'a fault'
}

function isFault({ loc, msg, type, ...more }: { loc: unknown[]; msg: unknown; type: unknown }): boolean {
  const isPlace = loc.every(part => typeof part === 'string' || Number.isInteger(part))
  const isWhole = typeof msg === 'string' && msg !== '' && /^[a-z_]+$/.test(String(type))
  const isInPart = ['body', 'path', 'query', 'header'].includes(String(loc[0]))
  return isInPart && isPlace && isWhole && Object.keys(more).length === 0
}

const unhandled: unknown[] = []
process.on('unhandledRejection', error => unhandled.push(error))
const errors: string[] = []
const world = await worldApp(t, {}, makeLogger('error', { write: line => errors.push(line) }))
const admin = await world.token('admin@example.com')

t.test(`no 500, the right shape, nothing logged as an error: generated requests, seed ${SEED}`, async t => {
  const people = ['alice@example.com', 'curator@example.com', 'svc_basic@example.com']
  const tokens = [admin, ...(await Promise.all(people.map(email => world.token(email))))]
  const seen = new Map<number, number>()
  const run = async (request: { method: string; url: string; headers: Record<string, string>; payload: Buffer }) => {
    const answer = await world.app.inject({ ...request, method: request.method as 'PATCH' }) // some requests have other methods
    seen.set(answer.statusCode, (seen.get(answer.statusCode) ?? 0) + 1)
    const strange = strangeness(answer, request.method)
    if (strange !== undefined) throw new Error(`${strange}: ${answer.statusCode} ${answer.body.slice(0, 2_000)}`)
  }
  const requests = hostileRequest(tokens.map(token => `Bearer ${token}`))
  await fc.assert(fc.asyncProperty(requests, run), { numRuns: 400, seed: SEED, endOnFailure: true })
  t.strictSame([errors, unhandled], [[], []])
  t.ok((seen.get(200) ?? 0) > 10, `some requests were served: ${JSON.stringify([...seen])}`)
})

t.test('stored and returned exactly, or refused: texts that look like SQL, paths, prototypes, Unicode', async t => {
  const world = await worldApp(t) // earlier requests may have deleted an agent
  const admin = await world.token('admin@example.com')
  const fields = ['description', 'system_prompt', 'task_prompt', 'icon_name', 'llm_model_version_override', 'name']
  for (const text of NASTY_TEXTS) {
    const title = JSON.stringify(text).replaceAll(/[^\x20-\x7e]/g, '?') // some line separators would end the report's line
    const names = text.trim() === '' ? fields.slice(0, -1) : fields
    const body = Object.fromEntries(names.map(name => [name, text]))
    const answer = await world.call('PATCH', `/persona/1?update_mask=${names}`, { token: admin, body })
    if (answer.statusCode === 422) {
      t.match(text, /\0|\p{Surrogate}/u, `${title} was refused`)
      t.equal(answer.json().detail.length, names.length)
    } else {
      const read = (await world.call('GET', '/persona/1', { token: admin })).json()
      for (const name of names) t.equal(read[name], name === 'name' ? text.trim() : text, `${name}: ${title}`)
    }
    const get = { operationId: 'read', summary: 'Read', 'x-note': { [text]: text } }
    const definition = { ...DEFINITION, paths: { '/a': { get } } }
    const put = await world.call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition, name: 'items' } })
    if (put.statusCode === 422) {
      t.match(text, /\0|\p{Surrogate}|__proto__/u, `${title} was refused`)
    } else {
      const read = await world.call('GET', '/tool/10', { token: admin })
      t.equal(JSON.stringify(read.json().definition), JSON.stringify(definition), title)
    }
  }
})
