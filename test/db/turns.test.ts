import t from 'tap'
import { TurnNotReached } from '../../src/db/connection/database-error.js'
import { type TurnLimits, Turns } from '../../src/db/connection/turns.js'

const LIMITS: TurnLimits = { runningMax: 3, runningPerKeyMax: 1, waitingPerKeyMax: 2, waitMs: 60_000 }

/** Work that runs until it is told to end. */
function started(turns: Turns, key: string) {
  let end = () => {}
  const held = new Promise<void>(resolve => {
    end = resolve
  })
  const work = { isRunning: false, end, done: Promise.resolve() }
  work.done = turns.run(key, async () => {
    work.isRunning = true
    await held
    work.isRunning = false
  })
  return work
}

const running = (works: { isRunning: boolean }[]) => works.map(({ isRunning }) => isRunning)
const settled = () => new Promise(setImmediate)

t.test('one of each key runs, the others in their order; other keys pass by', async t => {
  const turns = new Turns(LIMITS)
  const works = ['a', 'a', 'a', 'b'].map(key => started(turns, key))
  await settled()
  t.strictSame(running(works), [true, false, false, true])
  works[0]?.end()
  await settled()
  t.strictSame(running(works), [false, true, false, true])
  for (const { end } of works) end()
  await Promise.all(works.map(({ done }) => done))
})

t.test('no more than the share of all keys together', async t => {
  const turns = new Turns(LIMITS)
  const works = ['a', 'b', 'c', 'd', 'a'].map(key => started(turns, key))
  await settled()
  t.strictSame(running(works), [true, true, true, false, false])
  works[1]?.end()
  await settled()
  t.strictSame(running(works), [true, false, true, true, false])
  for (const { end } of works) end()
  await Promise.all(works.map(({ done }) => done))
})

t.test('work that fails gives its turn to the next', async t => {
  const turns = new Turns(LIMITS)
  const failing = turns.run('a', async () => {
    throw new Error('it failed')
  })
  const next = turns.run('a', async () => 'done')
  await t.rejects(failing, { message: 'it failed' })
  t.equal(await next, 'done')
})

t.test('too many of one key, and a turn that does not come in time, are refused without being begun', async t => {
  const turns = new Turns({ ...LIMITS, waitMs: 50 })
  const first = started(turns, 'a')
  let begun = 0
  const late = [1, 2, 3].map(() => turns.run('a', async () => begun++))
  const outcomes = await Promise.allSettled(late)
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason instanceof TurnNotReached))
  t.equal(begun, 0)
  first.end()
  await first.done
  t.equal(await turns.run('a', async () => 'done'), 'done')
})
