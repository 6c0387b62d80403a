import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import t, { type Test } from 'tap'
import { readConfig } from '../src/config.js'
import type { Tables } from '../src/db/tables.js'
import { makeLogger } from '../src/http/logging.js'
import { Lifecycle } from '../src/lifecycle.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { VERSION } from '../src/version.js'
import { TEST_SECRET_KEYS, worldDatabase } from './world.js'

/** A service whose start waits, with the schema seen and the key ring not yet checked; `go` lets it go on. */
async function checkingItsRing(t: Test) {
  const { database } = await worldDatabase(t)
  const holding = await database.db.startTransaction().execute()
  await sql`lock table tool_header in access exclusive mode`.execute(holding)
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const log = makeLogger('silent')
  const service = new Lifecycle({ config: readConfig({}), version: VERSION, database, ring, migrates: false, log })
  const started = service.start()
  for (let tries = 0; !(await somebodyWaits(database.db)); tries++) {
    if (tries > 500) throw new Error('the start does not come to the key ring')
    await sleep(10)
  }
  return { service, started, go: () => holding.commit().execute() }
}

async function somebodyWaits(db: Kysely<Tables>): Promise<boolean> {
  const { rows } = await sql`
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db)
  return rows.length > 0
}

t.test('not ready before the key ring is checked: until then operations would answer 503', async t => {
  const { service, started, go } = await checkingItsRing(t)
  t.match(await service.readiness(), { status: 'unavailable', reason: 'database_unreachable' })
  await go()
  t.equal(await started, true)
  t.match(await service.readiness(), { status: 'ready' })
})

t.test('a service told to stop while it starts does not begin to serve', async t => {
  const { service, started, go } = await checkingItsRing(t)
  service.drain()
  await go()
  t.equal(await started, false)
  t.match(await service.readiness(), { status: 'unavailable', reason: 'draining' })
})
