import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from './cluster.js'
import { ask, ServiceProcess } from './service.js'
import { AGENT_COUNT, makeWorld, range } from './world.js'

/** The maximum number of concurrent requests of one token: half of the pool. */
const UPDATES = 5

const cluster = await Cluster.create(t)
const token = await makeWorld(cluster.url())
const service = await ServiceProcess.start({ DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }, t)

async function update(id: number) {
  const sent = { body: { description: `update ${++updates}` } }
  const { status, body } = await ask(service, token, 'PATCH', `/persona/${id}?update_mask=description`, sent)
  return { status, reason: body.reason, outcome: body.outcome }
}

let updates = 0

t.test('503 with the default settings while the server hangs, and 200 afterwards', async t => {
  await Promise.all(range(AGENT_COUNT).map(update)) // opens all connections
  const holder = await cluster.connect()
  await holder.query('begin; lock table audit in share mode')
  const writing = update(1) // the update's only statement, which also commits, waits for the lock
  await cluster.lockWaits()
  await cluster.freeze()
  t.teardown(() => cluster.thaw())
  const others = Promise.all(range(UPDATES).map(update))
  t.match(await service.readiness(), { status: 503, reason: 'database_unreachable' })
  t.match(await writing, { status: 503, reason: 'database_unreachable', outcome: 'unknown' })
  for (const answer of await others) t.match(answer, { status: 503, outcome: 'not_applied' })
  cluster.thaw()
  await holder.query('rollback')
  await holder.end()
  t.equal((await update(2)).status, 200)
})
