import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Readiness, ServiceProcess } from '../faults/service.js'
import type { ClusterNode } from './node.js'
import type { PatroniCluster } from './patroni-cluster.js'

const EVERY_MS = 300
const CONTROL_LIMIT_MS = 2_000

/** Takes a page of its own, as updates do: on a full disk it fails with them. */
const COMMIT = `insert into beat (ballast) select string_agg(md5(random()::text), '') from generate_series(1, 250)`

/** What the cluster itself did, beside the service: times on the clock of `performance.now()`. */
export interface ClusterTimes {
  /** When Patroni said of some node that it leads. */
  led: number[]
  /** When a commit sent straight to some node was confirmed. */
  committed: number[]
  /** Each change of the leader. */
  leaders: { at: number; name: string }[]
}

/** One answer of a readiness probe. */
export interface Asked extends Readiness {
  at: number
  port: number
}

/**
 * Watches the cluster without the service: who leads, and whether a commit is confirmed. The service cannot be better than
 * this, and is measured against it.
 */
export class Watch {
  readonly times: ClusterTimes = { led: [], committed: [], leaders: [] }
  readonly asked: Asked[] = []
  #isRunning = true
  readonly #loops: Promise<void>[]

  constructor(cluster: PatroniCluster, services: readonly ServiceProcess[]) {
    this.#loops = [
      ...cluster.nodes.map(node => this.#watchLeader(node)),
      ...cluster.nodes.map(node => this.#commit(node, cluster.templates.passwords.superuser)),
      ...services.map(service => this.#askReadiness(service)),
    ]
  }

  async stop(): Promise<void> {
    this.#isRunning = false
    await Promise.all(this.#loops)
  }

  async #watchLeader(node: ClusterNode): Promise<void> {
    while (this.#isRunning) {
      const { status } = await node.ask('/primary')
      const at = performance.now()
      if (status === 200) {
        this.times.led.push(at)
        if (this.times.leaders.at(-1)?.name !== node.name) this.times.leaders.push({ at, name: node.name })
      }
      await sleep(EVERY_MS)
    }
  }

  async #commit(node: ClusterNode, password: string): Promise<void> {
    let client: pg.Client | undefined
    while (this.#isRunning) {
      try {
        client ??= await connected(node.url('postgres', password, 'control'))
        await within(client.query(COMMIT))
        this.times.committed.push(performance.now())
      } catch {
        // A standby, a server that is down, or one whose commit waits: the next attempt is on a new connection.
        cut(client)
        client = undefined
      }
      await sleep(EVERY_MS)
    }
    cut(client)
  }

  async #askReadiness(service: ServiceProcess): Promise<void> {
    while (this.#isRunning) {
      const answer = await service.readiness()
      this.asked.push({ ...answer, at: performance.now(), port: service.port })
      await sleep(EVERY_MS)
    }
  }
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: CONTROL_LIMIT_MS })
  client.on('error', () => {})
  try {
    await client.connect()
    return client
  } catch (error) {
    cut(client)
    throw error
  }
}

/** Closes the socket at once: a server that hangs would not confirm a farewell. */
function cut(client: pg.Client | undefined): void {
  client?.connection.stream.destroy()
}

async function within(work: Promise<unknown>): Promise<void> {
  const late = sleep(CONTROL_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error('no answer in time')
  })
  work.catch(() => {})
  await Promise.race([work, late])
}
