import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { placeOfAddress, ThreadTurns } from '../../src/db/connection/thread-turns.js'
import type { Waiter } from '../../src/db/connection/waiter.js'
import { eventually, RawConnection, running, tokenOf } from './running.js'

function busy(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** Turns of which those with places below 10 have used so much, and that must be shared, for another came who had used none. */
async function sharedTurns(): Promise<ThreadTurns> {
  const turns = new ThreadTurns()
  turns.placesAtWork = 2
  for (const ms of [30, 0]) {
    for (let place = 0; place < 10; place++) await taken(turns, place, ms)
  }
  await taken(turns, 10, 0)
  return turns
}

/** Takes steps with names, of 2 ms each, and tells in which order they came. */
function named(turns: ThreadTurns) {
  const order: string[] = []
  const take = (place: number, name: string, waiter?: Waiter) =>
    turns.take(
      place,
      () => {
        order.push(name)
        busy(2)
      },
      waiter,
    )
  return { order, take }
}

/** Takes a step of so many ms, and waits until it is over, with what follows from it. */
async function taken(turns: ThreadTurns, place: number, ms: number): Promise<void> {
  let isTaken = false
  turns.take(place, () => {
    busy(ms)
    isTaken = true
  })
  await eventually(() => isTaken)
  await new Promise(setImmediate)
}

t.test('where there is time a step is taken at once, also of a token that took many', async t => {
  const turns = new ThreadTurns()
  let taken = 0
  for (let n = 0; n < 20; n++) {
    turns.take(1, () => taken++)
    t.equal(taken, n + 1)
    await new Promise(setImmediate)
  }
})

t.test('of a burst the steps wait, in their order; the first of another token comes before them', async t => {
  const turns = await sharedTurns()
  const { order, take } = named(turns)
  for (let n = 0; n < 10; n++) take(1, `a${n}`)
  t.ok(order.length <= 1, 'one takes more time than a slice has')
  take(11, 'b0')
  take(12, 'c0')
  await eventually(() => order.length === 12)
  t.ok(order.indexOf('b0') < order.indexOf('a1') && order.indexOf('c0') < order.indexOf('a1'), order.join(' '))
  t.strictSame(
    order.filter(name => name.startsWith('a')),
    Array.from({ length: 10 }, (_, n) => `a${n}`),
  )
})

t.test('of who used about the same, whoever has fewer requests in work comes first', async t => {
  const turns = await sharedTurns()
  const { order, take } = named(turns)
  turns.atWork[1] = 8
  turns.atWork[2] = 1
  take(3, 'first')
  for (const name of ['a0', 'a1', 'a2']) take(1, name)
  take(2, 'b0')
  await eventually(() => order.length === 5)
  t.strictSame(order, ['first', 'b0', 'a0', 'a1', 'a2'])
})

t.test('of one token the request that came first goes on first', async t => {
  const turns = await sharedTurns()
  const { order, take } = named(turns)
  const [first, second]: Waiter[] = [0, 1].map(() => ({ beginWait: () => () => undefined }))
  take(3, 'other')
  take(1, 'a0', first)
  take(1, 'b0', second)
  take(1, 'a1', first)
  take(1, 'b1', second)
  await eventually(() => order.length === 5)
  t.strictSame(order, ['other', 'a0', 'a1', 'b0', 'b1'])
})

t.test('hundreds who used a little less, and come again and again, do not pass by for long who waits', async t => {
  const turns = await sharedTurns()
  let isTaken = false
  let others = 0
  const again = (place: number) =>
    turns.take(place, () => {
      busy(1)
      others++
      if (!isTaken) setImmediate(again, place)
    })
  for (let place = 100; place < 300; place++) again(place)
  turns.take(5, () => {
    isTaken = true
  })
  await eventually(() => isTaken)
  t.ok(others > 20, `${others} had used less`)
  t.ok(others < 2_000, `${others} came before, of 4,000 that would have used as much`)
})

t.test('between two slices everything else goes on', async t => {
  const turns = await sharedTurns()
  let taken = 0
  for (let n = 0; n < 10; n++) {
    turns.take(n, () => {
      taken++
      busy(2)
    })
  }
  for (let before = taken; taken < 10; before = taken) {
    await new Promise(setImmediate)
    t.ok(taken - before <= 1, `${taken - before} steps in one turn of the event loop`)
  }
})

t.test('a token alone waits for nothing, until one comes that used less', async t => {
  const turns = new ThreadTurns()
  const order: number[] = []
  const take = (place: number) =>
    turns.take(place, () => {
      order.push(place)
      busy(15)
    })
  for (let n = 0; n < 3; n++) take(1)
  t.equal(order.length, 3, 'also what follows from a step')
  for (let n = 0; n < 3; n++) {
    await new Promise(setImmediate)
    take(1)
  }
  t.equal(order.length, 6)
  await new Promise(setImmediate)
  turns.placesAtWork = 2
  take(2)
  take(1)
  t.ok(order.length <= 7, 'they took more time than a slice has')
  await eventually(() => order.length === 8)
  t.strictSame(order.slice(6), [2, 1])
})

t.test('who used less and comes where nobody else asks any more waits for nothing, until another asks', async t => {
  const turns = new ThreadTurns()
  for (const ms of [30, 0]) await taken(turns, 1, ms)
  let count = 0
  const take = (place: number) =>
    turns.take(place, () => {
      count++
      busy(2)
    })
  for (let n = 0; n < 5; n++) take(2)
  t.equal(count, 5)
  t.notOk(turns.isShared)
  turns.placesAtWork = 2
  take(1)
  for (let n = 0; n < 5; n++) take(2)
  t.ok(turns.isShared)
  t.ok(count <= 6, 'they took more time than a slice has')
  await eventually(() => count === 11)
})

t.test(
  'the two places of an address take turns while both have requests in work, and not for a moment after',
  async t => {
    const turns = new ThreadTurns()
    for (const ms of [30, 0]) await taken(turns, 1, ms)
    await sleep(1_100)
    const [fresh, failed] = [false, true].map(hasFailed => placeOfAddress('192.0.2.1', hasFailed)) as [number, number]
    await taken(turns, fresh, 0)
    let count = 0
    const take = () =>
      turns.take(failed, () => {
        count++
        busy(2)
      })
    turns.placesAtWork = 1
    for (let n = 0; n < 5; n++) take()
    t.equal(count, 5)
    await new Promise(setImmediate)
    turns.placesAtWork = 2
    for (let n = 0; n < 5; n++) take()
    t.ok(count <= 6, 'they took more time than a slice has')
    await eventually(() => count === 10)
  },
)

t.test('what follows from a step without waiting belongs to it: nobody is between, and its time counts', async t => {
  const turns = await sharedTurns()
  const beforeMs = turns.usedMs(1)
  const order: string[] = []
  const follow = async (name: string) => {
    for (let n = 0; n < 3; n++) {
      await undefined
      order.push(name)
      busy(10)
    }
  }
  turns.take(1, () => void follow('a'))
  turns.take(2, () => void follow('b'))
  await eventually(() => order.length === 6)
  await new Promise(setImmediate)
  t.strictSame(order, ['a', 'a', 'a', 'b', 'b', 'b'])
  t.ok(turns.usedMs(1) >= beforeMs + 30, `${turns.usedMs(1)} ms, ${beforeMs} before`)
})

t.test('tokens that always wait have the same time, however long each step takes', async t => {
  const turns = await sharedTurns()
  const usedMs = [0, 0]
  let longestMs = 0
  let isOver = false
  const repeat = (place: 0 | 1, ms: number) => {
    turns.take(place, () => {
      const start = performance.now()
      busy(ms)
      const tookMs = performance.now() - start
      usedMs[place] = (usedMs[place] ?? 0) + tookMs
      longestMs = Math.max(longestMs, tookMs)
      if (!isOver) setImmediate(() => repeat(place, ms))
    })
  }
  for (let n = 0; n < 4; n++) {
    repeat(0, 4)
    repeat(1, 1)
  }
  await eventually(() => Math.min(...usedMs) > 100)
  const [long = 0, short = 0] = usedMs
  isOver = true
  t.ok(Math.max(long, short) < 1.5 * Math.min(long, short) + 16 + longestMs, `${long} and ${short} ms`)
})

t.test(
  'who asks for little all the time waits no longer than who comes: that is taken off while nobody asks',
  async t => {
    const turns = await sharedTurns()
    await sleep(600)
    const order: string[] = []
    const take = (place: number, name: string) =>
      turns.take(place, () => {
        order.push(name)
        busy(2)
      })
    for (let place = 11; place < 16; place++) for (let n = 0; n < 5; n++) take(place, `${place} ${n}`)
    take(1, 'the same as before')
    await eventually(() => order.length === 26)
    t.ok(order.indexOf('the same as before') <= 6, order.join(', '))
  },
)

t.test('what is taken back is not taken, and what has been taken cannot be', async t => {
  const turns = await sharedTurns()
  const order: string[] = []
  turns.take(1, () => busy(2))
  const [first, second] = ['a', 'b'].map(name => turns.take(1, () => order.push(name)))
  t.equal(first?.(), true)
  t.equal(first?.(), false)
  await eventually(() => order.length === 1)
  t.strictSame(order, ['b'])
  t.equal(second?.(), false)
})

t.test('a burst whose clients hang up leaves nothing in work, and the next request is served', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }, { listen: true })
  const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
  const request = (token: string) =>
    [
      'PATCH /persona/999999?dry_run=true&update_mask= HTTP/1.1',
      'Host: localhost',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      'Content-Length: 2',
      '',
      '{}',
    ].join('\r\n')
  const burst = Array.from({ length: 300 }, () => new RawConnection(service.port).write(request(service.token)))
  await eventually(() => burst.some(({ text }) => text !== ''))
  for (const { socket } of burst) socket.resetAndDestroy()
  const after = new RawConnection(service.port).write(request(other))
  await after.until(/HTTP\/1\.1 404 /)
  after.socket.destroy()
  const inWork = async () => {
    const { body } = await service.metrics.text()
    return Number(/agents_http_requests_in_work (\d+)/.exec(body)?.[1])
  }
  for (const end = Date.now() + 60_000; (await inWork()) > 0; await sleep(20)) {
    if (Date.now() > end) throw new Error(`${await inWork()} requests are in work`)
  }
  const failures = service.log.filter(line => JSON.parse(line).level >= 50)
  t.strictSame(failures, [])
})

t.test('whether others than a token are served is known for a moment', async t => {
  const turns = new ThreadTurns()
  await taken(turns, 1, 0)
  t.notOk(turns.servesOthersThan(1))
  t.ok(turns.servesOthersThan(2))
  await taken(turns, 2, 0)
  for (let n = 0; n < 3; n++) await taken(turns, 1, 0)
  t.ok(turns.servesOthersThan(1))
  t.ok(turns.servesOthersThan(2))
  await sleep(1_100)
  t.notOk(turns.servesOthersThan(1))
})
