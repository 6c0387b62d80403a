import { readdirSync } from 'node:fs'
import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { MIGRATIONS, migrate, type SchemaStep, schemaState } from '../src/db/migrate.js'
import { startAgentctl } from './cli/agentctl.js'
import { eventually } from './eventually.js'
import { matchesGolden } from './golden.js'
import { opened, testDatabase } from './postgres.js'
import { buildService, UNLIMITED } from './test-service.js'

const NAMES = Object.keys(MIGRATIONS)

async function emptyDatabase(t: Parameters<typeof testDatabase>[0]) {
  const { url } = await testDatabase(t)
  return { url, database: opened(t, url) }
}

/** Returns this version's migrations and a later one that runs `statement`. */
function later(oldestProgram: string, statement = 'create table later (id integer)'): Record<string, SchemaStep> {
  const up = async (db: Kysely<unknown>) => {
    await sql.raw(statement).execute(db)
  }
  return { ...MIGRATIONS, '9000_later': { up, oldestProgram } }
}

t.test('four processes that migrate an empty database at once run each migration once', async t => {
  const { url, database } = await emptyDatabase(t)
  const started = Array.from({ length: 4 }, () => startAgentctl({ url, args: ['migrate', '--json'] }))
  const answers = await Promise.all(started.map(({ answer }) => answer))
  t.strictSame(answers.flatMap(({ stdout }) => JSON.parse(stdout).applied).sort(), NAMES)
  t.strictSame(await schemaState(database.db, '1.0.0'), { kind: 'current' })
  t.strictSame(await migrate(database), [], 'again there is nothing to do')
})

t.test('a migration that fails leaves nothing, of itself and of the others', async t => {
  const { database } = await emptyDatabase(t)
  await t.rejects(migrate(database, { steps: later('1.0.0', 'select 1 / 0') }), { code: '22012' })
  const { rows } = await sql`select from pg_class where relnamespace = 'public'::regnamespace`.execute(database.db)
  t.same(rows, [])
})

t.test('the state of a schema: behind, current, ahead only where the newer migration says so', async t => {
  const { database } = await emptyDatabase(t)
  const state = (version: string) => schemaState(database.db, version)
  t.strictSame(await state('1.0.0'), { kind: 'behind', pending: NAMES, isEmpty: true })
  const [first = ''] = NAMES
  await migrate(database, { steps: { [first]: MIGRATIONS[first] as SchemaStep } }) // `first` is one of the names
  t.strictSame(await state('1.0.0'), { kind: 'behind', pending: NAMES.slice(1), isEmpty: false })
  await migrate(database)
  t.strictSame(await state('1.0.0'), { kind: 'current' })

  await migrate(database, { steps: later('1.9.0') })
  t.strictSame(await state('1.8.9'), { kind: 'ahead', oldestProgram: '1.9.0' })
  t.strictSame(await state('1.10.0'), { kind: 'current' }, 'numbers, not text')
  t.strictSame(await state('2.0.0'), { kind: 'current' })
  await sql`update schema_requirement set oldest_program = '1.0.0' where migration = '9000_later'`.execute(database.db)
  t.strictSame(await state('1.0.0'), { kind: 'current' }, 'a newer migration that old programs can live with')
  t.strictSame(await migrate(database), [], 'and the old program has nothing to migrate')
})

t.test('503 with the reason while the schema does not fit, and service once it does', async t => {
  const { database } = await emptyDatabase(t)
  // Each step starts its own service, because a waiting service could become ready between this version's last migration and the later one.
  const service = async () => await buildService(t, database, { settings: UNLIMITED })
  const waiting = await service()
  let { app } = waiting
  const answers = async () => {
    const update = await app.inject({ method: 'PATCH', url: '/persona/1', payload: {} })
    const ready = await app.inject({ url: '/readyz' })
    const alive = await app.inject({ url: '/healthz' })
    const reason = (answer: typeof ready) => answer.json().reason ?? answer.json().error_code ?? answer.json().status
    return [update, ready, alive].map(answer => `${answer.statusCode} ${reason(answer)}`)
  }
  t.strictSame(await answers(), ['503 database_unreachable', '503 database_unreachable', '200 alive'], 'not started')

  void waiting.service.start()
  await seen(answers, '503 schema_behind')
  t.strictSame(await answers(), ['503 schema_behind', '503 schema_behind', '200 alive'])
  const update = await app.inject({ method: 'PATCH', url: '/persona/1', payload: {} })
  t.match(update.headers, { 'retry-after': /^\d+$/, 'cache-control': 'no-store' })
  t.match(update.json(), { error_code: 'SERVICE_UNAVAILABLE', outcome: 'not_applied' })

  waiting.service.drain()
  await migrate(database, { steps: later('9.0.1') })
  const next = await service()
  app = next.app
  const started = next.service.start()
  await seen(answers, '503 schema_ahead')
  t.strictSame(await answers(), ['503 schema_ahead', '503 schema_ahead', '200 alive'])

  await sql`update schema_requirement set oldest_program = '1.0.0'`.execute(database.db)
  t.equal(await started, true)
  t.strictSame(await answers(), ['401 UNAUTHENTICATED', '200 ready', '200 alive'])

  await sql`update schema_requirement set oldest_program = '9.0.1' where migration = '9000_later'`.execute(database.db)
  t.match((await app.inject({ url: '/readyz' })).json(), { reason: 'schema_ahead' }, 'a probe asks each time')
  t.equal((await answers())[0], '503 schema_ahead', 'once it has seen it nothing is written')
  next.service.drain()
  t.match((await app.inject({ url: '/readyz' })).json(), { reason: 'draining' })
})

