import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from '../faults/cluster.js'
import { findings } from '../faults/findings.js'
import { Load } from '../faults/load.js'
import { ServiceProcess } from '../faults/service.js'
import { makeWorld } from '../faults/world.js'
import { Balancer } from './balancer.js'

t.setTimeout(900_000)

const cluster = await Cluster.create()
t.teardown(() => cluster.remove())
const token = await makeWorld(cluster.url())
const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }

t.test('SIGTERM to one of two instances under load, then to the other: no request fails', async t => {
  const services = await Promise.all([ServiceProcess.start(env), ServiceProcess.start(env)])
  const balancer = await Balancer.open(services.map(({ port }) => port))
  const load = new Load(() => balancer.port, token)
  t.teardown(async () => {
    await load.stop()
    load.close()
    await balancer.close()
    await Promise.all(services.map(service => service.stop('SIGKILL')))
  })
  load.start()
  await sleep(300)
  for (const service of services) {
    const started = performance.now()
    t.equal(await service.stop('SIGTERM'), 0)
    t.comment(`stopped within ${Math.round(performance.now() - started)} ms`)
    const before = balancer.passed.get(service.port)
    service.launch()
    await service.ready()
    while (balancer.passed.get(service.port) === before) await sleep(50)
  }
  await load.stop()
  t.strictSame((await findings(cluster, load.sent, false)).faults, [])
  const failed = load.sent.filter(({ status }) => status !== 200 && status !== 412)
  t.strictSame(
    failed.map(({ status, text }) => `${status} ${text}`),
    [],
  )
  t.ok([...balancer.passed.values()].every(count => count > 0))
  t.comment(`${load.sent.length} requests, ${failed.length} failed`)
})

t.test('a request in work is finished after SIGTERM; a later signal ends the process at once', async t => {
  const locked = await cluster.connect()
  t.teardown(() => locked.end())
  const settings = {
    ...env,
    DRAIN_DELAY_MS: '0',
    LOCK_TIMEOUT_MS: '20000',
    STATEMENT_TIMEOUT_MS: '20000',
    SHUTDOWN_TIMEOUT_MS: '20000',
  }
  for (const signals of [1, 2]) {
    await locked.query('begin; select from persona for update; select from tool for update')
    const service = await ServiceProcess.start(settings)
    const load = new Load(() => service.port, token)
    load.start()
    await sleep(700)
    const ended = service.stop('SIGTERM')
    const stopped = load.stop()
    await sleep(1_300) // sooner, it would count as the same stop
    const secondAt = performance.now()
    if (signals === 2) t.not(await service.stop('SIGTERM'), 0)
    else await locked.query('rollback')
    const code = await ended
    const tookMs = performance.now() - secondAt // well before SHUTDOWN_TIMEOUT_MS
    await stopped
    load.close()
    if (signals === 1) t.equal(code, 0)
    else await locked.query('rollback')
    t.ok(tookMs < 15_000, `${signals} signals: ${Math.round(tookMs)} ms`)
    const finished = load.sent.filter(({ status, method }) => status === 200 && method !== 'POST').length
    if (signals === 1) t.ok(finished > 0, `${finished} requests in work were finished`)
    t.strictSame((await findings(cluster, load.sent, true)).faults, [])
  }
})

t.test(
  'what is in work longer than SHUTDOWN_TIMEOUT_MS does not hold up the end; nothing is said that is not so',
  async t => {
    const locked = await cluster.connect()
    t.teardown(() => locked.end())
    await locked.query('begin; select from persona for update; select from tool for update')
    const waits = { LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000' }
    const service = await ServiceProcess.start({ ...env, ...waits, DRAIN_DELAY_MS: '0', SHUTDOWN_TIMEOUT_MS: '1000' })
    t.teardown(() => service.stop('SIGKILL'))
    const load = new Load(() => service.port, token)
    load.start()
    await sleep(700)
    const stopped = load.stop()
    const started = performance.now()
    t.equal(await service.stop('SIGTERM'), 1)
    t.ok(performance.now() - started < 20_000, 'well before the minute that the requests would wait')
    await stopped
    load.close()
    await locked.query('rollback')
    t.ok(load.sent.some(({ status }) => status === 0))
    t.strictSame((await findings(cluster, load.sent, true)).faults, [])
  },
)

t.test('SIGTERM stops the embedded server too, in bounded time', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'agents-embedded-'))
  // The server's own account has to reach it.
  chmodSync(folder, 0o755)
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const { PG_BIN_DIR = '' } = process.env
  const service = await ServiceProcess.start({ DATA_DIR: folder, PG_BIN_DIR, DRAIN_DELAY_MS: '0' })
  const pidFile = join(folder, 'postgresql', 'data', 'postmaster.pid')
  t.ok(existsSync(pidFile))
  const started = performance.now()
  t.equal(await service.stop('SIGTERM'), 0)
  t.ok(performance.now() - started < 15_000)
  t.notOk(existsSync(pidFile))
})
