import t from 'tap'
import { QueueExhausted } from '../../src/db/connection/database-error.js'
import { WorkQueue, type WorkQueueLimits } from '../../src/db/connection/work-queue.js'

const LIMITS: WorkQueueLimits = { runningMax: 3, runningPerKeyMax: 1, waitingPerKeyMax: 2, waitMs: 60_000 }

/** Work that runs until it is told to end. */
function started(queue: WorkQueue, key: string) {
  let end = () => {}
  const held = new Promise<void>(resolve => {
    end = resolve
  })
  const work = { isRunning: false, end, done: Promise.resolve() }
  work.done = queue.run(key, async () => {
    work.isRunning = true
    await held
    work.isRunning = false
  })
  return work
}

const running = (works: { isRunning: boolean }[]) => works.map(({ isRunning }) => isRunning)
const settled = () => new Promise(setImmediate)

t.test('one of each key runs, the others in their order; other keys pass by', async t => {
  const queue = new WorkQueue(LIMITS)
  const works = ['a', 'a', 'a', 'b'].map(key => started(queue, key))
  await settled()
  t.strictSame(running(works), [true, false, false, true])
  works[0]?.end()
  await settled()
  t.strictSame(running(works), [false, true, false, true])
  for (const { end } of works) end()
  await Promise.all(works.map(({ done }) => done))
})

t.test('no more than the share of all keys together', async t => {
  const queue = new WorkQueue(LIMITS)
  const works = ['a', 'b', 'c', 'd', 'a'].map(key => started(queue, key))
  await settled()
  t.strictSame(running(works), [true, true, true, false, false])
  works[1]?.end()
  await settled()
  t.strictSame(running(works), [true, false, true, true, false])
  for (const { end } of works) end()
  await Promise.all(works.map(({ done }) => done))
})

t.test('work that fails gives its turn to the next', async t => {
  const queue = new WorkQueue(LIMITS)
  const failing = queue.run('a', async () => {
    throw new Error('it failed')
  })
  const next = queue.run('a', async () => 'done')
  await t.rejects(failing, { message: 'it failed' })
  t.equal(await next, 'done')
})

t.test('too many of one key, and a turn that does not come in time, are refused without being begun', async t => {
  const queue = new WorkQueue({ ...LIMITS, waitMs: 50 })
  const first = started(queue, 'a')
  let begun = 0
  const late = [1, 2, 3].map(() => queue.run('a', async () => begun++))
  const outcomes = await Promise.allSettled(late)
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason instanceof QueueExhausted))
  t.equal(begun, 0)
  first.end()
  await first.done
  t.equal(await queue.run('a', async () => 'done'), 'done')
})
