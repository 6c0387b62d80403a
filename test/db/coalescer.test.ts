import { sql } from 'kysely'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { Coalescer } from '../../src/db/coalescer.js'
import { ConnectionLost } from '../../src/db/database-error.js'
import { openUrl } from '../../src/db/open.js'
import { statement } from '../../src/db/statement.js'
import { testDatabase } from '../postgres.js'

/** Doubles what it is asked, and keeps which questions came together. */
function doubling() {
  const groups: number[][] = []
  const coalescer = new Coalescer<number, number>(async questions => {
    groups.push([...questions])
    return questions.map(question => question * 2)
  })
  return { groups, coalescer }
}

t.test('what one turn of the event loop asks goes together, and each gets its own answer', async t => {
  const { groups, coalescer } = doubling()
  t.strictSame(await Promise.all([5, 3, 5, 8].map(question => coalescer.ask(question))), [10, 6, 10, 16])
  t.equal(await coalescer.ask(1), 2)
  t.strictSame(groups, [[5, 3, 5, 8], [1]])
})

t.test('a question that comes while others are under way does not wait for them', async t => {
  let release = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  const coalescer = new Coalescer<string, string>(async questions => {
    if (questions.includes('slow')) await held
    return questions
  })
  const slow = coalescer.ask('slow')
  await new Promise(setImmediate)
  t.equal(await coalescer.ask('quick'), 'quick')
  release()
  t.equal(await slow, 'slow')
})

t.test('more than 32 go in several groups', async t => {
  const { groups, coalescer } = doubling()
  const questions = Array.from({ length: 70 }, (_, i) => i)
  const answers = await Promise.all(questions.map(question => coalescer.ask(question)))
  t.strictSame(
    answers,
    questions.map(question => question * 2),
  )
  t.strictSame(
    groups.map(group => group.length),
    [32, 32, 6],
  )
})

t.test('a lost connection is everybody’s: nobody asks again here', async t => {
  let count = 0
  const coalescer = new Coalescer<number, number>(async () => {
    count += 1
    throw new ConnectionLost()
  })
  const outcomes = await Promise.allSettled([1, 2, 3].map(question => coalescer.ask(question)))
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
  const coalescer = new Coalescer<number, number | undefined>(async divisors => {
    const rows = await quotients.run(database.db, { divisors: [...divisors] })
    return rows.map(({ quotient }) => quotient)
  })
  const outcomes = await Promise.allSettled([4, 0, 5].map(divisor => coalescer.ask(divisor)))
  t.match(outcomes, [
    { status: 'fulfilled', value: 25 },
    { status: 'rejected', reason: { code: '22012' } },
    { status: 'fulfilled', value: 20 },
  ])
})
