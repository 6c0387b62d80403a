import { connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { makeLogger } from '../../src/http/logging.js'
import { type WorldApp, worldApp } from '../app.js'
import { brokenHttp, type HostileRequest, hostileRequests, NASTY_TEXTS } from './requests.js'

/*
 * `FUZZ_REQUESTS=20000 node build/test/security/fuzz.test.js` is the campaign in full; `FUZZ_SEED` repeats one.
 */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 2_000)
const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31)
const HANG_MS = 1_000
const HEAP_GROWTH_BYTES_MAX = 32 * 1024 * 1024

const STATUSES = [200, 400, 401, 403, 404, 405, 412, 413, 415, 422, 428]
const ERROR_MEMBERS = ['error_code', 'detail', 'request_id', 'current_etag', 'changed']

const unhandled: unknown[] = []
process.on('unhandledRejection', error => unhandled.push(error))

t.test(`no 500, no hang, the right shape: ${REQUESTS} generated requests, seed ${SEED}`, async t => {
  const errors: string[] = []
  const world = await worldApp(t, {}, makeLogger('error', { write: line => errors.push(line) }))
  const arbitrary = hostileRequests(await authorizations(world))
  const seen = new Map<number, number>()
  const heap: number[] = []
  let sent = 0
  const run = async (request: HostileRequest) => {
    const { answer, ms } = await timed(world, request)
    seen.set(answer.statusCode, (seen.get(answer.statusCode) ?? 0) + 1)
    if (ms > HANG_MS) throw new Error(`took ${ms} ms`)
    requireShape(answer, request.method)
    sent += 1
    if (sent % Math.ceil(REQUESTS / 4) === 0) heap.push(heapAfterCollection())
  }
  await fc.assert(fc.asyncProperty(arbitrary, run), { numRuns: REQUESTS, seed: SEED, endOnFailure: false })
  t.strictSame(errors, [], 'nothing was logged as an error')
  t.strictSame(unhandled, [])
  t.ok((seen.get(200) ?? 0) > REQUESTS / 100, `some requests were served: ${JSON.stringify([...seen])}`)
  const growth = (heap.at(-1) ?? 0) - (heap[0] ?? 0)
  t.ok(growth < HEAP_GROWTH_BYTES_MAX, `the heap grew by ${growth} bytes between the first quarter and the end`)
  t.comment(`${sent} requests, statuses ${JSON.stringify(Object.fromEntries(seen))}, heap growth ${growth} bytes`)
})

t.test('400 or a closed connection: bytes that only look like HTTP, over a socket', async t => {
  const errors: string[] = []
  const { app } = await worldApp(t, {}, makeLogger('error', { write: line => errors.push(line) }))
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as { port: number } // it listens on TCP
  const run = async (bytes: Buffer) => {
    const answers = await exchange(port, bytes)
    const statuses = [...answers.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => Number(status))
    if (statuses.some(status => status >= 500)) throw new Error(answers)
    if (statuses.length > 0 && !/^cache-control: no-store\r$/im.test(answers)) throw new Error(answers)
  }
  await fc.assert(fc.asyncProperty(brokenHttp, run), { numRuns: Math.ceil(REQUESTS / 20), seed: SEED })
  t.equal((await app.inject('/healthz')).statusCode, 200, 'the service goes on')
  t.strictSame(errors, [])
  t.strictSame(unhandled, [])
})

t.test('stored and returned exactly, or refused: texts that look like SQL, paths, prototypes, Unicode', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const fields = ['name', 'description', 'system_prompt', 'task_prompt', 'icon_name', 'llm_model_version_override']
  for (const text of NASTY_TEXTS) {
    for (const field of fields) {
      const query = `?update_mask=${field}`
      const answer = await call('PATCH', `/persona/1${query}`, { token: admin, body: { [field]: text } })
      if (answer.statusCode === 422) {
        t.match(text, /\0|^\s*$|\p{Surrogate}/u, `${field}: ${shown(text)} was refused`)
        continue
      }
      const read = await call('PATCH', `/persona/1?update_mask=&dry_run=true`, { token: admin, body: {} })
      t.equal(read.json()[field], field === 'name' ? text.trim() : text, `${field}: ${shown(text)}`)
    }
  }
})

