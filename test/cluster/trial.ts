import { mkdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { generateKey } from '../../src/secrets/key-ring.js'
import { ServiceProcess } from '../faults/service.js'
import { makeWorld, range } from '../faults/world.js'
import { check } from './checker.js'
import { Client, type Recorded, resourcesOf } from './clients.js'
import type { Fault } from './faults.js'
import { checkPort, INSTANCES_PER_WAY, instancePort, serviceEntryPort, WAYS, type Way } from './layout.js'
import { PatroniCluster } from './patroni-cluster.js'
import { type ClusterRun, clusterRun, type WayRun, wayRun } from './summary.js'
import { Watch } from './watch.js'

/** What one strike of a fault showed. */
export interface Run {
  /** When it was struck, as the calendar says. */
  at: string
  faults: string[]
  cluster: ClusterRun
  ways: Record<Way, WayRun>
}

const CLIENTS_PER_WAY = 3
const AGENTS_PER_WAY = 4
const TOOLS_PER_WAY = 2
const PROBE_EVERY_MS = 500
/** Requests of one prober that may be without an answer at once. */
const PROBES_OPEN_MAX = 10
/** Six instances start at once, on a machine that has work already. */
const START_LIMIT_MS = 60_000
const BEFORE_MS = 3_000
/** All is well when nothing failed for this long. */
const CALM_MS = 3_000
/** The longest recovery after the end of a fault that is waited for. */
const RECOVERY_LIMIT_MS = 90_000

/** The first agents are the probers', one for each instance; the others belong to the clients of one way each. */
const PROBED_AGENTS = WAYS.length * INSTANCES_PER_WAY

/** A cluster with six instances of the service, which faults strike again and again. */
export class Trial {
  readonly #cluster: PatroniCluster
  readonly #services: Readonly<Record<Way, readonly ServiceProcess[]>>
  readonly #token: string

  private constructor(cluster: PatroniCluster, services: Record<Way, ServiceProcess[]>, token: string) {
    this.#cluster = cluster
    this.#services = services
    this.#token = token
  }

  static async open(): Promise<Trial> {
    const cluster = await PatroniCluster.start()
    const services: Record<Way, ServiceProcess[]> = { host_list: [], haproxy: [], pgbouncer: [] }
    try {
      const token = await makeWorld(cluster.templates.url('haproxy'), PROBED_AGENTS + WAYS.length * AGENTS_PER_WAY)
      const keys = generateKey()
      for (const way of WAYS) {
        services[way] = range(INSTANCES_PER_WAY).map(n => {
          const port = instancePort(way, n - 1)
          return new ServiceProcess(port, {
            DATABASE_URL: cluster.templates.url(way),
            SECRET_KEYS: keys,
            METRICS_PORT: String(checkPort(port)),
            LOG_LEVEL: 'warn',
            // The checker reads what every update changed: pruned, it would take one for lost.
            HISTORY_VERSIONS_MAX: '100000',
            // Not used; by it an instance is found that outlives this process.
            DATA_DIR: join(cluster.folder, 'service'),
            ...(way === 'pgbouncer' && { PREPARED_STATEMENTS: 'off' }),
          })
        })
        for (const service of services[way]) service.launch()
      }
      await Promise.all(Object.values(services).flatMap(pair => pair.map(service => service.ready(START_LIMIT_MS))))
      for (const way of WAYS) {
        const [first = 0, second = 0] = services[way].map(({ port }) => port)
        cluster.startServiceEntry(way, serviceEntryPort(way), [first, second])
        // An instance that is never launched here: it only asks what answers at this port.
        await new ServiceProcess(serviceEntryPort(way), {}).ready(START_LIMIT_MS)
      }
      return new Trial(cluster, services, token)
    } catch (error) {
      await Promise.all(Object.values(services).flatMap(pair => pair.map(service => service.stop('SIGKILL'))))
      await cluster.remove()
      throw error
    }
  }

  /** Strikes once under load, waits until all is well again, and compares what clients were told with what is stored. */
  async strike(name: string, fault: Fault): Promise<Run> {
    const at = new Date().toISOString()
    const sent: Recorded[] = []
    const clients = WAYS.flatMap(way => this.#clients(way, fault, sent))
    const probers = WAYS.flatMap(way => this.#probers(way, fault, sent))
    const running = [
      ...clients.map(({ client, resources }) => client.run(resources)),
      ...probers.map(prober => prober.run()),
    ]
    const watch = new Watch(this.#cluster, this.#all)
    const ports = new Set(WAYS.flatMap(way => this.#routes(way, fault)))
    const pids = this.#all.map(({ pid }) => pid)
    const faults: string[] = []
    let struckAt = performance.now()
    try {
      await this.#underWay(sent, watch, ports)
      struckAt = performance.now()
      const mend = await fault.strike({ cluster: this.#cluster, services: this.#services })
      await sleep(fault.holdMs)
      await mend()
      faults.push(...(await this.#calm(sent, ports, performance.now())))
    } finally {
      for (const { client } of clients) client.stop()
      for (const prober of probers) prober.stop()
      await Promise.all(running)
      await watch.stop()
    }
    const events = await this.#cluster.healthy()
    await this.#cluster.query('truncate beat', [], 'control')
    const checked = await check(this.#cluster, sent, fault.mayLose ?? false)
    faults.push(...checked.faults)
    if (!fault.isAboutInstances && this.#all.some(({ pid }, place) => pid !== pids[place] || !isAlive(pid))) {
      faults.push('an instance of the service ended')
    }
    const run = {
      at,
      faults,
      cluster: { ...clusterRun(watch.times, struckAt), events },
      ways: perWay(way => {
        const own = { way, ports: this.#services[way].map(({ port }) => port) }
        return wayRun(own, { sent, asked: watch.asked, stored: checked.stored, struckAt })
      }),
    }
    if (faults.length > 0) this.#keep(name, run, sent)
    return run
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map(service => service.stop('SIGKILL')))
    await this.#cluster.remove()
  }

  get #all(): ServiceProcess[] {
    return WAYS.flatMap(way => this.#services[way])
  }

  /** Where requests of this way go: to the instances themselves, or to the balancer when it is about instances. */
  #routes(way: Way, fault: Fault): number[] {
    return fault.isAboutInstances ? [serviceEntryPort(way)] : this.#services[way].map(({ port }) => port)
  }

  #clients(way: Way, fault: Fault, sent: Recorded[]) {
    const ports = this.#routes(way, fault)
    let turn = 0
    // A client talks to both instances in turn: what one acknowledged, the other has to show.
    const route = () => ports[turn++ % ports.length] ?? 0
    const place = WAYS.indexOf(way)
    const firstAgent = PROBED_AGENTS + 1 + place * AGENTS_PER_WAY
    const resources = resourcesOf(firstAgent, AGENTS_PER_WAY, 1 + place * TOOLS_PER_WAY, TOOLS_PER_WAY)
    return range(CLIENTS_PER_WAY).map(n => ({
      client: new Client(`${way} client ${n}`, way, route, this.#token, sent),
      resources,
    }))
  }

  #probers(way: Way, fault: Fault, sent: Recorded[]): Prober[] {
    const ports = this.#routes(way, fault)
    return range(INSTANCES_PER_WAY).map(n => {
      const route = () => ports[(n - 1) % ports.length] ?? 0
      const client = new Client(`${way} probe ${n}`, way, route, this.#token, sent)
      return new Prober(client, WAYS.indexOf(way) * INSTANCES_PER_WAY + n)
    })
  }

  /** Waits until every instance has acknowledged updates, and the cluster commits: what fails then is the fault's. */
  async #underWay(sent: readonly Recorded[], watch: Watch, ports: ReadonlySet<number>): Promise<void> {
    await sleep(BEFORE_MS)
    const deadline = performance.now() + RECOVERY_LIMIT_MS
    while (performance.now() < deadline) {
      const since = performance.now() - BEFORE_MS
      const acknowledging = new Set(sent.filter(isAcknowledged).map(({ port }) => port))
      const isCommitting = watch.times.committed.some(time => time > since)
      if (isCommitting && [...ports].every(port => acknowledging.has(port))) return
      await sleep(200)
    }
    throw new Error('the cluster with its instances does not get under way')
  }

  /** Waits until every instance has acknowledged an update and nothing failed for a while. */
  async #calm(sent: readonly Recorded[], ports: ReadonlySet<number>, mendedAt: number): Promise<string[]> {
    while (performance.now() < mendedAt + RECOVERY_LIMIT_MS) {
      const since = Math.max(mendedAt, performance.now() - CALM_MS)
      const recent = sent.filter(({ endedAt }) => endedAt > since)
      const isTroubled = recent.some(({ status }) => status !== 200 && status !== 412)
      const isHeld = sent.some(({ endedAt, startedAt }) => endedAt === 0 && startedAt < since)
      const acknowledging = new Set(recent.filter(isAcknowledged).map(({ port }) => port))
      const isQuiet = performance.now() > mendedAt + CALM_MS && !isTroubled && !isHeld
      if (isQuiet && [...ports].every(port => acknowledging.has(port))) return []
      await sleep(200)
    }
    return [`not all instances acknowledge updates ${RECOVERY_LIMIT_MS / 1_000} s after the fault`]
  }

  /** Keeps what explains a failed run: outside the folder that is removed. */
  #keep(name: string, run: Run, sent: readonly Recorded[]): void {
    const folder = join(tmpdir(), `cluster-failed-${name}-${run.at.replace(/\W/g, '')}`)
    mkdirSync(folder)
    writeFileSync(join(folder, 'run.json'), JSON.stringify(run, null, 1))
    writeFileSync(join(folder, 'sent.ndjson'), sent.map(request => JSON.stringify(request)).join('\n'))
    for (const service of this.#all) writeFileSync(join(folder, `service-${service.port}.log`), service.log)
    for (const node of this.#cluster.nodes) writeFileSync(join(folder, `${node.name}-patroni.log`), node.patroniLog())
    console.log(`kept in ${folder}`)
  }
}

/** Sends an update every half second, whatever became of those before. */
class Prober {
  #isRunning = true

  constructor(
    readonly client: Client,
    readonly agent: number,
  ) {}

  async run(): Promise<void> {
    const open = new Set<Promise<void>>()
    while (this.#isRunning) {
      if (open.size < PROBES_OPEN_MAX) {
        const probe = this.client.probe({ kind: 'persona', id: this.agent }).finally(() => open.delete(probe))
        open.add(probe)
      }
      await sleep(PROBE_EVERY_MS)
    }
    await Promise.all(open)
    this.client.close()
  }

  stop(): void {
    this.#isRunning = false
  }
}

function isAcknowledged({ status, dryRun }: Recorded): boolean {
  return status === 200 && !dryRun
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

function perWay<T>(make: (way: Way) => T): Record<Way, T> {
  return { host_list: make('host_list'), haproxy: make('haproxy'), pgbouncer: make('pgbouncer') }
}
