import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from './cluster.js'
import { ServiceProcess } from './service.js'
import { Updates } from './updates.js'
import { makeWorld } from './world.js'

t.test('no answer is false when the standby hangs, and when the primary dies and the standby takes over', async t => {
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
    DATABASE_URL: `postgresql://postgres@127.0.0.1:${(server.address() as AddressInfo).port}/world?target_session_attrs=read-write&connect_timeout=1`,
    SECRET_KEYS: generateKey(),
    STATEMENT_TIMEOUT_MS: '1500',
    LOCK_TIMEOUT_MS: '700',
    RATE_LIMIT_PER_MINUTE: '0',
  })
  t.teardown(() => service.stop('SIGKILL'))

  const updates = new Updates(() => service.port, token)
  await updates.more('200')
  standby.freeze()
  await updates.more('503 unknown', 1)
  standby.thaw()
  await updates.more('200')
  await primary.kill()
  const receiver = 'select pid from pg_stat_wal_receiver'
  await eventually(async () => (await standby.query(receiver, [], 'postgres')).length === 0)
  await standby.query('select pg_promote()', [], 'postgres')
  entry.target = standby.port
  for (const near of entry.near) near.destroy()
  await updates.more('200', 20)
  await updates.stop()
  t.ok(updates.count('503 unknown') > 0)
  t.strictSame(await updates.wrong(standby), [])
  t.equal(updates.count('cut'), 0)
})

/** A primary that commits only what its standby has, and that standby. */
async function primaryAndStandby() {
  const primary = await Cluster.create()
  const token = await makeWorld(primary.url())
  await primary.stop()
  const standby = await Cluster.copyOf(primary, 'second')
  primary.configure('synchronous_standby_names', 'second')
  await primary.start()
  standby.launch()
  await standby.ready()
  const replicated = `select from pg_stat_replication where state = 'streaming'`
  while ((await primary.query(replicated, [], 'postgres')).length === 0) await sleep(50)
  return { primary, standby, token }
}
