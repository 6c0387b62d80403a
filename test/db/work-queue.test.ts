import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { QueueExhausted } from '../../src/db/connection/database-error.js'
import type { Waiter } from '../../src/db/connection/waiter.js'
import { WorkQueue, type WorkQueueLimits } from '../../src/db/connection/work-queue.js'
import { RateLimited } from '../../src/errors.js'
import { slowness } from '../slowness.js'

const LIMITS: WorkQueueLimits = {
  name: 'row_locks',
  awaited: 'others',
  runningMax: 3,
  runningPerCallerMax: 3,
  waitingPerCallerMax: 3,
  waitMs: 60_000,
}

/** Work that runs until it is told to end. A name such as `a1` is of the caller `a`. */
function startedIn(queue: WorkQueue) {
  const running = new Map<string, () => void>()
  const pending: Promise<void>[] = []
  return {
    /** The names of what runs. */
    running: async () => {
      await new Promise(setImmediate)
      return [...running.keys()]
    },
    start: (names: string, exclusive?: string) => {
      for (const name of names.split(' ')) {
        const work = () => new Promise<void>(end => running.set(name, end))
        pending.push(queue.run(name.charAt(0), work, exclusive))
      }
    },
    end: (name: string) => {
      running.get(name)?.()
      running.delete(name)
    },
    endAll: async () => {
      await new Promise(setImmediate)
      while (running.size > 0) {
        for (const end of running.values()) end()
        running.clear()
        await new Promise(setImmediate)
      }
      await Promise.all(pending)
    },
  }
}

t.test('who has a place gets another only while one more stays free for others', async t => {
  const works = startedIn(new WorkQueue(LIMITS))
  works.start('a1 a2 a3')
  t.strictSame(await works.running(), ['a1', 'a2'])
  works.start('b1')
  t.strictSame(await works.running(), ['a1', 'a2', 'b1'])
  works.end('b1')
  t.strictSame(await works.running(), ['a1', 'a2'])
  works.end('a1')
  t.strictSame(await works.running(), ['a2', 'a3'])
  await works.endAll()
})

t.test('one place is for whoever comes, and no caller has more than their share', async t => {
  const one = startedIn(new WorkQueue({ ...LIMITS, runningMax: 1 }))
  one.start('a1 a2')
  t.strictSame(await one.running(), ['a1'])
  await one.endAll()
  const many = startedIn(new WorkQueue({ ...LIMITS, runningMax: 9, runningPerCallerMax: 2 }))
  many.start('a1 a2 a3 b1')
  t.strictSame(await many.running(), ['a1', 'a2', 'b1'])
  await many.endAll()
})

t.test('a free place goes to who has the least running, then to who used the least time', async t => {
  const works = startedIn(new WorkQueue({ ...LIMITS, runningMax: 2 }))
  works.start('a1 b1 a2 a3 b2 c1 d1')
  t.strictSame(await works.running(), ['a1', 'b1'])
  works.end('a1')
  t.strictSame(await works.running(), ['b1', 'c1'], 'not a, who used some')
  works.end('b1')
  t.strictSame(await works.running(), ['c1', 'd1'])
  works.end('c1')
  t.strictSame(await works.running(), ['d1', 'a2'], 'not b, who used more')
  works.end('d1')
  t.strictSame(await works.running(), ['a2', 'b2'], 'not a, who has a place')
  await works.endAll()
})

t.test('a hundred that wait of one caller are before no work of callers who used none', async t => {
  const works = startedIn(new WorkQueue({ ...LIMITS, runningMax: 1, waitingPerCallerMax: 100 }))
  works.start(Array.from({ length: 100 }, (_, i) => `a${i}`).join(' '))
  works.start('b0 c0')
  const order: string[] = []
  for (let i = 0; i < 5; i++) {
    const [name = ''] = await works.running()
    order.push(name)
    works.end(name)
  }
  t.strictSame(order, ['a0', 'b0', 'c0', 'a1', 'a2'])
  await works.endAll()
})

