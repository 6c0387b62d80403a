import { setTimeout as sleep } from 'node:timers/promises'
import type { ServiceProcess } from '../faults/service.js'
import type { Way } from './layout.js'
import type { PatroniCluster } from './patroni-cluster.js'

export interface Struck {
  cluster: PatroniCluster
  services: Readonly<Record<Way, readonly ServiceProcess[]>>
}

/** Something that goes wrong for a while. */
export interface Fault {
  /** Breaks something; answers what mends it. */
  strike(struck: Struck): Promise<() => Promise<void> | void>
  /** How long it lasts. With `ttl: 20` and the wait for a new standby an election takes up to half a minute. */
  holdMs: number
  /** Instances of the service are struck: clients go through the balancer, as they would. */
  isAboutInstances?: boolean
  /** Clients may be left without an answer. */
  mayLose?: boolean
}

const ELECTION_MS = 35_000
const SUPERVISOR_MS = 1_000
/** HAProxy in front of PostgreSQL: each time some commits are under way whose answers are lost. */
const ENTRY_KILLS = 10
/** Three instances start at once, on a machine that has work already. */
const RESTART_LIMIT_MS = 60_000

/** How the faults are called in the results, with what each does. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  postgres_killed: {
    holdMs: 0,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      leader.killPostgres()
      return () => {}
    },
  },
  node_killed: {
    holdMs: ELECTION_MS,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      await leader.kill()
      return () => leader.startPatroni()
    },
  },
  patroni_killed: {
    holdMs: ELECTION_MS,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      await leader.killPatroni()
      return () => leader.startPatroni()
    },
  },
  patroni_killed_and_restarted: {
    holdMs: SUPERVISOR_MS,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      await leader.killPatroni()
      return () => leader.startPatroni()
    },
  },
  switchover: {
    holdMs: 0,
    strike: async ({ cluster }) => {
      await cluster.switchover()
      return () => {}
    },
  },
  postgres_stopped: {
    holdMs: ELECTION_MS,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      leader.freezePostgres()
      return () => leader.thawPostgres()
    },
  },
  node_stopped: {
    holdMs: ELECTION_MS,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      leader.freeze()
      return () => leader.thaw()
    },
  },
  etcd_member_stopped: {
    holdMs: 15_000,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      leader.freezeEtcd()
      return () => leader.thawEtcd()
    },
  },
  disk_full: {
    holdMs: 10_000,
    strike: async ({ cluster }) => {
      const leader = await cluster.leader()
      return leader.fillDisk()
    },
  },
  standby_killed: {
    holdMs: 15_000,
    strike: async ({ cluster }) => {
      const standby = await cluster.synchronousStandby()
      await standby.kill()
      return () => standby.startPatroni()
    },
  },
  all_killed: {
    holdMs: 3_000,
    strike: async ({ cluster }) => {
      await Promise.all(cluster.nodes.map(node => node.kill()))
      return () => {
        for (const node of cluster.nodes) node.startPatroni()
      }
    },
  },
  entry_killed: {
    holdMs: 0,
    strike: async ({ cluster }) => {
      for (let time = 0; time < ENTRY_KILLS; time++) {
        await cluster.killEntry()
        cluster.startEntry()
        await sleep(SUPERVISOR_MS + Math.random() * SUPERVISOR_MS)
      }
      return () => {}
    },
  },
  instance_killed: {
    holdMs: SUPERVISOR_MS,
    isAboutInstances: true,
    mayLose: true,
    strike: async ({ services }) => {
      const struck = Object.values(services).flatMap(([first]) => first ?? [])
      await Promise.all(struck.map(service => service.stop('SIGKILL')))
      return async () => {
        for (const service of struck) service.launch()
        await Promise.all(struck.map(service => service.ready(RESTART_LIMIT_MS)))
      }
    },
  },
  rolling_restart: {
    holdMs: 0,
    isAboutInstances: true,
    strike: async ({ services }) => {
      const pairs = Object.values(services)
      for (const place of [0, 1]) {
        await Promise.all(
          pairs.map(async pair => {
            const service = pair[place]
            await service?.stop('SIGTERM')
            service?.launch()
            await service?.ready(RESTART_LIMIT_MS)
          }),
        )
        // The balancer has to see the new instance before the other one goes.
        await sleep(2 * SUPERVISOR_MS)
      }
      return () => {}
    },
  },
}

/** What `npm run test:cluster` does by itself. */
export const SHORT: readonly string[] = ['postgres_killed', 'patroni_killed', 'switchover']
