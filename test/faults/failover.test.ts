import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from './cluster.js'
import { MessageProxy } from './message-proxy.js'
import { ServiceProcess } from './service.js'
import { Updates } from './updates.js'
import { makeWorld } from './world.js'

t.test('no answer is false when the standby hangs, and when the primary dies and the standby takes over', async t => {
  const { primary, standby, token } = await primaryAndStandby()
  t.teardown(() => Promise.all([primary.remove(), standby.remove()]))
  // One address that leads to the leader, as HAProxy is.
  const leader = { host: '127.0.0.1', port: primary.port }
  const entry = await MessageProxy.open(leader)
  t.teardown(() => entry.close())
  const DATABASE_URL = `postgresql://postgres@127.0.0.1:${entry.port}/world?target_session_attrs=read-write&connect_timeout=1`
  const timeouts = { STATEMENT_TIMEOUT_MS: '1500', LOCK_TIMEOUT_MS: '700' }
  const service = await ServiceProcess.start({ DATABASE_URL, SECRET_KEYS: generateKey(), ...timeouts }, t)

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
  leader.port = standby.port
  entry.cut()
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
  await eventually(async () => (await primary.query(replicated, [], 'postgres')).length > 0)
  return { primary, standby, token }
}
