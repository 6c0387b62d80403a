import { sql } from 'kysely'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { ConnectionLost } from '../../src/db/connection/database-error.js'
import { ThreadTurns } from '../../src/db/connection/thread-turns.js'
import type { QueueName, Waiter } from '../../src/db/connection/waiter.js'
import { openUrl } from '../../src/db/open.js'
import { Batcher } from '../../src/db/statements/batcher.js'
import { statement } from '../../src/db/statements/statement.js'
import { testDatabase } from '../postgres.js'

/** Doubles what it is asked, and keeps which questions came together. */
function doubling() {
  const groups: number[][] = []
  const batcher = new Batcher<number, number>(async questions => {
    groups.push([...questions])
    return questions.map(question => question * 2)
  }, new ThreadTurns())
  return { groups, batcher }
}

function ask<Q, A>(
  batcher: Batcher<Q, A>,
  content: Q,
  { place, waiter, ...more }: { key?: unknown; sizeBytes?: number; place?: number; waiter?: Waiter } = {},
): Promise<A> {
  return batcher.add({
    row: content,
    sizeBytes: 1,
    sharer: place === undefined ? undefined : { place, waiter },
    ...more,
  })
}

t.test('what one turn of the event loop asks goes as one batch, and each gets its own answer', async t => {
  const { groups, batcher } = doubling()
  t.strictSame(await Promise.all([5, 3, 5, 8].map(question => ask(batcher, question))), [10, 6, 10, 16])
  t.equal(await ask(batcher, 1), 2)
  t.strictSame(groups, [[5, 3, 5, 8], [1]])
})

t.test('a question that comes while others are under way does not wait for them', async t => {
  let release = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  const batcher = new Batcher<string, string>(async questions => {
    if (questions.includes('slow')) await held
    return questions
  }, new ThreadTurns())
  const slow = ask(batcher, 'slow')
  await new Promise(setImmediate)
  t.equal(await ask(batcher, 'quick'), 'quick')
  release()
  t.equal(await slow, 'slow')
})

t.test('while two batches are under way, what comes waits for one of them and goes together', async t => {
  const { groups, release, batcher } = await held()
  const first = ask(batcher, 0)
  await new Promise(setImmediate)
  const second = ask(batcher, 1)
  await new Promise(setImmediate)
  const others = [2, 3, 4].map(question => ask(batcher, question))
  await new Promise(setImmediate)
  t.strictSame(groups, [[0], [1]])
  release(0)
  await first
  await new Promise(setImmediate)
  t.strictSame(groups, [[0], [1], [2, 3, 4]])
  release(1, 2)
  t.strictSame(await Promise.all([second, ...others]), [1, 2, 3, 4])
})

t.test('nobody waits for batches that hang', async t => {
  const { groups, release, batcher } = await held()
  const hung: Promise<number>[] = []
  for (const question of [0, 1]) {
    hung.push(ask(batcher, question))
    await new Promise(setImmediate)
  }
  const other = ask(batcher, 2)
  while (groups.length < 3) await new Promise(setImmediate)
  release(2)
  t.equal(await other, 2)
  release(0, 1)
  await Promise.all(hung)
})

t.test('while tokens take turns, who has rows under way waits longer for another batch than who has none', async t => {
  const turns = await sharedTurns()
  const { groups, release, batcher } = await held(turns, [1, 2, 3])
  const asked: Promise<number>[] = []
  const askFor = async (place: number, from: number) => {
    for (let n = 0; n < 10; n++) asked.push(ask(batcher, from + n, { place }))
    await new Promise(setImmediate)
  }
  await askFor(1, 0)
  await askFor(1, 10)
  await askFor(1, 20)
  t.equal(groups.length, 2)
  await askFor(2, 30)
  while (groups.length < 4) await new Promise(setImmediate)
  const [, , third = [], fourth = []] = groups
  t.ok(
    third.every(question => question >= 30),
    third.join(' '),
  )
  t.ok(
    fourth.some(question => question < 30),
    `${fourth.join(' ')}: batches may hang`,
  )
  while (groups.flat().length < asked.length) {
    release(...groups.keys())
    await new Promise(setImmediate)
  }
  release(...groups.keys())
  t.strictSame(await Promise.all(asked), [...Array(40).keys()])
})