t.test('stored and returned exactly, or refused: the same texts as keys and values of a definition', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  for (const text of NASTY_TEXTS) {
    const get = { operationId: 'read', summary: 'Read', 'x-note': { [text]: text } }
    const definition = { ...DOCUMENT, paths: { '/a': { get } } }
    const answer = await call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition, name: 'items' } })
    if (answer.statusCode === 422) {
      t.match(text, /\0|\p{Surrogate}|__proto__/u, `${shown(text)} was refused`)
      continue
    }
    const read = await call('PUT', '/admin/tool/custom/10?dry_run=true', { token: admin, body: {} })
    t.equal(JSON.stringify(read.json().definition), JSON.stringify(definition), shown(text))
  }
})

t.test('answered within a second of processor time: bodies as large as they may be', async t => {
  const world = await worldApp(t)
  const admin = await world.token('admin@example.com')
  const limit = 4 * 1024 * 1024
  const bodies: Record<string, string> = {
    'opening brackets': '['.repeat(limit),
    'opening braces': '{"a":'.repeat(limit / 5),
    'closed brackets': `${'['.repeat(limit / 2)}${']'.repeat(limit / 2)}`,
    'empty lists': `[${'[],'.repeat(limit / 3 - 2)}[]]`,
    'unknown fields': `{${numbered(limit / 12, index => `"k${index}":1`)}}`,
    'fields that are array indexes': `{${numbered(limit / 12, index => `"${index}":1`)}}`,
    'a forbidden key behind many values': `{"a":[${'1,'.repeat(limit / 2 - 50)}1],"\\u005f_proto__":1}`,
    'a word that is nearly forbidden': `{"a":[${'"__proto__",'.repeat(limit / 12 - 5)}1]}`,
    'wrong ids': `{"tool_ids":[${'"x",'.repeat(limit / 4 - 10)}1]}`,
    'wrong starter messages': `{"starter_messages":[${'{},'.repeat(limit / 3 - 20)}1]}`,
    'one long text': `{"name":"${'x'.repeat(limit - 20)}"}`,
    'one long text of surrogates': `{"name":"${'\\ud800'.repeat(limit / 6 - 10)}"}`,
    'one long number': `{"num_chunks":${'9'.repeat(limit - 20)}}`,
    'one long fraction': `{"num_chunks":0.${'9'.repeat(limit - 20)}}`,
    blanks: ' '.repeat(limit - 20),
    quotes: '"'.repeat(limit),
    backslashes: `"${'\\'.repeat(limit - 2)}"`,
    'duplicate keys': `{${'"name":"a",'.repeat(limit / 11 - 5)}"name":"b"}`,
  }
  for (const [name, body] of Object.entries(bodies)) {
    for (const [method, url] of [
      ['PATCH', '/persona/1'],
      ['PUT', '/admin/tool/custom/10'],
    ] as const) {
      const prefer = name.includes('fields') ? 'handling=strict' : ''
      const headers = { authorization: `Bearer ${admin}`, 'content-type': 'application/json', prefer }
      const { answer, cpuMs } = await timed(world, { method, url, headers, payload: Buffer.from(body) })
      requireShape(answer, method)
      t.ok(cpuMs < HANG_MS, `${name}, ${method}: ${answer.statusCode} after ${Math.round(cpuMs)} ms of processor time`)
    }
  }
})

/** For a title: plain ASCII, because some line separators end a line of the report. */
function shown(text: string): string {
  return JSON.stringify(text).replaceAll(/[^\x20-\x7e]/g, '?')
}

const DOCUMENT = { openapi: '3.0.0', info: { title: 'T' }, servers: [{ url: 'https://api.example.com' }] }

function numbered(count: number, make: (index: number) => string): string {
  return Array.from({ length: Math.floor(count) }, (_, index) => make(index)).join(',')
}

