import { sql } from 'kysely'
import t from 'tap'
import { statement } from '../../src/db/statements/statement.js'

interface RenameParameters {
  id: number
  name: string | null
  groups: number[]
}

const fragment = statement<RenameParameters, { id: number }>(
  'rename',
  param => sql`update label set name = ${param('name')} where id = ${param('id')} and ${param('name')} <> '$1'
    and id = any(${param('groups')}::int[])`,
)

t.test(
  'a parameter gets the position of its first occurrence, in every occurrence; literals are left alone',
  async t => {
    t.equal(
      fragment.sql,
      `update label set name = $1 where id = $2 and $1 <> '$1'
    and id = any($3::int[])`,
    )
    t.strictSame(fragment.parameterNames, ['name', 'id', 'groups'])
  },
)

t.test('values land in their places, whatever the order of the keys; null and arrays stay what they are', async t => {
  const { sql: text, parameters } = fragment.bind({ groups: [3, 1], id: 7, name: null })
  t.equal(text, fragment.sql)
  t.strictSame(parameters, [null, 7, [3, 1]])
})

t.test('the builder compiles with named parameters, twice to the same SQL', async t => {
  const build = () =>
    statement<{ id: number; name: string }, { id: number }>('builder', (param, db) =>
      db
        .updateTable('label')
        .set({ name: param('name') })
        .where('id', '=', param('id'))
        .where('name', '<>', param('name'))
        .returning('id'),
    )
  t.equal(build().sql, 'update "label" set "name" = $1 where "id" = $2 and "name" <> $1 returning "id"')
  t.equal(build().sql, build().sql)
})

t.test('an insert of several rows uses each parameter where it was written', async t => {
  const insert = statement<{ a: string; b: string }, never>('insert', (param, db) =>
    db.insertInto('label').values([{ name: param('b') }, { name: param('a') }, { name: param('b') }]),
  )
  t.equal(insert.sql, 'insert into "label" ("name") values ($1), ($2), ($1)')
  t.strictSame(insert.bind({ a: 'A', b: 'B' }).parameters, ['B', 'A'])
})

t.test('a value that is not a named parameter is refused when the statement is compiled', async t => {
  t.throws(
    () =>
      statement<{ id: number }, never>('frozen', (param, db) =>
        db.deleteFrom('label').where('id', '=', 7).where('id', '=', param('id')),
      ),
    { message: 'statement frozen holds a value that is not a named parameter' },
  )
})

t.test('a parameter left undefined is refused when the statement is bound', async t => {
  // A caller without types.
  const parameters = { id: 7, name: 'x' } as RenameParameters
  t.throws(() => fragment.bind(parameters), { message: 'statement rename lacks its parameter groups' })
})