t.test('callers who always wait have the same time, however long each work takes', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 1 })
  const usedMs = { a: 0, b: 0 }
  let longestMs = 0
  let isOver = false
  const repeat = async (caller: 'a' | 'b', workMs: number) => {
    while (!isOver) {
      await queue.run(caller, async () => {
        const start = performance.now()
        await sleep(workMs)
        const tookMs = performance.now() - start
        usedMs[caller] += tookMs
        longestMs = Math.max(longestMs, tookMs)
      })
    }
  }
  // Two of each: while one runs, the next waits.
  const all = [repeat('a', 20), repeat('a', 20), repeat('b', 5), repeat('b', 5)]
  await sleep(800)
  while (Math.min(usedMs.a, usedMs.b) <= 100) await sleep(20)
  isOver = true
  await Promise.all(all)
  t.ok(Math.abs(usedMs.a - usedMs.b) <= 2 * longestMs + 20, `${usedMs.a} and ${usedMs.b} ms, at most ${longestMs} each`)
})

t.test('whoever comes back after a while does several short works before those who always wait', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 1 })
  const order: string[] = []
  let isOver = false
  const repeat = async (caller: string) => {
    while (!isOver) {
      await queue.run(caller, async () => {
        order.push(caller)
        await sleep(20)
      })
    }
  }
  const busy = ['a', 'a', 'c', 'c', 'd', 'd'].map(repeat)
  await sleep(200)
  for (let work = 0; work < 3; work++) {
    const begun = order.length
    await queue.run('b', async () => undefined)
    t.ok(order.length - begun <= 1, `${order.length - begun} works of others began meanwhile`)
  }
  isOver = true
  await Promise.all(busy)
})

t.test('who used much while nobody else asked does not wait for it when others come', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 1 })
  for (let work = 0; work < 4; work++) await queue.run('a', () => sleep(400))
  let others = 0
  let isOver = false
  const repeat = async () => {
    while (!isOver) {
      await queue.run('b', async () => {
        await sleep(20)
        others += 1
      })
    }
  }
  const busy = [repeat(), repeat()]
  await queue.run('a', async () => undefined)
  t.ok(others < 25, `after ${others} of others, where its own took as long as 80`)
  isOver = true
  await Promise.all(busy)
})

t.test('what somebody used while nobody waited puts them behind nobody who is new', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 1 })
  for (let work = 0; work < 3; work++) (await queue.enter('a'))(60)
  const leave = await queue.enter('b')
  const order: string[] = []
  const works = Object.entries({ c: 30, d: 30, a: 10, e: 30 }).map(async ([caller, workMs]) => {
    const leave = await queue.enter(caller, undefined, workMs)
    order.push(caller)
    leave(workMs)
  })
  leave(0)
  await Promise.all(works)
  t.strictSame(order, ['a', 'c', 'd', 'e'], 'the shortest first')
})

t.test('one of what excludes each other runs; other work of the same caller passes', async t => {
  const works = startedIn(new WorkQueue({ ...LIMITS, runningMax: 9 }))
  works.start('a1 a2', 'row 1')
  works.start('b1', 'row 1')
  works.start('a3', 'row 2')
  works.start('a4')
  t.strictSame(await works.running(), ['a1', 'a3', 'a4'])
  works.end('a1')
  t.strictSame(await works.running(), ['a3', 'a4', 'b1'], 'b has nothing running')
  works.end('b1')
  t.strictSame(await works.running(), ['a3', 'a4', 'a2'])
  await works.endAll()
})

t.test('work that fails gives its place to the next', async t => {
  const queue = new WorkQueue(LIMITS)
  const failing = queue.run(
    'a',
    async () => {
      throw new Error('it failed')
    },
    'row 1',
  )
  const next = queue.run('a', async () => 'done', 'row 1')
  await t.rejects(failing, { message: 'it failed' })
  t.equal(await next, 'done')
})

