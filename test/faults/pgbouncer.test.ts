import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from './cluster.js'
import { findings } from './findings.js'
import { Load, type Sent } from './load.js'
import { Pooler } from './pooler.js'
import { ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

t.setTimeout(900_000)

t.test(
  'behind PgBouncer in transaction mode',
  { skip: !Pooler.isInstalled() && 'PgBouncer is not installed' },
  async t => {
    const cluster = await Cluster.create()
    t.teardown(() => cluster.remove())
    const token = await makeWorld(cluster.url())
    const pooler = await Pooler.start(cluster.port)
    t.teardown(() => pooler.stop())
    const service = await ServiceProcess.start({
      DATABASE_URL: pooler.url(),
      PREPARED_STATEMENTS: 'off',
      SECRET_KEYS: generateKey(),
      STATEMENT_TIMEOUT_MS: '1500',
      LOCK_TIMEOUT_MS: '500',
    })
    t.teardown(() => service.stop('SIGKILL'))

    t.test('200: updates, dry runs and validations of sixteen clients share six server connections', async t => {
      const load = new Load(() => service.port, token)
      const isDryRun = ({ dryRun, kind, status }: Sent) => dryRun && kind !== 'validation' && status === 200
      const isValidation = ({ kind, status }: Sent) => kind === 'validation' && status === 200
      load.start()
      await sleep(1_500)
      const deadline = performance.now() + 60_000
      while (!(load.sent.some(isDryRun) && load.sent.some(isValidation)) && performance.now() < deadline)
        await sleep(50)
      await load.stop()
      load.close()
      t.strictSame((await findings(cluster, load.sent, false)).faults, [])
      t.strictSame(
        load.sent.filter(({ status }) => status !== 200 && status !== 412),
        [],
      )
      t.ok(load.sent.some(isValidation))
      t.ok(load.sent.some(isDryRun))
    })

    t.test('503 overloaded, not applied: the lock and statement timeouts hold for single statements too', async t => {
      // The statement that authenticates waits for this lock, the one that writes would for the other.
      for (const lock of ['lock table token in access exclusive mode', 'lock table audit in access exclusive mode']) {
        const client = await cluster.connect()
        await client.query(`begin; ${lock}`)
        const load = new Load(() => service.port, token)
        load.start()
        await sleep(100)
        await load.stop()
        await client.query('rollback')
        await client.end()
        load.close()
        const updates = load.sent.filter(({ kind }) => kind !== 'validation' || lock.includes('token'))
        t.ok(updates.length > 0 && updates.every(({ reason }) => reason === 'overloaded'))
        t.ok(Math.max(...load.sent.map(({ durationMs }) => durationMs)) < 5_000)
        t.strictSame((await findings(cluster, load.sent, false)).faults, [])
      }
    })

    t.test('503 with a true outcome when PgBouncer is restarted under load', async t => {
      const load = new Load(() => service.port, token)
      load.start()
      for (let round = 0; round < 3; round++) {
        await sleep(400)
        await pooler.restart()
      }
      await sleep(1_000)
      await load.stop()
      load.close()
      t.strictSame((await findings(cluster, load.sent, false)).faults, [])
      t.ok(load.sent.slice(-16).some(({ status }) => status === 200))
    })
  },
)
