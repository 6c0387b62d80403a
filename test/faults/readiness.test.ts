import { execFileSync, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, chownSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { accountFor } from '../../src/db/embedded/home.js'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from './cluster.js'
import { ServiceProcess } from './service.js'
import { AGENT_COUNT, makeWorld, range } from './world.js'

const PATIENCE_MS = 120_000

const disk = mkdtempSync(join(tmpdir(), 'agents-disk-'))
const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk])
t.teardown(() => {
  if (mounted.status === 0) execFileSync('umount', ['--lazy', disk])
  rmSync(disk, { recursive: true, force: true })
})

t.test(
  'updates are 503 database_full while the disk is full, and stored again once there is room',
  { skip: mounted.status !== 0 && 'no file system can be mounted here' },
  async t => {
    const cluster = await Cluster.create()
    t.teardown(() => cluster.remove())
    const account = accountFor()
    if (account) chownSync(disk, account.uid, account.gid)
    chmodSync(disk, 0o700)
    await cluster.query(`create tablespace small location '${disk}'`, [], 'postgres')
    await cluster.query('alter database world set tablespace small', [], 'postgres')
    const { service, update } = await serve(cluster)
    t.teardown(() => service.stop('SIGKILL'))
    const ballast = join(disk, 'ballast')
    while (spawnSync('sh', ['-c', `head -c 1000000 /dev/zero >> ${ballast}`]).status === 0);
    await until(async () => (await update(randomBytes(1_000).toString('hex'))) === 503)
    t.equal((await service.readiness()).status, 200, 'reads are answered')
    // The answer may be here before the line of the log, which comes through a pipe.
    await until(async () => /"refusal":"database_full".*"outcome":"not_applied"/.test(service.log))
    rmSync(ballast)
    await until(async () => (await update('again')) === 200)
  },
)

t.test('a read-only database: ready, reads are answered, updates are 503 not_applied', async t => {
  const cluster = await Cluster.create()
  t.teardown(() => cluster.remove())
  const { service, env, update, read } = await serve(cluster)
  t.teardown(() => service.stop('SIGKILL'))
  t.equal(await update('stored before'), 200)
  await setReadOnly(cluster, 'on')
  await until(async () => (await update('refused')) === 503)
  t.equal((await service.readiness()).status, 200)
  t.equal(await read(), 200)
  await until(async () => /"refusal":"database_unreachable".*"outcome":"not_applied"/.test(service.log))
  const second = await ServiceProcess.start(env)
  t.teardown(() => second.stop('SIGKILL'))
  t.equal(await read(second.port), 200, 'also of a service that starts then')
  await setReadOnly(cluster, 'off')
  await until(async () => (await update('stored')) === 200)
  const refused = service.log.split('\n').filter(line => line.includes('"status":503') && line.includes('"cause"'))
  t.ok(refused.length > 0 && refused.every(line => !line.includes('"stack"')), 'no stack of what is understood')
})

t.test('200 for updates that wait for a standby: nothing ends that wait, however long it is', async t => {
  const cluster = await Cluster.create()
  t.teardown(() => cluster.remove())
  const { service, update } = await serve(cluster)
  t.teardown(() => service.stop('SIGKILL'))
  const ids = range(AGENT_COUNT)
  await Promise.all(ids.map(id => update('before', id)))
  const wait = async (standby: string) => {
    await cluster.query(`alter system set synchronous_standby_names = '${standby}'`, [], 'postgres')
    await cluster.query('select pg_reload_conf()', [], 'postgres')
  }
  await wait('nobody')
  const updates = Promise.all(ids.map(id => update('awaited', id)))
  await until(async () => {
    const waiting = `select from pg_stat_activity where wait_event = 'SyncRep' and clock_timestamp() > query_start + '1 s'::interval`
    return (await cluster.query(waiting)).length > 0
  })
  const shown = await cluster.query(`select from persona where description = 'awaited'`)
  t.equal(shown.length, 0, 'no reader sees what a failover would lose')
  await wait('')
  t.strictSame(
    await updates,
    ids.map(() => 200),
  )
  t.notMatch(service.log, /"outcome":"unknown"/)
})

async function setReadOnly(cluster: Cluster, value: 'on' | 'off'): Promise<void> {
  await cluster.query(`alter system set default_transaction_read_only = ${value}`, [], 'postgres')
  await cluster.query('select pg_reload_conf()', [], 'postgres')
}

async function serve(cluster: Cluster) {
  const token = await makeWorld(cluster.url())
  const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }
  const service = await ServiceProcess.start(env)
  const update = async (description: string, id = 1) => {
    const response = await fetch(`http://127.0.0.1:${service.port}/persona/${id}?update_mask=description`, {
      method: 'PATCH',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ description }),
    })
    await response.text()
    return response.status
  }
  const read = async (port = service.port) => {
    const response = await fetch(`http://127.0.0.1:${port}/persona/1`, {
      headers: { authorization: `Bearer ${token}` },
    })
    await response.text()
    return response.status
  }
  return { service, env, update, read }
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('it did not come to pass')
    await sleep(20)
  }
}
