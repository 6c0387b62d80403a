import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from '../faults/cluster.js'
import { ask, ServiceProcess } from '../faults/service.js'
import { Updates } from '../faults/updates.js'
import { makeWorld } from '../faults/world.js'

const cluster = await Cluster.create(t)
const token = await makeWorld(cluster.url())
const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }

const POLL_MS = 500

/** Chooses ready instances in turn, like a load balancer. Polls `/readyz` and skips an instance that failed twice in a row. */
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
  const services = await Promise.all([ServiceProcess.start(drained, t), ServiceProcess.start(drained, t)])
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

const WAITS = { LOCK_TIMEOUT_MS: '600000', STATEMENT_TIMEOUT_MS: '600000', DRAIN_DELAY_MS: '0' }

/** Starts a service whose updates wait until the transaction on `locked` ends. */
async function waiting(t: Test, timeoutMs: number) {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  await locked.query('begin; select from persona for update')
  const settings = { ...env, ...WAITS, SHUTDOWN_TIMEOUT_MS: String(timeoutMs) }
  return { locked, service: await ServiceProcess.start(settings, t) }
}

t.test('a request in progress is finished after SIGTERM', async t => {
  const { locked, service } = await waiting(t, 60_000)
  const updates = new Updates(() => service.port, token)
  await cluster.lockWaits()
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
  const { locked, service } = await waiting(t, 1_000)
  const deletion = ask(service, token, 'DELETE', '/persona/1')
  const updates = new Updates(() => service.port, token)
  await cluster.lockWaits(2)
  const stopped = updates.stop()
  t.equal(await service.stop('SIGTERM'), 1)
  t.match((await deletion).body, { reason: 'draining', outcome: 'unknown' }, 'also without a body')
  await stopped
  await locked.query('rollback')
  t.ok(updates.count('503 unknown') > 0)
  t.notMatch(service.log, /the client went away/)
  t.strictSame(await updates.wrong(cluster), [])
})
