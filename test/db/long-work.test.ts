import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { ConnectionLost } from '../../src/db/connection/database-error.js'
import { Database } from '../../src/db/database.js'
import { limitStatements } from '../../src/db/transaction.js'
import { addressOf, testDatabase } from '../postgres.js'

const { url } = await testDatabase(t)

function opened(t: Test, statementTimeoutMs: number, responseMarginMs: number) {
  const limits = { poolSize: 4, lockTimeoutMs: 200, statementTimeoutMs, responseMarginMs }
  const database = new Database({ address: addressOf(url), preparedStatements: true, ...limits })
  t.teardown(() => database.close())
  return database
}

t.test('a page of pruning that takes longer than a statement of a request ends well', async t => {
  const database = opened(t, 300, 100)
  await database.db.transaction().execute(async trx => {
    await limitStatements(trx, 60_000)
    await sql`select pg_sleep(1)`.execute(trx)
  })
  await t.rejects(
    sql`select pg_sleep(1)`.execute(database.db),
    { code: '57014' },
    'the limit ended with the transaction',
  )
})

t.test('a statement that the client gives up is ended on the server', async t => {
  const cut = opened(t, 60_000, -59_700) // below zero the client gives up before the server does
  await t.rejects(sql`select pg_sleep(50)`.execute(cut.db), ConnectionLost)
  const running = sql<{ found: number }>`
    select count(*)::integer as found from pg_stat_activity
    where state = 'active' and query = 'select pg_sleep(50)' and datname = current_database()`
  const { db } = opened(t, 300, 100)
  for (let tries = 0; tries < 100; tries++) {
    const { rows } = await running.execute(db)
    if (rows[0]?.found === 0) return
    await sleep(100)
  }
  t.fail('the statement still runs on the server after ten seconds')
})
