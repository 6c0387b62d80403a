import { sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { Batcher } from '../../src/db/statements/batcher.js'
import { named } from '../../src/db/statements/queries.js'
import { rowStatement } from '../../src/db/statements/row-statement.js'
import { statement } from '../../src/db/statements/statement.js'
import { eventually } from '../eventually.js'
import { testDatabase } from '../postgres.js'

/** Doubles what it is asked, and keeps which questions came together. */
function doubling() {
  const groups: number[][] = []
  const batcher = new Batcher<number, number>(async (questions, onConnection) => {
    onConnection()
    groups.push([...questions])
    return questions.map(question => question * 2)
  }, WAIT_MS)
  return { groups, batcher }
}

function ask<Q, A>(batcher: Batcher<Q, A>, row: Q, more: { key?: unknown; sizeBytes?: number } = {}): Promise<A> {
  return batcher.add({ row, sizeBytes: 1, ...more })
}

const WAIT_MS = 60_000

t.test('what one turn of the event loop asks goes as one batch, and each gets its own answer', async t => {
  const { groups, batcher } = doubling()
  t.strictSame(await Promise.all([5, 3, 5, 8].map(question => ask(batcher, question))), [10, 6, 10, 16])
  t.equal(await ask(batcher, 1), 2)
  t.strictSame(groups, [[5, 3, 5, 8], [1]])
})

t.test('while two batches wait for a connection, what comes waits for one of them and goes together', async t => {
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

t.test('batches that have had their connections for long hold up nobody; those without a connection do', async t => {
  const { groups, release, batcher } = await held('connected')
  const asked: Promise<number>[] = []
  for (let question = 0; question < 6; question++) {
    asked.push(ask(batcher, question))
    while (groups.length <= question) await new Promise(setImmediate)
  }
  release(0, 1, 2, 3, 4, 5)
  t.strictSame(await Promise.all(asked), [0, 1, 2, 3, 4, 5])
})

t.test('a batch that takes much longer than others is cancelled; its rows go again, each alone', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const slowly = rowStatement<{ lock: number }, { lock: number }>('slowly', { lock: 'integer' }, (param, db) =>
    db
      .selectFrom('input')
      .select(['input.position', named(param('lock'), 'lock')])
      .where(({ eb, fn }) => eb(fn('pg_advisory_xact_lock_shared', [param('lock')]), 'is not', null)),
  )
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  t.teardown(() => holder.end())
  await holder.query('select pg_advisory_lock(3)')
  const ask = (lock: number) => slowly.for({ lock }).batched(database)
  const [slow, ...others] = [3, 1, 2, 4].map(ask)
  t.match(await Promise.all(others), [{ lock: 1 }, { lock: 2 }, { lock: 4 }], 'while the slow one is under way')
  t.match(await ask(1), { lock: 1 })
  await holder.query('select pg_advisory_unlock(3)')
  t.match(await slow, { lock: 3 })
})

/** Answers each question with itself when its batch is released. */
async function held(connection?: 'connected') {
  const groups: number[][] = []
  const releases: (() => void)[] = []
  const batcher = new Batcher<number, number>(async (questions, onConnection) => {
    if (connection) onConnection()
    groups.push([...questions])
    await new Promise<void>(resolve => releases.push(resolve))
    return questions
  }, WAIT_MS)
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

t.test('what sends much shares with few, and the largest go alone', async t => {
  const { groups, batcher } = doubling()
  const kibibytes = [100, 100, 100, 5_000, 1, 1]
  await Promise.all(kibibytes.map((size, i) => ask(batcher, i, { sizeBytes: size * 1024 })))
  t.strictSame(groups, [[0, 1, 4, 5], [2], [3]])
})

t.test('a batch that meets a timeout fails as one: 64 rows make two statements', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '300' }))
  t.teardown(() => database.close())
  const sleeps = statement<{ seconds: number[] }, { position: number }>(
    'sleeps',
    { seconds: 'double precision[]' },
    param => sql`select position::integer, pg_sleep(second)::text
      from unnest(${param('seconds')}) with ordinality asked (second, position) order by position`,
  )
  let statements = 0
  const batcher = new Batcher<number, number>(async seconds => {
    statements++
    return (await sleeps.run(database.db, { seconds: [...seconds] })).map(({ position }) => position)
  }, WAIT_MS)
  const outcomes = await Promise.allSettled(Array.from({ length: 64 }, () => ask(batcher, 20)))
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason.code === '57014'))
  t.equal(statements, 2)
})

t.test('rows that are tried singly run one after the other', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  let [underWay, most] = [0, 0]
  const batcher = new Batcher<number, number>(async divisors => {
    most = Math.max(most, ++underWay)
    try {
      const list = sql.join(divisors.map(divisor => sql`(100 / ${divisor}::integer)`))
      const { rows } = await sql<{ all: number[] }>`select array[${list}] as all`.execute(database.db)
      return rows[0]?.all ?? []
    } finally {
      underWay--
    }
  }, WAIT_MS)
  const outcomes = await Promise.allSettled(Array.from({ length: 64 }, (_, i) => ask(batcher, i % 32)))
  t.equal(outcomes.filter(({ status }) => status === 'rejected').length, 2)
  t.equal(most, 2)
})

t.test('a row that waits too long for earlier batches is refused and never sent', async t => {
  const sent: number[] = []
  const release: (() => void)[] = []
  const batcher = new Batcher<number, number>(async rows => {
    sent.push(...rows)
    await new Promise<void>(resolve => release.push(resolve))
    return rows
  }, 50)
  const asked = Array.from({ length: 70 }, (_, i) => ask(batcher, i))
  let refused = 0
  for (const late of asked.slice(64)) late.catch(() => refused++)
  await eventually(() => refused === 6)
  for (const done of release) done()
  const outcomes = await Promise.allSettled(asked)
  t.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 64)
  t.ok(outcomes.slice(64).every(outcome => outcome.status === 'rejected' && outcome.reason.name === 'PoolExhausted'))
  t.equal(sent.length, 64)
})