t.test('503 migrating while another process migrates; the wait has an end', async t => {
  const { url, database } = await emptyDatabase(t)
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  t.teardown(() => holder.end().catch(() => undefined))
  await holder.query('select pg_advisory_lock(7140312)')
  const fault = { kind: 'migrating', message: /another process has been migrating for 0.3 s/ }
  t.match(await migrate(database, { patienceMs: 300 }).catch(error => error), fault)

  const { app, service } = await buildService(t, database, { migrates: true })
  const started = service.start()
  const reason = async () => [(await app.inject({ url: '/readyz' })).json().reason as string]
  await seen(reason, 'migrating')
  await holder.end()
  t.equal(await started, true)
  t.match((await app.inject({ url: '/readyz' })).json(), { status: 'ready' })
})

t.test('78 for a database of a version before 2.1, by every way in: it is left as it is', async t => {
  const { url, database } = await emptyDatabase(t)
  const steps = { '0014_unchanged_updates': { up: async () => {}, oldestProgram: '1.15.1' } }
  await migrate(database, { steps }).catch(() => undefined) // fails, because the resulting schema is refused
  const message = /the schema is older than version 2\.1: run agentctl migrate of version 2\.1/
  for (const args of [['migrate'], ['migrate', '--plan'], ['init', 'alice@example.com'], ['status']]) {
    const { status, stderr } = await startAgentctl({ url, args }).answer
    t.equal(status, 78, args.join(' '))
    t.match(stderr, message)
  }
  for (const migrates of [true, false])
    await t.rejects((await buildService(t, database, { migrates })).service.start(), { message })
  const { rows } = await sql`select migration from schema_requirement`.execute(database.db)
  t.equal(rows.length, 1)
})

/** Waits until the first answer is `first`. */
const seen = (answers: () => Promise<string[]>, first: string) => eventually(async () => (await answers())[0] === first)

t.test('the migrations that run are those of the folder, each with a number of its own', async t => {
  const sources = readdirSync(new URL('../../migrations/', import.meta.url)).map(file => file.replace(/\.ts$/, ''))
  t.strictSame(NAMES, sources.filter(name => name !== 'index').sort())
  const numbers = NAMES.map(name => /^(\d{4})_[a-z0-9_]+$/.exec(name)?.[1])
  t.equal(new Set(numbers).size, NAMES.length)
  t.notOk(numbers.includes(undefined), 'each is named like 0004_what_it_adds')
})

/** The service's tables. Kysely's own tables record which migrations ran, and their form depends on its version. */
const OURS = sql`c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and c.relname not like 'kysely%'`

/** Excludes NOT NULL constraints, which PostgreSQL 18 lists and which the columns already show. */
const OUR_CONSTRAINTS = sql`pg_constraint k join pg_class c on c.oid = k.conrelid and k.contype <> 'n' and ${OURS}`

t.test('the migrated schema is the one that was reviewed', async t => {
  const { database } = await emptyDatabase(t)
  await migrate(database)
  const { rows } = await sql<{ text: string }>`
    select format(E'create table %s (\n%s\n)%s;\n%s', c.relname, (
      select string_agg(line, E',\n' order by part, attnum, contype, conname) from (
        select 1 as part, attnum, null::"char" as contype, null::name as conname,
          format('  %s %s', attname, format_type(atttypid, atttypmod)) || case when attnotnull then ' not null' else '' end ||
            case when attidentity <> '' then ' generated by default as identity'
              else coalesce(' default ' || pg_get_expr(adbin, adrelid), '') end as line
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        union all
        select 2, null, contype, conname, format('  constraint %s %s', conname, pg_get_constraintdef(k.oid))
        from pg_constraint k where k.conrelid = c.oid and contype <> 'n'
      ) lines
    ), ' with (' || array_to_string(c.reloptions, ', ') || ')', (
      select string_agg(pg_get_indexdef(i.oid) || E';\n', '' order by i.relname)
      from pg_index x join pg_class i on i.oid = x.indexrelid
      where x.indrelid = c.oid and not exists (select from pg_constraint where conindid = i.oid and contype in ('p', 'u'))
    )) as text
    from pg_class c where ${OURS} order by c.relname`.execute(database.db)
  matchesGolden(t, 'test/golden/schema.sql', rows.map(({ text }) => text).join('\n'))

  const misnamed = sql`
    select c.relname, k.conname from ${OUR_CONSTRAINTS}
    where k.conname ~ '_(pkey|key|fkey|check\\d*)$' or not starts_with(k.conname, left(c.relname, 20)) or k.conname !~
      case k.contype when 'p' then '_pk$' when 'u' then '_unique$' when 'f' then '_fk$' else '_\\w+$' end`
  const named = "every constraint is named by its table and what it says, none by PostgreSQL's choice"
  t.strictSame((await misnamed.execute(database.db)).rows, [], named)

  // A partial index is sufficient if it excludes only rows without a reference.
  const unindexed = sql`
    select c.relname, k.conname from ${OUR_CONSTRAINTS} and k.contype = 'f' where not exists (
      select from pg_index x where x.indrelid = c.oid
        and (x.indkey::smallint[])[0:cardinality(k.conkey) - 1] = k.conkey
        and (x.indpred is null or pg_get_indexdef(x.indexrelid) ~ 'WHERE \\(\\w+ IS NOT NULL\\)$'))`
  t.strictSame((await unindexed.execute(database.db)).rows, [], 'an index begins with the columns of each foreign key')
})
