import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from '../faults/cluster.js'
import { ServiceProcess } from '../faults/service.js'
import { Updates } from '../faults/updates.js'
import { makeWorld } from '../faults/world.js'

const cluster = await Cluster.create()
t.teardown(() => cluster.remove())
const token = await makeWorld(cluster.url())
const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }

const POLL_MS = 500

/** Names one instance after the other, as a balancer does: it asks each for `/readyz` and leaves one that failed twice in a row. */
function balanced(t: Test, services: readonly ServiceProcess[]) {
  const instances = services.map(service => ({ service, failures: 2, passed: 0 }))
  const poll = async (one: (typeof instances)[number]) => {
    const { status } = await one.service.readiness(2_000)
    one.failures = status === 200 ? 0 : one.failures + 1
  }
  const timer = setInterval(() => instances.forEach(one => void poll(one)), POLL_MS)
  t.teardown(() => clearInterval(timer))
  let turn = 0
  const next = () => {
    const ready = instances.filter(({ failures }) => failures < 2)
    const one = ready[turn++ % ready.length]
    if (one === undefined) return 0
    one.passed++
    return one.service.port
  }
  return { instances, next }
}

t.test('SIGTERM to one of two instances under load, then to the other: no request fails', async t => {
  const drained = { ...env, DRAIN_DELAY_MS: String(6 * POLL_MS) }
  const services = await Promise.all([ServiceProcess.start(drained), ServiceProcess.start(drained)])
  t.teardown(() => Promise.all(services.map(service => service.stop('SIGKILL'))))
  const { instances, next } = balanced(t, services)
  await eventually(() => instances.every(({ failures }) => failures === 0))
  const updates = new Updates(next, token)
  t.teardown(() => updates.stop())
  await updates.more('200')
  for (const one of instances) {
    t.equal(await one.service.stop('SIGTERM'), 0)
    const before = one.passed
    one.service.launch()
    await one.service.ready()
    await eventually(() => one.passed > before)
  }
  await updates.stop()
  t.strictSame(await updates.wrong(cluster), [])
  t.equal(updates.count('200'), updates.told.size, 'none failed')
})

/** Resolves when this number of statements wait for a lock. */
async function waitingForLocks(count: number): Promise<void> {
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock'`
  while ((await cluster.query(waiting)).length < count) await sleep(20)
}

const WAITS = { LOCK_TIMEOUT_MS: '600000', STATEMENT_TIMEOUT_MS: '600000', DRAIN_DELAY_MS: '0' }

t.test('a request in work is finished after SIGTERM', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  await locked.query('begin; select from persona for update')
  const service = await ServiceProcess.start({ ...env, ...WAITS, SHUTDOWN_TIMEOUT_MS: '60000' })
  t.teardown(() => service.stop('SIGKILL'))
  const updates = new Updates(() => service.port, token)
  await waitingForLocks(1)
  const ended = service.stop('SIGTERM')
  const stopped = updates.stop()
  await sleep(300)
  await locked.query('rollback')
  t.equal(await ended, 0)
  await stopped
  t.ok(updates.count('200') > 0, 'requests in work were finished')
  t.strictSame(await updates.wrong(cluster), [])
})

t.test('503 unknown for what is in work longer than SHUTDOWN_TIMEOUT_MS, which does not hold up the end', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  await locked.query('begin; select from persona for update')
  const service = await ServiceProcess.start({ ...env, ...WAITS, SHUTDOWN_TIMEOUT_MS: '1000' })
  t.teardown(() => service.stop('SIGKILL'))
  const headers = { authorization: `Bearer ${token}` }
  const deletion = fetch(`http://127.0.0.1:${service.port}/persona/1`, { method: 'DELETE', headers })
  const updates = new Updates(() => service.port, token)
  await waitingForLocks(2)
  const stopped = updates.stop()
  t.equal(await service.stop('SIGTERM'), 1)
  t.match(await (await deletion).json(), { reason: 'draining', outcome: 'unknown' }, 'also without a body')
  await stopped
  await locked.query('rollback')
  t.ok(updates.count('503 unknown') > 0)
  t.notMatch(service.log, /the client went away/)
  t.strictSame(await updates.wrong(cluster), [])
})