t.test(
  'who waits learns when it begins and when it is over, also in vain; who has a place at once hears nothing',
  async t => {
    const queue = new WorkQueue({ ...LIMITS, runningMax: 1, waitMs: 200 })
    const heard: string[] = []
    const waiter = (name: string) => ({
      beginWait: (queue: string) => {
        heard.push(`${name} waits in ${queue}`)
        return () => heard.push(`${name} waited`)
      },
    })
    const leave = await queue.enter('a', undefined, 0, waiter('first'))
    t.strictSame(heard, [])
    const second = queue.run('b', async () => heard.push('second runs'), undefined, waiter('second'))
    t.strictSame(heard, ['second waits in row_locks'])
    leave()
    await second
    const end = await queue.enter('a')
    await t.rejects(
      queue.run('b', async () => undefined, undefined, waiter('third')),
      QueueExhausted,
    )
    end()
    t.strictSame(heard, [
      'second waits in row_locks',
      'second waited',
      'second runs',
      'third waits in row_locks',
      'third waited',
    ])
  },
)

t.test('too many of one caller, and a turn that does not come in time, are refused without being begun', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 1, waitingPerCallerMax: 2, waitMs: 50 })
  const works = startedIn(queue)
  works.start('a1')
  let begun = 0
  const late = ['a', 'a', 'a', 'b'].map(caller => queue.run(caller, async () => begun++))
  const outcomes = await Promise.allSettled(late)
  const reasons = outcomes.map(outcome => outcome.status === 'rejected' && outcome.reason.constructor)
  t.strictSame(reasons, [QueueExhausted, QueueExhausted, RateLimited, QueueExhausted])
  t.equal(begun, 0)
  await works.endAll()
  t.equal(await queue.run('a', async () => 'done'), 'done')
})

t.test('a wait in vain says how long it takes until each who waits has had a place', async t => {
  const queue = new WorkQueue({ ...LIMITS, runningMax: 2, runningPerCallerMax: 1, waitMs: 4_000 })
  let isOver = false
  const always = async (caller: string) => {
    while (!isOver) {
      const leave = await queue.enter(caller)
      await sleep(1_000)
      leave()
    }
  }
  // Two in a second: the last of twelve would wait for five.
  const refused = await Promise.all([...'abcdefghijkl'].map(always)).catch(error => error)
  isOver = true
  t.ok(refused instanceof QueueExhausted)
  t.ok(refused.retryAfterS >= 2 && refused.retryAfterS <= 4, `${refused.retryAfterS} s`)
})

t.test('the waits of one request in several queues take no longer together than one may', async t => {
  const partMs = 200 * slowness()
  const limits = { ...LIMITS, runningMax: 1, waitMs: 2 * partMs, waited: new WeakMap<Waiter, number>() }
  const first = new WorkQueue(limits)
  const second = new WorkQueue(limits)
  const [leaveFirst] = await Promise.all([first.enter('a'), second.enter('a')])
  const request = { beginWait: () => () => undefined }
  const start = performance.now()
  setTimeout(leaveFirst, partMs)
  const leave = await first.enter('b', undefined, 0, request)
  await t.rejects(second.enter('b', undefined, 0, request), QueueExhausted)
  const tookMs = performance.now() - start
  const control = performance.now()
  await t.rejects(second.enter('c'), QueueExhausted)
  t.ok(tookMs < partMs + (performance.now() - control), `${tookMs} ms`)
  leave()
  await first.run('b', async () => undefined, undefined, request) // what need not wait does not fail
})

t.test('where that is due work begins beside other work only once that has gone on for a while', async t => {
  let isDue = true
  const stagger = { ms: 60_000, isDue: () => isDue }
  const works = startedIn(new WorkQueue({ ...LIMITS, stagger }))
  works.start('a1 b1 c1')
  t.strictSame(await works.running(), ['a1'])
  works.end('a1')
  t.strictSame(await works.running(), ['b1'], 'one behind the other')
  isDue = false
  works.start('d1')
  t.strictSame(await works.running(), ['b1', 'c1', 'd1'])
  await works.endAll()
})

t.test('what goes on for longer keeps nothing waiting', async t => {
  const ms = 50
  const works = startedIn(new WorkQueue({ ...LIMITS, stagger: { ms, isDue: () => true } }))
  const start = performance.now()
  works.start('a1 b1')
  while ((await works.running()).length < 2) await sleep(1)
  const afterMs = performance.now() - start
  t.ok(afterMs >= ms - 1, `b1 began after ${afterMs} ms`)
  t.strictSame(await works.running(), ['a1', 'b1'])
  await works.endAll()
})
