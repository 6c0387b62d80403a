import { sql } from 'kysely'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { type Positioned, rowStatement, weightOf } from '../../src/db/statements/row-statement.js'
import { statement } from '../../src/db/statements/statement.js'
import { testDatabase } from '../postgres.js'

interface Row {
  id: number | null
  name: string | null
  bytes: Buffer
  groups: number[]
  words: string[]
  flag: boolean
  content: string
}

const TYPES = {
  id: 'integer',
  name: 'text',
  bytes: 'bytea',
  groups: 'integer[]',
  words: 'text[]',
  flag: 'boolean',
  content: 'jsonb',
} as const

const echo = rowStatement<Row, Row>('echo', TYPES, (param, db) => {
  const row = sql<
    Positioned<Row>
  >`(select input.position, ${param('id')}, ${param('name')}, ${param('bytes')}, ${param('groups')},
    ${param('words')}, ${param('flag')}, ${param('content')}::text as content
    from input where ${param('name')} is distinct from 'nobody' order by random())`
  return db.selectFrom(row.as('row')).selectAll()
})

const row: Row = { id: 1, name: 'a', bytes: Buffer.from([0, 255]), groups: [], words: [], flag: true, content: '{}' }

t.test('one database', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())

  t.test('every value arrives as it was given, and each row gets its own answer', async t => {
    const rows: Row[] = [
      row,
      { ...row, id: null, name: null },
      { ...row, id: -7, name: '', groups: [3, 1, 2], words: ['a,b', '{"x"}', 'NULL', 'back\\slash', ''] },
      { ...row, name: '"quoted" \\ {1,2} ü 𝄞 NULL', flag: false, content: '{"a": [1, "\\"", null]}' },
      { ...row, id: 2_147_483_647, name: 'NULL', bytes: Buffer.alloc(0) },
    ]
    const answers = await Promise.all(rows.map(one => echo.for(one).batched(database)))
    answers.forEach((answer, i) => {
      const { position, ...values } = answer ?? { position: 0 }
      t.equal(position, i + 1)
      t.same(values, rows[i])
    })
  })

  t.test('undefined for a row that the statement answers nothing for, also alone', async t => {
    const nobody = echo.for({ ...row, name: 'nobody' })
    const before = database.counters.statements
    const [first, none, last] = await Promise.all([
      echo.for(row).batched(database),
      nobody.batched(database),
      echo.for({ ...row, id: 3 }).batched(database),
    ])
    t.equal(database.counters.statements - before, 1)
    t.match(first, { id: 1 })
    t.equal(none, undefined)
    t.match(last, { id: 3 })
    t.equal(await nobody.single(database.db), undefined)
    t.match(await echo.for(row).single(database.db), { id: 1 })
  })

  t.test('a statement with a value that is a parameter of its own takes one row', async t => {
    const large = rowStatement<Row, { length: number }>(
      'large',
      { ...TYPES, content: { single: 'json' } },
      (param, db) =>
        db
          .selectFrom('input')
          .select(({ cast, fn }) => [
            'input.position',
            fn<number>('length', [cast(param('content'), 'text')]).as('length'),
          ])
          .where(param('flag')),
    )
    t.throws(() => large.bind([row, row]), { message: 'statement large takes one row at a time' })
    const contents = ['{}', `"${'x'.repeat(5_000_000)}"`]
    const answers = await Promise.all(contents.map(content => large.for({ ...row, content }).single(database.db)))
    t.same(
      answers.map(answer => answer?.length),
      [2, 5_000_002],
    )
  })

  t.test('a value that is missing, or stands in the text of a statement, is the mistake of the program', async t => {
    const { id: _, ...incomplete } = row
    t.throws(() => echo.bind([incomplete as Row]), { message: 'statement echo lacks its parameter id' })
    const frozen = () =>
      statement<{ id: number }, never>('frozen', { id: 'integer' }, () => sql`delete from label where id = ${7}`)
    t.throws(frozen, { message: 'statement frozen holds a value that is not a named parameter' })
  })
})

t.test('a server that lets nobody in is asked once for all that share a statement', async t => {
  const { url } = await testDatabase(t)
  const nobody = new URL(url)
  nobody.pathname = '/there_is_no_such_database'
  const waits: number[] = []
  const database = openUrl(nobody.href, readConfig({}), { onPoolWait: ms => waits.push(ms) })
  t.teardown(() => database.close())
  const outcomes = await Promise.allSettled([1, 2, 3, 4].map(id => echo.for({ ...row, id }).batched(database)))
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason.code === '3D000'))
  t.equal(waits.length, 1)
})

t.test('the weight of a row counts what its lists hold, and texts by their bytes', async t => {
  t.ok(weightOf({ ...row, words: Array.from({ length: 1_000 }, () => 'ü'.repeat(100)) }) > 200_000)
  t.ok(weightOf(row) < 200)
})