t.test('who waits for the next batch, and for the turn behind it, is told of both', async t => {
  const { release, batcher } = await held(await sharedTurns(), [1])
  const waits: QueueName[] = []
  let ended = 0
  const waiter: Waiter = {
    beginWait: queue => {
      waits.push(queue)
      return () => ended++
    },
  }
  const all = Array.from({ length: 40 }, (_, i) => ask(batcher, i, { place: 1, waiter }))
  await new Promise(setImmediate)
  t.strictSame([waits, ended], [[], 0], 'two batches are sent at once')
  const late = ask(batcher, 40, { place: 1, waiter })
  await new Promise(setImmediate)
  t.strictSame([waits, ended], [['shared_statements'], 0])
  release(0, 1)
  await Promise.all(all)
  t.ok(waits.length > 1 && waits.slice(1).every(queue => queue === 'thread_turns'))
  release(2)
  await late
  t.equal(ended, waits.length)
})

/** Turns of which tokens 1 and 2 have used so much, and that are shared out, for token 3 came who had used none. */
async function sharedTurns(): Promise<ThreadTurns> {
  const turns = new ThreadTurns()
  turns.placesAtWork = 2
  for (const place of [1, 2, 1, 2, 3, 1]) {
    turns.take(place, () => {
      for (const end = performance.now() + 30; performance.now() < end; );
    })
    await new Promise(setImmediate)
  }
  while (turns.usedMs(3) === 0) await new Promise(setImmediate)
  return turns
}

/** Answers each question with itself when its batch is released. Who is `known` was answered something before. */
async function held(turns = new ThreadTurns(), known: number[] = []) {
  const groups: number[][] = []
  const releases: (() => void)[] = []
  let isHeld = false
  const batcher = new Batcher<number, number>(async questions => {
    if (!isHeld) return questions
    groups.push([...questions])
    await new Promise<void>(resolve => releases.push(resolve))
    return questions
  }, turns)
  await Promise.all(known.map(place => ask(batcher, 0, { place })))
  isHeld = true
  return { groups, batcher, release: (...which: number[]) => which.forEach(index => void releases[index]?.()) }
}

t.test('more than thirty-two go in several groups', async t => {
  const { groups, batcher } = doubling()
  const questions = Array.from({ length: 71 }, (_, i) => i)
  const answers = await Promise.all(questions.map(question => ask(batcher, question)))
  t.strictSame(
    answers,
    questions.map(question => question * 2),
  )
  t.strictSame(
    groups.map(group => group.length),
    [32, 32, 7],
  )
})

t.test('questions with the same key go in different groups, in their order', async t => {
  const { groups, batcher } = doubling()
  const keys = ['a', 'b', 'a', 'c', 'c', 'a']
  await Promise.all(keys.map((key, i) => ask(batcher, i, { key })))
  t.strictSame(groups, [[0, 1, 3], [2, 4], [5]])
})

t.test(
  'while tokens take turns, of many questions of one those of others are in the next batch, with few of it',
  async t => {
    const turns = await sharedTurns()
    const { groups, release, batcher } = await held(turns, [1, 2, 3])
    const many = Array.from({ length: 100 }, (_, i) => ask(batcher, i, { place: 1 }))
    await new Promise(setImmediate)
    t.strictSame(
      groups.map(({ length }) => length),
      [32, 32],
      'two batches are under way at once',
    )
    const few = [1_000, 1_001].map(question => ask(batcher, question, { place: 2 }))
    const one = ask(batcher, 2_000, { place: 3 })
    release(0)
    while (groups.length < 3) await new Promise(setImmediate)
    const [, , next = []] = groups
    t.ok(turns.isShared)
    t.strictSame(
      [...next].sort((a, b) => b - a),
      [2_000, 1_001, 1_000, 71, 70, 69, 68, 67, 66, 65, 64],
    )
    while (groups.flat().length < 103) {
      release(...groups.keys())
      await new Promise(setImmediate)
    }
    release(...groups.keys())
    t.strictSame(await Promise.all([...many, ...few, one]), [...Array(100).keys(), 1_000, 1_001, 2_000])
  },
)

t.test('what sends much shares with few, and the largest go alone', async t => {
  const { groups, batcher } = doubling()
  const kibibytes = [100, 100, 100, 5_000, 1, 1]
  await Promise.all(kibibytes.map((size, i) => ask(batcher, i, { sizeBytes: size * 1024 })))
  t.strictSame(groups, [[0, 1, 4, 5], [2], [3]])
})

