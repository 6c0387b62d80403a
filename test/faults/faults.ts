import { setTimeout as sleep } from 'node:timers/promises'
import type { Cluster, ClusterOptions } from './cluster.js'
import { signal } from './cluster.js'
import type { ServiceProcess } from './service.js'

export interface Broken<S> {
  cluster: S
  service: ServiceProcess
  /** Counts the runs of this fault from 0, for faults of several kinds. */
  run: number
}

/** Something that goes wrong for a while, with a database server of this kind. */
export interface Fault<S = Cluster> {
  /** Breaks something; answers what mends it. */
  strike(broken: Broken<S>): Promise<() => Promise<void>>
  holdMs: (run: number) => number
  /** How long the recovery may take; default 5,000. */
  recoveryLimitMs?: number
  /** Clients see connection errors: the service itself dies. */
  mayLose?: boolean
}

/** A fault of an external server, with what the server needs for it. */
export interface ClusterFault extends Fault {
  cluster?: ClusterOptions
}

const SERVICE_CONNECTIONS = `from pg_stat_activity where application_name like 'agent-tool-management/%'`

/** How the faults are called in the results, with what each does. */
export const FAULTS: Readonly<Record<string, ClusterFault>> = {
  connections_killed: {
    holdMs: () => 0,
    strike: async ({ cluster }) => {
      for (let round = 0; round < 6; round++) {
        await cluster.query(`select pg_terminate_backend(pid) ${SERVICE_CONNECTIONS}`)
        await sleep(40 + Math.random() * 40)
      }
      return nothing
    },
  },
  backend_crashed: {
    holdMs: () => 0,
    strike: async ({ cluster }) => {
      const [row] = await cluster.query<{ pid: number }>(`select pid ${SERVICE_CONNECTIONS} order by random() limit 1`)
      if (row !== undefined) signal(row.pid, 'SIGKILL')
      return () => cluster.ready()
    },
  },
  server_restarted: {
    holdMs: () => 300,
    strike: async ({ cluster, run }) => {
      await cluster.stop(run % 2 === 0 ? 'fast' : 'immediate')
      return () => cluster.start()
    },
  },
  server_hung: {
    // Shorter and longer than the service waits for an answer.
    holdMs: run => (run % 2 === 0 ? 4_500 : 700),
    strike: async ({ cluster }) => {
      cluster.freeze()
      return async () => cluster.thaw()
    },
  },
  disk_full: {
    holdMs: () => 1_200,
    cluster: { tablesMib: 512 },
    strike: async ({ cluster }) => {
      const makeRoom = cluster.fill('tables')
      return async () => makeRoom()
    },
  },
  wal_full: {
    holdMs: () => 1_200,
    cluster: { walMib: 64, settings: { max_wal_size: '32MB' } },
    // The server stops itself: it cannot go on without its log, and gives up when it cannot recover either.
    strike: async ({ cluster }) => {
      const makeRoom = cluster.fill('wal')
      await cluster.exhaustWal()
      return async () => {
        makeRoom()
        await cluster.revive()
      }
    },
  },
  read_only: {
    holdMs: () => 1_000,
    strike: ({ cluster }) => set(cluster, 'default_transaction_read_only', 'on'),
  },
  pool_exhausted: {
    holdMs: () => 2_500,
    strike: ({ cluster }) => held(cluster, 'lock table token in access exclusive mode'),
  },
  lock_timeout: {
    holdMs: () => 1_800,
    strike: ({ cluster }) =>
      held(cluster, 'select from persona order by id for update', 'select from tool order by id for update'),
  },
  deadlock: {
    holdMs: () => 0,
    strike: async ({ cluster }) => {
      const client = await cluster.connect()
      await client.query(`set deadlock_timeout = '5s'; set lock_timeout = '3s'`)
      for (let round = 0; round < 6; round++) {
        await client.query('begin; select from tool order by id desc for update')
        await sleep(40)
        await client.query('select from persona order by id for update').catch(() => {})
        await client.query('rollback')
      }
      await client.end()
      return nothing
    },
  },
  serialization_failure: {
    holdMs: () => 1_200,
    strike: ({ cluster, run }) =>
      set(cluster, 'default_transaction_isolation', run % 2 === 0 ? 'serializable' : 'repeatable read'),
  },
  service_killed: {
    holdMs: () => 0,
    mayLose: true,
    strike: async ({ service }) => {
      await sleep(Math.random() * 500)
      await service.stop('SIGKILL')
      return async () => {
        service.launch()
        await service.ready()
      }
    },
  },
}

async function nothing(): Promise<void> {}

async function set(cluster: Cluster, setting: string, value: string): Promise<() => Promise<void>> {
  await alter(cluster, `alter system set ${setting} = '${value}'`)
  return () => alter(cluster, `alter system reset ${setting}`)
}

async function alter(cluster: Cluster, text: string): Promise<void> {
  const client = await cluster.connect()
  await client.query('set default_transaction_read_only = off')
  await client.query(text)
  await client.query('select pg_reload_conf()')
  await client.end()
}

/** Takes locks and keeps them until it is mended. */
async function held(cluster: Cluster, ...statements: string[]): Promise<() => Promise<void>> {
  const client = await cluster.connect()
  await client.query('begin')
  for (const text of statements) await client.query(text)
  return async () => {
    await client.query('rollback')
    await client.end()
  }
}
