import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import type { Cluster } from './cluster.js'
import { findings } from './findings.js'
import { Load } from './load.js'
import { type Pair, primaryAndStandby } from './pair.js'
import { ServiceProcess } from './service.js'

const PATIENCE_MS = 120_000

t.setTimeout(900_000)

t.test('a leader that was deposed is left though it goes on answering', async t => {
  const pair = await primaryAndStandby()
  t.teardown(() => Promise.all([pair.primary.remove(), pair.standby.remove()]))
  const service = await startOn(pair)
  t.teardown(() => service.stop('SIGKILL'))
  const load = new Load(() => service.port, pair.token)
  t.teardown(() => load.close())
  load.start()
  await until(async () => acknowledged(load) > 0)

  t.test('503 of the readiness probe while commits wait for a standby that is gone', async t => {
    pair.standby.freeze()
    await until(async () => (await service.readiness()).status === 503)
    t.match(await service.readiness(), { status: 503, reason: 'database_unreachable' })
    pair.standby.thaw()
    await until(async () => (await service.readiness()).status === 200)
    t.equal((await service.readiness()).status, 200)
  })

  t.test('updates go to the promoted one, and none that was acknowledged is lost', async t => {
    await pair.standby.query('select pg_promote()', [], 'postgres')
    const promotedAt = performance.now()
    await until(async () => lastAcknowledged(load) > promotedAt + 500)
    t.comment(`first success ${Math.round(firstAcknowledged(load, promotedAt) - promotedAt)} ms after the promotion`)
    await until(async () => (await service.readiness()).status === 200)
    await sleep(1_000)
    await load.stop()
    const [old] = await pair.primary.query<{ setting: string }>(
      `select current_setting('transaction_read_only') as setting`,
    )
    t.equal(old?.setting, 'off', 'the old leader still says that it accepts writes')
    t.strictSame((await findings(pair.standby, load.sent, false)).faults, [])
    const sessions = await pair.primary.query(
      `select from pg_stat_activity where application_name like 'agent-tool-management/%' and state <> 'active'`,
    )
    t.equal(sessions.length, 0, 'nothing is left on the old one but what waits there for its standby')
  })
})

t.test('an asynchronous leader that was deposed is left though nothing fails on it', async t => {
  const pair = await primaryAndStandby({ synchronous: false })
  t.teardown(() => Promise.all([pair.primary.remove(), pair.standby.remove()]))
  const service = await startOn(pair)
  t.teardown(() => service.stop('SIGKILL'))
  const load = new Load(() => service.port, pair.token)
  t.teardown(() => load.close())
  load.start()
  await until(async () => acknowledged(load) > 0)
  await pair.standby.query('select pg_promote()', [], 'postgres')
  await until(async () => (await sessionsOn(pair.standby)) > 0 && (await sessionsOn(pair.primary)) === 0)
  const stored = await auditRows(pair.primary)
  const success = acknowledged(load)
  await until(async () => acknowledged(load) > success + 20)
  await load.stop()
  t.equal(await auditRows(pair.primary), stored, 'nothing more is written to the old one')
})

async function startOn({ primary, standby }: Pair): Promise<ServiceProcess> {
  return await ServiceProcess.start({
    DATABASE_URL: `postgresql://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/world`,
    SECRET_KEYS: generateKey(),
    DATABASE_CONNECT_TIMEOUT_MS: '2000',
  })
}

function acknowledged(load: Load): number {
  return load.sent.filter(({ status, dryRun }) => status === 200 && !dryRun).length
}

function lastAcknowledged(load: Load): number {
  return Math.max(...load.sent.filter(isUpdate).map(({ endedAt }) => endedAt))
}

function firstAcknowledged(load: Load, after: number): number {
  return Math.min(
    ...load.sent
      .filter(isUpdate)
      .map(({ endedAt }) => endedAt)
      .filter(at => at > after),
  )
}

function isUpdate({ status, dryRun, kind }: { status: number; dryRun: boolean; kind: string }): boolean {
  return status === 200 && !dryRun && kind !== 'validation'
}

async function sessionsOn(cluster: Cluster): Promise<number> {
  const rows = await cluster.query(`select from pg_stat_activity where application_name like 'agent-tool-management/%'`)
  return rows.length
}

async function auditRows(cluster: Cluster): Promise<number> {
  const [row] = await cluster.query<{ n: number }>('select count(*)::integer as n from audit')
  return row?.n ?? -1
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('it did not come to pass')
    await sleep(20)
  }
}
