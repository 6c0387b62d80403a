import dns from 'node:dns'
import fs from 'node:fs'
import { Socket } from 'node:net'
import t from 'tap'
import { checkDefinition } from '../../src/tool/definition/index.js'
import { requireWithin } from '../slowness.js'
import { hostileDocuments } from './hostile.js'

const MOST_MS = 1000
const MOST_HEAP_BYTES = 200 * 1024 * 1024
const MOST_WARNING_BYTES = 1024 * 1024
const MOST_ANSWER_BYTES = 64 * 1024
/** Counts what a check must not do. A synchronous check sees exactly its own calls. */
function countOutsideCalls(run: () => void): number {
  let calls = 0
  const watched: [object, string[]][] = [
    [fs, ['openSync', 'open', 'readFileSync', 'readFile', 'createReadStream', 'statSync', 'existsSync']],
    [fs.promises, ['open', 'readFile']],
    [dns, ['lookup', 'resolve', 'resolve4']],
    [Socket.prototype, ['connect']],
    [globalThis, ['fetch']],
  ]
  const restore: (() => void)[] = []
  for (const [owner, names] of watched) {
    for (const name of names) {
      const original = Reflect.get(owner, name)
      Reflect.set(owner, name, (...args: unknown[]) => {
        calls++
        return Reflect.apply(original, owner, args)
      })
      restore.push(() => Reflect.set(owner, name, original))
    }
  }
  try {
    run()
  } finally {
    for (const each of restore) each()
  }
  return calls
}

// A busy machine may need minutes for what takes five seconds alone.
t.setTimeout(900_000)

t.test('the hooks see what they are meant to see', async t => {
  t.equal(
    countOutsideCalls(() => fs.existsSync('/')),
    1,
  )
})

t.test(
  'hostile documents: answered in time, small, without a look outside, without holding others up',
  { timeout: 900_000 },
  async t => {
    t.ok(hostileDocuments.length >= 60, `${hostileDocuments.length} documents`)
    for (const { name, make, type } of hostileDocuments) {
      const definition = make()
      const heapBefore = process.memoryUsage().heapUsed
      let check = checkDefinition(null)
      requireWithin(t, name, MOST_MS, () => {
        const calls = countOutsideCalls(() => {
          check = checkDefinition(definition)
        })
        t.equal(calls, 0, `${name}: no socket and no file`)
      })
      t.ok(process.memoryUsage().heapUsed - heapBefore < MOST_HEAP_BYTES, `${name}: memory`)
      if (check.ok) {
        t.equal(type, null, `${name}: accepted`)
      } else {
        t.ok(
          check.faults.some(fault => fault.type === type),
          `${name}: ${check.faults[0]?.type}`,
        )
        const bytes = Buffer.byteLength(JSON.stringify({ detail: check.faults }))
        t.ok(bytes < MOST_ANSWER_BYTES, `${name}: answer of ${bytes} bytes`)
      }
      const warnings = Buffer.byteLength(JSON.stringify(check.warnings))
      t.ok(warnings < MOST_WARNING_BYTES, `${name}: warnings of ${warnings} bytes`)
    }
    t.equal(Reflect.get({}, 'polluted'), undefined, 'no prototype was changed')
  },
)
