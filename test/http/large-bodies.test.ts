import { once } from 'node:events'
import { Agent, type IncomingMessage, request as send } from 'node:http'
import t from 'tap'
import type { Caller } from '../../src/auth/caller.js'
import { ClientGone, Unavailable } from '../../src/errors.js'
import { UnparsedBody } from '../../src/http/validation.js'
import { BodyWorkers, type BodyWorkersOptions } from '../../src/tool/worker/pool.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { running } from './running.js'

/** Larger than any body that the main thread parses. */
const LARGE_BYTES = 100_000
const PUT = '/admin/tool/custom/10'
const VALIDATE = '/admin/tool/custom/validate'
const SWAGGER = { swagger: '2.0', info: { title: 'Old', version: '1' }, host: 'h.example.com', paths: DEFINITION.paths }

t.test('a large body is answered as the same body without its spaces is', async t => {
  const { call, admin } = await worldApp(t)
  const both = async (method: string, url: string, text: string, headers: Record<string, string> = {}) => {
    const small = await call(method, url, { token: admin, body: text, headers })
    const large = await call(method, url, { token: admin, body: ' '.repeat(LARGE_BYTES) + text, headers })
    return [small, large].map(({ statusCode, headers, json }) => {
      const { etag, warning, 'preference-applied': applied } = headers
      return { status: statusCode, headers: { etag, warning, applied }, body: { ...json(), request_id: '' } }
    })
  }
  const cases: [number, string, string, string | object, Record<string, string>?][] = [
    [200, 'PUT', `${PUT}?dry_run=true`, { definition: DEFINITION, name: 'renamed', x: 1 }],
    [200, 'PUT', PUT, { definition: { ...DEFINITION, 'x-note': '\u00e9 2' } }],
    [200, 'POST', VALIDATE, { definition: DEFINITION, unknown: [1] }],
    [200, 'POST', `${VALIDATE}?report=full`, { definition: DEFINITION }],
    [200, 'POST', `${VALIDATE}?tool_id=10`, { definition: DEFINITION }],
    [200, 'POST', `${VALIDATE}?complete=true`, { definition: SWAGGER }],
    [422, 'PUT', PUT, { definition: { ...DEFINITION, servers: [] }, custom_headers: [{ key: 'Host' }] }],
    [422, 'PUT', PUT, { name: 5, definition: [] }],
    [422, 'PUT', PUT, { unknown: 5 }, { prefer: 'handling=strict' }],
    [422, 'PUT', PUT, '{"definition":{"__proto__":{}}}'],
    [422, 'POST', VALIDATE, { definition: { ...DEFINITION, paths: {} } }],
    [422, 'POST', VALIDATE, 'null'],
    [404, 'PUT', '/admin/tool/custom/424242', { definition: DEFINITION }],
  ]
  for (const [status, method, url, body, headers] of cases) {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const [small, large] = await both(method, url, text, headers)
    t.equal(small?.status, status, `${method} ${url} ${text.slice(0, 40)}`)
    t.strictSame(large, small)
  }
  // The position of a syntax error counts the leading spaces.
  const [small, large] = await both('PUT', PUT, '{"name":')
  t.strictSame(small?.body.detail[0].loc, ['body', 8])
  t.strictSame(large?.body.detail[0].loc, ['body', LARGE_BYTES + 8])
})

const input = { strict: false, query: {}, use: null }
const callerOf = (id: number) => ({ token: { id } }) as unknown as Caller // workers distinguish callers by token id
const small = JSON.stringify({ definition: DEFINITION })

function request(id: number, text: string, socket = { destroyed: false }) {
  return { body: new UnparsedBody(Buffer.from(text)), caller: callerOf(id), raw: { socket } }
}

function workersOf(t: { teardown(fn: () => Promise<void>): unknown }, options: Partial<BodyWorkersOptions> = {}) {
  const defaults = { bodyLimitBytes: 5_000_000, deadlineMs: 600_000 }
  const workers = new BodyWorkers({ ...defaults, ...options })
  t.teardown(() => workers.close())
  return { workers, validate: (id: number, text: string) => workers.run('validate_tool', request(id, text), input) }
}

t.test('503 for a body that takes too long to check', async t => {
  const { validate } = workersOf(t, { deadlineMs: 1 }) // starting a worker takes longer
  const refused = await validate(1, small).catch(error => error)
  t.ok(refused instanceof Unavailable)
  t.match(refused, { reason: 'overloaded', outcome: 'not_applied', message: /took more than 0.001 s/ })
})

t.test('422 for a definition that takes too much memory; the next one and a concurrent one are served', async t => {
  const { validate } = workersOf(t, { bodyLimitBytes: 1 }) // limits a worker to 64 MiB
  const huge = `{"definition":{"x":[${Array.from({ length: 240_000 }, (_, i) => `{"k${i}":{}}`)}]}}`
  const failing = validate(1, huge).catch(error => error)
  const beside = validate(2, small)
  const msg = 'Processing this definition takes more than 64 MiB of memory: use a definition with fewer values'
  t.match(await failing, { faults: [{ loc: ['body', 'definition'], type: 'definition_too_large', msg }] })
  for (const { answer } of [await beside, await validate(1, small)])
    t.match(JSON.parse(Buffer.from(answer).toString()), { methods: [{}] })
})

t.test('a check whose client has left is not run', async t => {
  const { workers } = workersOf(t)
  const gone = request(1, small, { destroyed: true })
  t.ok((await workers.run('validate_tool', gone, input).catch(error => error)) instanceof ClientGone)
})

/** Starts a request without sending its body. `answered` waits for the end of the answer and returns the status. */
function begun(port: number, method: string, path: string, token: string, agent?: Agent) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const sent = send({ port, host: '127.0.0.1', method, path, headers, agent })
  const answered = async () => {
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    await once(answer.resume(), 'end')
    return answer.statusCode
  }
  return { sent, answered }
}

t.test('413 begins with the first byte or piece beyond the limit, announced or in chunks', async t => {
  const service = await running(t, {}, { listen: true })
  const status = async (path: string, method: string, bytes: number, isChunked: boolean) => {
    const { sent, answered } = begun(service.port, method, path, service.token)
    if (!isChunked) sent.setHeader('content-length', bytes)
    const body = '{}'.padEnd(bytes)
    sent.write(body.slice(0, 1_000))
    sent.end(body.slice(1_000))
    return await answered()
  }
  for (const isChunked of [false, true]) {
    for (const [path, method, bytes] of [
      [`${PUT}?dry_run=true`, 'PUT', 5 * 2 ** 20],
      ['/persona/1?update_mask=', 'PATCH', 4 * 2 ** 20],
    ] as const) {
      t.equal(await status(path, method, bytes, isChunked), 200, `${path} ${bytes}`)
      t.equal(await status(path, method, bytes + 1, isChunked), 413, `${path} ${bytes + 1}`)
    }
  }
  for (const pieces of [10_000, 10_001]) {
    const { sent, answered } = begun(service.port, 'PATCH', '/persona/1?update_mask=', service.token)
    for (let i = 0; i < pieces; i++) sent.write(i === 0 ? '{}' : ' ')
    sent.end()
    t.equal(await answered(), pieces === 10_000 ? 200 : 413, `${pieces} pieces`)
  }
})

t.test('a client that sends a large body first hears why it is refused', async t => {
  const { port } = await running(t, {}, { listen: true })
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  for (let round = 0; round < 2; round++) {
    const { sent, answered } = begun(port, 'POST', VALIDATE, 'pat_nope', agent)
    sent.end(Buffer.alloc(6_000_000, ' '))
    t.equal(await answered(), 401)
  }
})
