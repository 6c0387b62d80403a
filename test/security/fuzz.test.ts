import { connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import t from 'tap'
import { makeLogger } from '../../src/http/logging.js'
import { type WorldApp, worldApp } from '../app.js'
import { HANG_MS, requireShape, timed } from './answers.js'
import { brokenHttp, type HostileRequest, hostileRequests, NASTY_TEXTS } from './requests.js'

/*
 * `FUZZ_REQUESTS=20000 node build/test/security/fuzz.test.js` is the campaign in full; `FUZZ_SEED` repeats one.
 */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 500)
const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31)
const HEAP_GROWTH_BYTES_MAX = 32 * 1024 * 1024

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
    if (ms > 10 * HANG_MS) throw new Error(`took ${ms} ms`)
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

/** For a title: plain ASCII, because some line separators end a line of the report. */
function shown(text: string): string {
  return JSON.stringify(text).replaceAll(/[^\x20-\x7e]/g, '?')
}

const DOCUMENT = { openapi: '3.0.0', info: { title: 'T' }, servers: [{ url: 'https://api.example.com' }] }

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