t.test('while tokens take turns light rows share no group with others, and have one of the two places', async t => {
  const { groups, batcher, release } = await held(await sharedTurns(), [1, 2, 3])
  const heavy = Array.from({ length: 6 }, (_, i) => ask(batcher, i, { sizeBytes: 24 * 1024, place: 1 + (i % 2) }))
  const light = [ask(batcher, 100, { place: 3 }), ask(batcher, 101, { place: 1 })]
  await new Promise(setImmediate)
  t.strictSame(groups.map(group => [...group].sort((a, b) => a - b)).sort(), [
    [0, 1],
    [100, 101],
  ])
  release(groups.findIndex(group => group.includes(100)))
  await Promise.all(light)
  t.equal(groups.length, 2, 'the place of the light ones stays theirs')
  const beside = ask(batcher, 102, { place: 3 })
  await new Promise(setImmediate)
  t.strictSame(groups[2], [102])
  while (groups.flat().length < 9) {
    release(...groups.keys())
    await new Promise(setImmediate)
  }
  release(...groups.keys())
  t.strictSame(await Promise.all([...heavy, beside]), [0, 1, 2, 3, 4, 5, 102])
})

t.test('who was answered much, or never before, has one row under way at a time while others are served', async t => {
  for (const turns of [await sharedTurns(), new ThreadTurns()]) {
    const groups: number[][] = []
    const batcher = new Batcher<number, object>(async questions => {
      groups.push([...questions])
      return questions.map(question => ({ text: 'x'.repeat(question < 100 ? 100_000 : 1) }))
    }, turns)
    const isServingOthers = turns.isShared
    const askAll = async (questions: number[], place: number) => {
      groups.length = 0
      await Promise.all(questions.map(question => ask(batcher, question, { place })))
      return [...groups]
    }
    t.strictSame(await askAll([0, 1, 2, 3], 1), isServingOthers ? [[0], [1], [2], [3]] : [[0, 1, 2, 3]], 'not known')
    t.strictSame(
      await askAll([0, 1, 2, 3], 1),
      isServingOthers
        ? [[0], [1], [2], [3]]
        : [
            [0, 1],
            [2, 3],
          ],
      'much',
    )
    await askAll([100], 2)
    t.strictSame(await askAll([101, 102, 103], 2), [[101, 102, 103]], 'little')
  }
})

t.test("a lost connection is everybody's: nobody asks again here", async t => {
  let count = 0
  const batcher = new Batcher<number, number>(async () => {
    count += 1
    throw new ConnectionLost()
  }, new ThreadTurns())
  const outcomes = await Promise.allSettled([1, 2, 3].map(question => ask(batcher, question)))
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason instanceof ConnectionLost))
  t.equal(count, 1)
})

t.test('a row that cannot be read fails its own question and no other', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const quotients = statement<{ divisors: number[] }, { position: number; quotient: number }>(
    'quotients',
    param => sql`select position::integer, 100 / divisor as quotient
      from unnest(${param('divisors')}::integer[]) with ordinality asked (divisor, position) order by position`,
  )
  const batcher = new Batcher<number, number | undefined>(async divisors => {
    const rows = await quotients.run(database.db, { divisors: [...divisors] })
    return rows.map(({ quotient }) => quotient)
  }, new ThreadTurns())
  const outcomes = await Promise.allSettled([4, 0, 5].map(divisor => ask(batcher, divisor)))
  t.match(outcomes, [
    { status: 'fulfilled', value: 25 },
    { status: 'rejected', reason: { code: '22012' } },
    { status: 'fulfilled', value: 20 },
  ])
})

t.test('a row that takes too long fails its own question: the others are asked again', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '300' }))
  t.teardown(() => database.close())
  const sleeps = statement<{ seconds: number[] }, { position: number; slept: number }>(
    'sleeps',
    param => sql`select position::integer, (select second from pg_sleep(second)) as slept
      from unnest(${param('seconds')}::double precision[]) with ordinality asked (second, position) order by position`,
  )
  const batcher = new Batcher<number, number | undefined>(async seconds => {
    const rows = await sleeps.run(database.db, { seconds: [...seconds] })
    return rows.map(({ slept }) => slept)
  }, new ThreadTurns())
  const outcomes = await Promise.allSettled([0, 20, 0.001].map(seconds => ask(batcher, seconds)))
  t.match(outcomes, [
    { status: 'fulfilled', value: 0 },
    { status: 'rejected', reason: { code: '57014' } },
    { status: 'fulfilled', value: 0.001 },
  ])
})
