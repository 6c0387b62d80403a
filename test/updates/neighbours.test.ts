import { sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { appOver } from '../app.js'
import { worldDatabase } from '../world.js'

/*
 * Updates of other agents: slow statements and locks of other sessions hold up nobody else while connections are free.
 * Every test waits for an answer while what would hold it up goes on.
 */

const env = { DATABASE_POOL_SIZE: '12', STATEMENT_TIMEOUT_MS: '120000', LOCK_TIMEOUT_MS: '120000' }
const world = await worldDatabase(t)
const database = openUrl(world.url, readConfig(env))
t.teardown(() => database.close())
const { call } = await appOver(t, database, env)
const token = await world.token('admin@example.com')
const patch = (id: number, body: object) =>
  call('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, { token, body })

/** A session that is no connection of the service; `end` rolls back what it did. */
async function session() {
  const client = new pg.Client({ connectionString: world.url })
  await client.connect()
  t.teardown(() => client.end().catch(() => undefined))
  return client
}

/** Waits until this number of connections of the service wait for locks. */
async function waiting(count: number): Promise<void> {
  const observer = await session()
  for (;;) {
    const { rows } = await observer.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    if (rows.length >= count) break
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  await observer.end()
}

t.test('200 for an update while slow statements of other agents run on all connections but two', async t => {
  const { db } = database
  const slow = [1, 2, 3, 4]
  await sql`create function slow() returns trigger language plpgsql as
    $$begin perform pg_advisory_xact_lock_shared(4711); return new; end$$`.execute(db)
  await sql`create trigger slow before update on persona for each row when (new.description like 'slow%')
    execute function slow()`.execute(db)
  await patch(5, { description: 'notes the first use of the token' })
  const holder = await session()
  await holder.query('select pg_advisory_lock(4711)')
  const held = slow.map(async (id, i) => {
    if (i > 0) await waiting(i)
    return (await patch(id, { description: `slow ${id}` })).statusCode
  })
  await waiting(slow.length)
  const [beside, slowToo] = [patch(8, { description: 'sent together' }), patch(9, { description: 'slow 9' })]
  t.equal((await beside).statusCode, 200, 'beside a slow one')
  for (let round = 0; round < 5; round++) t.equal((await patch(5, { description: `of ${round}` })).statusCode, 200)
  await holder.end()
  t.strictSame(
    await Promise.all(held),
    slow.map(() => 200),
  )
  t.equal((await slowToo).statusCode, 200)
})

t.test(
  '200 for updates that need a lock of their own row while other agents are locked by another session',
  async t => {
    const locked = [1, 2, 3, 4]
    const holder = await session()
    await holder.query('begin')
    await holder.query('select id from persona where id = any($1) for update', [locked])
    const held = locked.map(async id => (await patch(id, { description: `late ${id}` })).statusCode)
    await waiting(locked.length)
    const other = await session()
    for (const tool_ids of [[10], [], [10, 11]]) t.equal((await patch(5, { tool_ids })).statusCode, 200)
    await other.query('begin')
    await other.query('select id from persona where id = 8 for update')
    const more = patch(8, { description: 'beyond those that may wait' })
    t.equal((await patch(5, { tool_ids: [] })).statusCode, 200)
    await other.end()
    await holder.query('commit')
    t.strictSame(
      await Promise.all(held),
      locked.map(() => 200),
    )
    t.equal((await more).statusCode, 200)
  },
)
