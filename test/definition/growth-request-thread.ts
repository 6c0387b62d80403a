import { setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { Callers } from '../fairness/callers.js'
import { freePort } from '../faults/cluster.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { families, textOf } from './growth.js'
import { sharedFamilies } from './growth-shared.js'
import { partOf } from './proportion.js'

/*
 * How long a definition of each kind holds the thread that serves requests, in the real process: what is small is checked there, of
 * what is large it reads the bytes and writes the answer. Other work on the machine holds it as well, so that this is a suite of the
 * campaign alone (`npm run test:campaign -- growth`).
 */

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
const SIZES_BYTES = IS_FULL ? [7_500, 60_000, 4_900_000] : [7_500, 700_000]
/** By itself it takes each so many-th kind, for a first look. */
const EACH = IS_FULL ? 1 : 14
const MOST_HELD_MS = 20
/** Other work on the machine, and what V8 does now and then, only add. */
const ROUNDS = 6
/** Results that are shown, of those that held it longest. */
const NEAREST = 12

const VALIDATE = '/admin/tool/custom/validate'
const REQUESTS = [
  ['POST', VALIDATE],
  ['POST', `${VALIDATE}?complete=true&server=https://given.example.com&drop=unsupported&report=full&target=openai`],
  ['PUT', '/admin/tool/custom/10'],
] as const
/** `TEST_VIEW` picks those of which `POST /path 7500` matches, to look closer at one. */
const ASKED = new RegExp(process.env.TEST_VIEW ?? '')

t.setTimeout(IS_FULL ? 3_600_000 : 240_000)

const { url, token } = await worldDatabase(t)
const turnsPort = await freePort()
const service = await ServiceProcess.start({
  DATABASE_URL: url,
  SECRET_KEYS: TEST_SECRET_KEYS,
  NODE_OPTIONS: `--import=${fileURLToPath(new URL('./turn-recorder.js', import.meta.url))}`,
  TURNS_PORT: String(turnsPort),
})
t.teardown(() => service.stop('SIGKILL'))
// It has the processor before other work on the machine, so that what it waits for is its own. Root alone may.
if (process.platform === 'linux' && process.getuid?.() === 0) setPriority(service.pid, -5)
const callers = new Callers(service.port)
t.teardown(() => callers.close())
const admin = await token('admin@example.com')

interface Held {
  ms: number
  text: string
}

const results: Held[] = []

/** For how long the thread was held at most since this was last asked. */
async function longestTurn(): Promise<number> {
  return Number(await (await fetch(`http://127.0.0.1:${turnsPort}`)).text())
}

/** Holds where the thread is held no longer than it may be, or no longer than by as many bytes of which nothing is asked. */
async function judge(t: Test, name: string, [method, path]: (typeof REQUESTS)[number], definition: string) {
  const body = Buffer.from(`{"definition":${definition}}`)
  const control = Buffer.from(`{"definition":${plain(body.length)}}`)
  let held = Infinity
  let heldByControl = 0
  let status = 0
  for (let round = 0; round < ROUNDS && held > Math.max(MOST_HELD_MS, heldByControl); round++) {
    await longestTurn()
    ;({ status } = await callers.send(method, path, admin, body))
    held = Math.min(held, await longestTurn())
    if (held <= MOST_HELD_MS) break
    await callers.send(method, path, admin, control)
    const byControl = await longestTurn()
    heldByControl = round === 0 ? byControl : Math.min(heldByControl, byControl)
  }
  const beside = held > MOST_HELD_MS ? `, control ${heldByControl.toFixed(1)} ms` : ''
  const text = `${method} ${path.slice(0, VALIDATE.length + 9)} of ${name}, ${body.length} bytes: ${held.toFixed(1)} ms${beside}, answered ${status}`
  results.push({ ms: held, text })
  t.ok([200, 422].includes(status) && held <= Math.max(MOST_HELD_MS, heldByControl), text)
}

const plain = (bytes: number) =>
  textOf({ name: '', bytes: 1, make: n => ({ openapi: '3.1.0', 'x-a': 'a'.repeat(n) }) }, bytes)

const kinds = partOf([...families, ...sharedFamilies]).filter((_, i) => i % EACH === 0)

t.test('growth: the thread that serves requests is held by no definition', async t => {
  // What the first requests load and compile is nobody's definition.
  for (const [method, path] of REQUESTS) {
    for (const { make } of families.slice(0, 5))
      await callers.send(method, path, admin, `{"definition":${JSON.stringify(make(10))}}`)
    for (const bytes of SIZES_BYTES) await callers.send(method, path, admin, `{"definition":${plain(bytes)}}`)
  }
  for (const bytes of SIZES_BYTES) {
    const requests = REQUESTS.filter(([method, path]) => ASKED.test(`${method} ${path} ${bytes}`))
    for (const request of requests) await judge(t, 'one long text', request, plain(bytes))
    for (const family of requests.length > 0 ? kinds : []) {
      const definition = textOf(family, bytes)
      for (const request of requests) await judge(t, family.name, request, definition)
    }
  }
})

t.teardown(() => {
  for (const { text } of results.sort((a, b) => b.ms - a.ms).slice(0, NEAREST)) t.comment(text)
})
