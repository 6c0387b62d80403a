import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { findings } from './findings.js'
import { Load } from './load.js'
import { primaryAndStandby } from './pair.js'
import { ServiceProcess } from './service.js'

const PATIENCE_MS = 120_000

t.setTimeout(900_000)

t.test(
  'no acknowledged update is lost when the standby hangs, and when the primary dies and the standby takes over',
  async t => {
    const { primary, standby, token } = await primaryAndStandby()
    t.teardown(() => Promise.all([primary.remove(), standby.remove()]))
    // One address that leads to the leader, as HAProxy is.
    const entry = { target: primary.port, near: new Set<Socket>() }
    const server = createServer(near => {
      entry.near.add(near)
      const far = connect(entry.target, '127.0.0.1')
      for (const [one, other] of [[near, far] as const, [far, near] as const]) {
        one.on('error', () => undefined).on('close', () => other.destroy())
      }
      near.pipe(far).pipe(near)
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    t.teardown(() => server.close())
    const service = await ServiceProcess.start({
      DATABASE_URL: `postgresql://postgres@127.0.0.1:${(server.address() as AddressInfo).port}/world?target_session_attrs=read-write`,
      SECRET_KEYS: generateKey(),
      DATABASE_CONNECT_TIMEOUT_MS: '1000',
      STATEMENT_TIMEOUT_MS: '1500',
      LOCK_TIMEOUT_MS: '700',
    })
    t.teardown(() => service.stop('SIGKILL'))
    const load = new Load(() => service.port, token)
    t.teardown(() => load.close())
    load.start()
    await sleep(500)

    standby.freeze()
    await sleep(7_000)
    standby.thaw()
    const unconfirmed = load.sent.filter(({ outcome }) => outcome === 'unknown').length
    t.comment(`standby hung for 7 s: ${unconfirmed} answers of unknown outcome`)
    await success(load, performance.now())
    await sleep(500)

    const killedAt = performance.now()
    await primary.kill()
    await sleep(300)
    await standby.query('select pg_promote()', [], 'postgres')
    entry.target = standby.port
    for (const near of entry.near) near.destroy()
    const promotedAt = performance.now()
    const first = await success(load, killedAt)
    await sleep(1_000)
    await load.stop()
    const acknowledged = load.sent.filter(({ status, dryRun }) => status === 200 && !dryRun).length
    t.comment(
      `time to first success: ${Math.round(first - killedAt)} ms after the primary died, ` +
        `${Math.round(first - promotedAt)} ms after the promotion; ${acknowledged} updates acknowledged`,
    )

    const { faults } = await findings(standby, load.sent, false)
    t.strictSame(faults, [])
    t.ok(acknowledged > 20)
  },
)

/** When the first update that was sent after a moment was acknowledged. */
async function success(load: Load, after: number): Promise<number> {
  const deadline = performance.now() + PATIENCE_MS
  while (performance.now() < deadline) {
    const acknowledged = load.sent.filter(({ status, dryRun }) => status === 200 && !dryRun)
    const times = acknowledged.filter(({ endedAt, durationMs }) => endedAt - durationMs > after)
    if (times.length > 0) return Math.min(...times.map(({ endedAt }) => endedAt))
    await sleep(10)
  }
  throw new Error('no update was acknowledged any more')
}
