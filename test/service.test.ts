import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { untilWaiting } from './eventually.js'
import { buildService } from './test-service.js'
import { worldDatabase } from './world.js'

/** Starts a service that has checked the schema and waits before it checks the key ring. `go` lets it continue. */
async function checkingItsRing(t: Test) {
  const { database } = await worldDatabase(t)
  const holding = await database.db.startTransaction().execute()
  await sql`lock table tool_header in access exclusive mode`.execute(holding)
  const { service } = await buildService(t, database)
  const started = service.start()
  await untilWaiting(database.db)
  return { service, started, go: () => holding.commit().execute() }
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
