import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { ConnectionLost } from '../../src/db/connection/database-error.js'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { Database } from '../../src/db/database.js'
import { MIGRATIONS, migrate } from '../../src/db/migrate.js'
import { limitStatements } from '../../src/db/time-limit.js'
import { testDatabase } from '../postgres.js'

type WithTeardown = Parameters<typeof testDatabase>[0]

/** A database with limits so short that work of more than half a second is long. */
async function opened(t: WithTeardown) {
  const { url } = await testDatabase(t)
  return { url, database: openedAt(t, url, { statementTimeoutMs: 300, responseMarginMs: 100 }) }
}

function openedAt(t: WithTeardown, url: string, limits: { statementTimeoutMs: number; responseMarginMs: number }) {
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join())
  const database = new Database({
    url: parsed.url,
    poolSize: 4,
    connectTimeoutMs: 5_000,
    lockTimeoutMs: 200,
    preparedStatements: true,
    ...limits,
  })
  t.teardown(() => database.close())
  return database
}

t.test('a step that takes the limit off its statements is waited for, one that sets it is cut by it', async t => {
  const { database } = await opened(t)
  await database.db.transaction().execute(async trx => {
    await limitStatements(trx, 0, 'transaction')
    await sql`select pg_sleep(1)`.execute(trx)
  })
  await t.rejects(sql`select pg_sleep(1)`.execute(database.db), { code: '57014' }, 'the limit is back')
  await database.db.connection().execute(async connection => {
    await limitStatements(connection, 2_000, 'connection')
    await sql`select pg_sleep(1)`.execute(connection)
    await limitStatements(connection, undefined, 'connection')
    await t.rejects(sql`select pg_sleep(1)`.execute(connection), { code: '57014' })
  })
})

t.test(
  '`create index concurrently` of a migration waits for a transaction that is longer than a statement',
  async t => {
    const { url, database } = await opened(t)
    await migrate(database)
    const holder = new pg.Client({ connectionString: url })
    await holder.connect()
    t.teardown(() => holder.end())
    await holder.query('begin; update persona set name = name; lock table persona in row exclusive mode')
    const prepare = async (db: Kysely<unknown>) => {
      await sql`create index concurrently later on persona (name)`.execute(db)
    }
    const steps = { ...MIGRATIONS, '9000_later': { prepare, up: async () => {}, oldestProgram: '1.0.0', locks: [] } }
    const migrating = migrate(database, { steps })
    await sleep(1_500)
    await holder.query('commit')
    t.strictSame(await migrating, ['9000_later'])
  },
)

t.test('a statement that the client gives up is ended on the server', async t => {
  const { url, database } = await opened(t)
  // Below zero the client gives up before the server does.
  const cut = openedAt(t, url, { statementTimeoutMs: 60_000, responseMarginMs: -59_700 })
  await t.rejects(sql`select pg_sleep(50)`.execute(cut.db), ConnectionLost)
  const running = sql<{ found: number }>`
    select count(*)::integer as found from pg_stat_activity
    where state = 'active' and query = 'select pg_sleep(50)' and datname = current_database()`
  for (let tries = 0; tries < 100; tries++) {
    const { rows } = await running.execute(database.db)
    if (rows[0]?.found === 0) return
    await sleep(100)
  }
  t.fail('the statement still runs on the server after ten seconds')
})
