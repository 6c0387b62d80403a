import { execFileSync, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, chownSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { accountFor } from '../../src/db/embedded/home.js'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from './cluster.js'
import { ask, ServiceProcess } from './service.js'
import { AGENT_COUNT, makeWorld, range } from './world.js'

const disk = mkdtempSync(join(tmpdir(), 'agents-disk-'))
const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk])
t.teardown(() => {
  if (mounted.status === 0) execFileSync('umount', ['--lazy', disk])
  rmSync(disk, { recursive: true, force: true })
})

const skip = mounted.status !== 0 && 'no file system can be mounted here'

t.test('updates are 503 database_full while the disk is full, then stored again', { skip }, async t => {
  const cluster = await Cluster.create(t)
  const account = accountFor()
  if (account) chownSync(disk, account.uid, account.gid)
  chmodSync(disk, 0o700)
  await cluster.query(`create tablespace small location '${disk}'`, [], 'postgres')
  await cluster.query('alter database world set tablespace small', [], 'postgres')
  const { service, update } = await serve(t, cluster)
  const ballast = join(disk, 'ballast')
  while (spawnSync('sh', ['-c', `head -c 1000000 /dev/zero >> ${ballast}`]).status === 0);
  await eventually(async () => (await update(randomBytes(1_000).toString('hex'))) === 503)
  t.equal((await service.readiness()).status, 200, 'reads are answered')
  // The log comes through a pipe, so an answer can arrive before its log line.
  await eventually(async () => /"refusal":"database_full".*"outcome":"not_applied"/.test(service.log))
  rmSync(ballast)
  await eventually(async () => (await update('again')) === 200)
})

t.test('a read-only database: ready, reads are answered, updates are 503 not_applied', async t => {
  const cluster = await Cluster.create(t)
  const { service, env, update, read } = await serve(t, cluster)
  t.equal(await update('stored before'), 200)
  await configure(cluster, 'default_transaction_read_only', 'on')
  await eventually(async () => (await update('refused')) === 503)
  t.equal((await service.readiness()).status, 200)
  t.equal(await read(), 200)
  await eventually(async () => /"refusal":"database_unreachable".*"outcome":"not_applied"/.test(service.log))
  t.equal(await read(await ServiceProcess.start(env, t)), 200, 'also of a service that starts then')
  await configure(cluster, 'default_transaction_read_only', 'off')
  await eventually(async () => (await update('stored')) === 200)
  const refused = service.log.split('\n').filter(line => line.includes('"status":503') && line.includes('"cause"'))
  t.ok(refused.length > 0 && refused.every(line => !line.includes('"stack"')), 'no stack of what is understood')
})

t.test('200 for updates that wait for a standby: nothing ends that wait, however long it is', async t => {
  const cluster = await Cluster.create(t)
  const { service, update } = await serve(t, cluster)
  const ids = range(AGENT_COUNT)
  await Promise.all(ids.map(id => update('before', id)))
  await configure(cluster, 'synchronous_standby_names', 'nobody')
  const updates = Promise.all(ids.map(id => update('awaited', id)))
  await eventually(async () => {
    const waiting = `select from pg_stat_activity where wait_event = 'SyncRep' and clock_timestamp() > query_start + '1 s'::interval`
    return (await cluster.query(waiting)).length > 0
  })
  const shown = await cluster.query(`select from persona where description = 'awaited'`)
  t.equal(shown.length, 0, 'no reader sees what a failover would lose')
  await configure(cluster, 'synchronous_standby_names', '')
  for (const status of await updates) t.equal(status, 200)
  t.notMatch(service.log, /"outcome":"unknown"/)
})

/** Changes a setting of the running server. */
async function configure(cluster: Cluster, name: string, value: string): Promise<void> {
  await cluster.query(`alter system set ${name} = '${value}'`, [], 'postgres')
  await cluster.query('select pg_reload_conf()', [], 'postgres')
}

async function serve(t: Test, cluster: Cluster) {
  const token = await makeWorld(cluster.url())
  const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }
  const service = await ServiceProcess.start(env, t)
  const update = async (description: string, id = 1) =>
    (await ask(service, token, 'PATCH', `/persona/${id}?update_mask=description`, { body: { description } })).status
  const read = async (by = service) => (await ask(by, token, 'GET', '/persona/1')).status
  return { service, env, update, read }
}
