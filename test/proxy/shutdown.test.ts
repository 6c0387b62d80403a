import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from '../faults/cluster.js'
import { ServiceProcess } from '../faults/service.js'
import { Updates } from '../faults/updates.js'
import { makeWorld } from '../faults/world.js'
import { Balancer, POLL_MS } from './balancer.js'

const cluster = await Cluster.create()
t.teardown(() => cluster.remove())
const token = await makeWorld(cluster.url())
const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }

t.test('SIGTERM to one of two instances under load, then to the other: no request fails', async t => {
  const drained = { ...env, DRAIN_DELAY_MS: String(3 * POLL_MS) }
  const services = await Promise.all([ServiceProcess.start(drained), ServiceProcess.start(drained)])
  const balancer = await Balancer.open(services.map(({ port }) => port))
  const updates = new Updates(() => balancer.port, token)
  t.teardown(async () => {
    await updates.stop()
    await balancer.close()
    await Promise.all(services.map(service => service.stop('SIGKILL')))
  })
  await updates.more('200')
  for (const service of services) {
    t.equal(await service.stop('SIGTERM'), 0)
    const before = balancer.passed.get(service.port)
    service.launch()
    await service.ready()
    while (balancer.passed.get(service.port) === before) await sleep(50)
  }
  await updates.stop()
  t.strictSame(await updates.wrong(cluster), [])
  t.equal(updates.count('200'), updates.told.size, 'none failed')
  t.ok([...balancer.passed.values()].every(count => count > 0))
})

/** Resolves when this number of statements wait for a lock. */
async function waitingForLocks(count: number): Promise<void> {
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock'`
  while ((await cluster.query(waiting)).length < count) await sleep(20)
}

t.test('a request in work is finished after SIGTERM; a later signal ends the process at once', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  const long = { LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000', SHUTDOWN_TIMEOUT_MS: '60000' }
  for (const signals of [1, 2]) {
    await locked.query('begin; select from persona for update')
    const service = await ServiceProcess.start({ ...env, ...long, DRAIN_DELAY_MS: '0' })
    const updates = new Updates(() => service.port, token)
    await waitingForLocks(1)
    const ended = service.stop('SIGTERM')
    const stopped = updates.stop()
    await sleep(1_300) // sooner, it would count as the same stop
    if (signals === 2) {
      t.not(await service.stop('SIGTERM'), 0)
      await locked.query('rollback')
    } else {
      await locked.query('rollback')
      t.equal(await ended, 0)
    }
    await ended
    await stopped
    if (signals === 1) t.ok(updates.count('200') > 0, 'requests in work were finished')
    t.strictSame(await updates.wrong(cluster), [])
  }
})

t.test('what is in work longer than SHUTDOWN_TIMEOUT_MS does not hold up the end; nothing false is said', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  await locked.query('begin; select from persona for update')
  const waits = { LOCK_TIMEOUT_MS: '600000', STATEMENT_TIMEOUT_MS: '600000' }
  const service = await ServiceProcess.start({ ...env, ...waits, DRAIN_DELAY_MS: '0', SHUTDOWN_TIMEOUT_MS: '1000' })
  t.teardown(() => service.stop('SIGKILL'))
  const updates = new Updates(() => service.port, token)
  await waitingForLocks(1)
  const stopped = updates.stop()
  t.equal(await service.stop('SIGTERM'), 1)
  await stopped
  await locked.query('rollback')
  t.ok(updates.count('503 unknown') > 0)
  t.notMatch(service.log, /the client went away/)
  t.strictSame(await updates.wrong(cluster), [])
})

t.test('503 unknown of a deletion that is in work then, though it has no body: it may be stored', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  await locked.query('begin; select from persona for update')
  const waits = { LOCK_TIMEOUT_MS: '600000', STATEMENT_TIMEOUT_MS: '600000' }
  const service = await ServiceProcess.start({ ...env, ...waits, DRAIN_DELAY_MS: '0', SHUTDOWN_TIMEOUT_MS: '1000' })
  t.teardown(() => service.stop('SIGKILL'))
  const headers = { authorization: `Bearer ${token}` }
  const deletion = fetch(`http://127.0.0.1:${service.port}/persona/1`, { method: 'DELETE', headers })
  await waitingForLocks(1)
  const stopped = service.stop('SIGTERM')
  t.match(await (await deletion).json(), { reason: 'draining', outcome: 'unknown' })
  await locked.query('rollback')
  await stopped
})