async function authorizations({ token }: WorldApp): Promise<(string | undefined)[]> {
  const bearer = async (email: string) => `Bearer ${await token(email)}`
  return [
    await bearer('admin@example.com'),
    await bearer('alice@example.com'),
    await bearer('curator@example.com'),
    await bearer('svc_basic@example.com'),
    `Bearer pat_${'0'.repeat(28)}`,
    'Basic YTpi',
    undefined,
  ]
}

/**
 * Sends a request; one that seems to hang is sent once more, because the machine may have been busy with something else.
 * Processor time is that of the whole process, the collector's threads included.
 */
async function timed({ app }: WorldApp, request: HostileRequest, attempts = 2) {
  for (let attempt = 1; ; attempt++) {
    const start = performance.now()
    const before = process.cpuUsage()
    const answer = await app.inject({
      method: request.method as 'GET', // tests ask with unusual ones too
      url: request.url,
      headers: request.headers,
      ...(request.payload !== undefined && { payload: request.payload }),
    })
    const { user, system } = process.cpuUsage(before)
    const [ms, cpuMs] = [performance.now() - start, (user + system) / 1000]
    if (ms < HANG_MS || attempt === attempts) return { answer, ms, cpuMs }
  }
}

type Refuse = (why: string) => never

/** Throws unless the answer is one that DECISIONS section 2 knows. */
function requireShape(answer: LightMyRequestResponse, method: string): void {
  const { statusCode, headers, body } = answer
  const refuse: Refuse = why => {
    throw new Error(`${why}: ${statusCode} ${JSON.stringify(headers)} ${body.slice(0, 2_000)}`)
  }
  if (!STATUSES.includes(statusCode)) refuse('this status is not expected')
  if (headers['cache-control'] !== 'no-store') refuse('Cache-Control is not no-store')
  if (headers['x-request-id'] === undefined) refuse('there is no request id')
  for (const [name, value] of Object.entries(headers)) {
    if (/[^\t\x20-\x7e]/.test(String(value))) refuse(`the header ${name} is not plain ASCII`)
  }
  if (method === 'HEAD') return
  const content: unknown = JSON.parse(body)
  if (typeof content !== 'object' || content === null) refuse('the body is no object')
  if (statusCode === 200) return
  if (statusCode === 422) {
    requireFaults(content, refuse)
    return
  }
  const { error_code: code, detail, request_id: id } = content as Record<string, unknown>
  if (typeof code !== 'string' || typeof detail !== 'string') refuse('this is no error')
  if (id !== headers['x-request-id']) refuse('the two request ids differ')
  if (Object.keys(content).some(member => !ERROR_MEMBERS.includes(member))) refuse('an unknown member')
}

function requireFaults(content: object, refuse: Refuse): void {
  const { detail, ...others } = content as { detail?: unknown }
  if (Object.keys(others).length > 0 || !Array.isArray(detail)) refuse('this is no list of faults')
  if (detail.length === 0 || detail.length > 100) refuse(`${detail.length} faults`)
  for (const { loc, msg, type, ...rest } of detail) {
    const placed = Array.isArray(loc) && ['body', 'path', 'query', 'header'].includes(loc[0])
    const known = placed && loc.every((part: unknown) => typeof part === 'string' || Number.isInteger(part))
    if (!known || typeof msg !== 'string' || msg === '' || !/^[a-z_]+$/.test(type)) refuse('this is no fault')
    if (Object.keys(rest).length > 0) refuse('a fault with another member')
  }
}

/** Sends bytes and collects what comes back until the other side closes, or falls silent. */
function exchange(port: number, bytes: Buffer): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    let text = ''
    const silence = setTimeout(() => socket.destroy(), 250)
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      silence.refresh()
      socket.end()
    })
    socket.on('error', () => {}) // a cut connection is a fine answer
    socket.on('close', () => {
      clearTimeout(silence)
      resolve(text)
    })
    socket.write(bytes)
  })
}

const collect: () => void = (() => {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc')
})()

function heapAfterCollection(): number {
  collect()
  return process.memoryUsage().heapUsed
}
