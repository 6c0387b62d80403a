import { readdirSync } from 'node:fs'
import pg from 'pg'
import t from 'tap'
import { readConfig } from '../src/config.js'
import { MIGRATIONS, migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { matchesGolden } from './golden.js'
import { testDatabase } from './postgres.js'

/** Kysely's own tables: which migrations ran. Its version decides their form. */
const OWN_TABLES = `relnamespace = 'public'::regnamespace and relname not like 'kysely%'`

const COLUMNS = `
  select c.relname as table, a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as required,
    pg_get_expr(d.adbin, d.adrelid) as fallback, a.attidentity <> '' as identity, c.reloptions as options
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where c.relkind = 'r' and ${OWN_TABLES}
  order by c.relname, a.attnum`

/** PostgreSQL 18 also lists NOT NULL as constraints; the columns say that already. */
const CONSTRAINTS = `
  select c.relname as table, k.conname as name, k.contype as kind, pg_get_constraintdef(k.oid) as definition,
    k.conkey as columns
  from pg_constraint k join pg_class c on c.oid = k.conrelid
  where k.contype <> 'n' and ${OWN_TABLES}
  order by c.relname, k.contype, k.conname`

const INDEXES = `
  select c.relname as table, i.relname as name, pg_get_indexdef(i.oid) as definition,
    x.indkey::smallint[] as columns, x.indpred is not null as partial,
    exists (select from pg_constraint k where k.conindid = i.oid and k.contype in ('p', 'u')) as of_constraint
  from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class c on c.oid = x.indrelid
  where c.relkind = 'r' and c.${OWN_TABLES.replace(' and ', ' and c.')}
  order by c.relname, i.relname`

interface Column {
  table: string
  name: string
  type: string
  required: boolean
  fallback: string | null
  identity: boolean
  options: string[] | null
}

interface Constraint {
  table: string
  name: string
  kind: 'p' | 'u' | 'f' | 'c'
  definition: string
  columns: number[]
}

interface Index {
  table: string
  name: string
  definition: string
  columns: number[]
  partial: boolean
  of_constraint: boolean
}

t.test('the migrations that run are those of the reviewed list', async t => {
  const names = Object.keys(MIGRATIONS)
  matchesGolden(t, 'test/golden/migrations.txt', `${names.join('\n')}\n`)
  const sources = readdirSync(new URL('../../migrations/', import.meta.url)).map(file => file.replace(/\.ts$/, ''))
  t.strictSame(names, sources.sort(), 'every source is compiled, and nothing else is there')
})

t.test('the migrated schema', async t => {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  await migrate(database.db)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  const { rows: columns } = await client.query<Column>(COLUMNS)
  const { rows: constraints } = await client.query<Constraint>(CONSTRAINTS)
  const { rows: indexes } = await client.query<Index>(INDEXES)

  t.test('is the one that was reviewed', async t => {
    matchesGolden(t, 'test/golden/schema.sql', dump(columns, constraints, indexes))
  })

  t.test('names every constraint itself: by its table, and what it says', async t => {
    for (const { table, name, kind } of constraints) {
      const words = { p: /_pk$/, u: /_unique$/, f: /_fk$/, c: /_(known|public|single|\w+)$/ }[kind]
      t.match(name, words, `${table}.${name}`)
      t.notMatch(name, /_(pkey|key|fkey|check\d*)$/, `${table}.${name} is PostgreSQL's own choice`)
      t.ok(name.startsWith(table.slice(0, 20)), `${name} begins with ${table}`)
    }
  })

  t.test('has an index that begins with the columns of each foreign key', async t => {
    for (const { table, name, columns: key } of constraints.filter(({ kind }) => kind === 'f')) {
      const found = indexes.filter(index => {
        return (
          index.table === table && key.every((column, place) => index.columns.slice(0, key.length)[place] === column)
        )
      })
      // A partial index serves if it leaves out only rows without a reference.
      const serves = found.some(index => !index.partial || /WHERE \(\w+ IS NOT NULL\)$/.test(index.definition))
      t.ok(serves, `${table}.${name}`)
    }
  })
})

function dump(columns: Column[], constraints: Constraint[], indexes: Index[]): string {
  const tables = [...new Set(columns.map(({ table }) => table))]
  return tables
    .map(table => {
      const own = <Row extends { table: string }>(rows: Row[]) => rows.filter(row => row.table === table)
      const lines = [
        ...own(columns).map(columnLine),
        ...own(constraints).map(({ name, definition }) => `  constraint ${name} ${definition}`),
      ]
      const options = own(columns)[0]?.options
      const ending = options ? `) with (${options.join(', ')});` : ');'
      const others = own(indexes).filter(index => !index.of_constraint)
      return [
        `create table ${table} (`,
        lines.join(',\n'),
        ending,
        ...others.map(index => `${index.definition};`),
        '',
      ].join('\n')
    })
    .join('\n')
}

function columnLine({ name, type, required, fallback, identity }: Column): string {
  const words = [`  ${name} ${type}`]
  if (required) words.push('not null')
  if (identity) words.push('generated by default as identity')
  else if (fallback !== null) words.push(`default ${fallback}`)
  return words.join(' ')
}
