import { setTimeout as sleep } from 'node:timers/promises'
import type { Case, DatabaseControl, HttpControl } from './cases.js'
import type { ControlPorts } from './controls.js'
import { BENCH_FOLDER, type BenchDatabase } from './database.js'
import { type LoadResult, load } from './load.js'
import { familyProcessorMs, median, percentile, processorMs, type Spread, spread } from './measure.js'
import { hasPgbench, pgbench } from './pgbench.js'
import { type Running, startControls, startService } from './processes.js'
import { rawLoop } from './raw-pg.js'

/** How long everything takes. The figures are medians over the rounds. */
export interface Durations {
  rounds: number
  slotMs: number
  warmUpMs: number
  /** Whole seconds, as pgbench tells its progress by seconds; a warm-up comes before. */
  pgbenchSeconds: number
  /** Requests of all kinds before the service's memory is read. */
  mixedRequests: number
}

/** What one measurement of the service shows; processor times and counts are for each request. */
export interface Slot {
  perSecond: number
  p50Ms: number
  p99Ms: number
  serviceMs: number | null
  databaseMs: number | null
  /** Of the service, PostgreSQL and the load generator together. */
  allMs: number | null
  statements: number
  roundTrips: number
}

/** A case of the report: the median of each figure over the rounds, and the median of each round's ratio to a control. */
export interface CaseFigures extends Record<keyof Slot, number | null> {
  name: string
  p99OverP50: number | null
  spread: { allMs: Spread | null; p99OverP50: Spread | null }
  controls: ControlFigures[]
}

export interface ControlFigures {
  name: ControlName
  perSecond: number | null
  /** The service's throughput over the control's. */
  ratio: number | null
  /** Processor time of one request of the control, its client and PostgreSQL included. */
  allMs: number | null
  /**
   * The control's processor time over the service's: it counts work and not waiting. Others at work on the machine
   * disturb it too: they take the processors' caches and clock.
   */
  processorRatio: number | null
  /** Of the rounds. */
  spread: { ratio: Spread | null; processorRatio: Spread | null }
}

export type ControlName = 'pgbench' | 'batches' | 'echo' | 'lookup' | 'eleven'

export interface SweepFigures {
  connections: number
  processes: number
  perSecond: number | null
  p50Ms: number | null
  p50Spread: Spread | null
  p99Ms: number | null
}

const CONNECTIONS = 16
const SWEEP = [1, 16, 64, 256]

/** The processes of one run, and the measurements that they take part in. */
export class Bench {
  readonly connections = CONNECTIONS
  readonly #pgbench = hasPgbench()

  constructor(
    readonly database: BenchDatabase,
    readonly service: Running<{ port: number }>,
    readonly controls: Running<ControlPorts>,
    readonly keys: string,
    readonly durations: Durations,
    readonly say: (line: string) => void,
  ) {}

  static async start(
    database: BenchDatabase,
    keys: string,
    durations: Durations,
    say: (line: string) => void,
    checkout?: string,
  ): Promise<Bench> {
    const service = await startService(database.url, keys, checkout)
    return new Bench(database, service, await startControls(database.url), keys, durations, say)
  }

  async end(): Promise<void> {
    await this.service.end()
    await this.controls.end()
  }

  /** Measures the cases and their controls in turn, round by round, after one round that warms everything up. */
  async measure(cases: readonly Case[]): Promise<CaseFigures[]> {
    const { rounds, warmUpMs, slotMs } = this.durations
    this.say(`warming up ${cases.length} cases`)
    await this.#round(cases, warmUpMs, false)
    const measured: Round[] = []
    for (let round = 1; round <= rounds; round++) {
      measured.push(await this.#round(cases, slotMs, true))
      this.say(`round ${round} of ${rounds}: ${summary(measured.at(-1))}`)
    }
    return cases.map(found => figuresOf(found, measured))
  }

  /** One case at several numbers of connections, and over two processes of the service at once. */
  async sweep(found: Case): Promise<SweepFigures[]> {
    const second = await startService(this.database.url, this.keys)
    const [one, two] = [[this.service.ports.port], [this.service.ports.port, second.ports.port]]
    const places = [...SWEEP.map(connections => ({ connections, ports: one })), { connections: 64, ports: two }]
    const measured = places.map(place => ({ ...place, results: [] as LoadResult[] }))
    const durationMs = this.durations.slotMs
    for (let round = 0; round < this.durations.rounds; round++) {
      this.say(`numbers of connections, round ${round + 1} of ${this.durations.rounds}`)
      for (const { connections, ports, results } of measured) {
        results.push(await load(ports, found.requests, { connections, durationMs, status: found.status }))
      }
    }
    await second.end()
    return measured.map(({ connections, ports, results }) => ({
      connections,
      processes: ports.length,
      perSecond: median(results.map(({ requests, seconds }) => requests / seconds)),
      p50Ms: median(results.map(result => percentile(result.latenciesMs, 0.5))),
      p50Spread: spread(results.map(result => percentile(result.latenciesMs, 0.5))),
      p99Ms: median(results.map(result => percentile(result.latenciesMs, 0.99))),
    }))
  }

  async #round(cases: readonly Case[], durationMs: number, withDatabase: boolean): Promise<Round> {
    const round: Round = { cases: new Map(), controls: new Map() }
    for (const found of cases) {
      round.cases.set(found.name, await this.slot(found, durationMs))
      for (const name of ['echo', 'lookup', 'eleven'] as const) {
        const control = found[name]
        if (control === undefined || round.controls.has(control.key)) continue
        round.controls.set(control.key, await this.#overHttp(name, control, durationMs))
      }
      for (const control of [found.database, this.#pgbench ? found.batches : undefined]) {
        if (!withDatabase || control === undefined || round.controls.has(control.key)) continue
        round.controls.set(control.key, await this.#databaseAlone(control))
      }
    }
    return round
  }

  /** One measurement of a case, without its controls. */
  async slot({ requests, status }: Case, durationMs: number): Promise<Slot> {
    const before = await this.#counts()
    const options = { connections: CONNECTIONS, durationMs, status }
    const result = await load([this.service.ports.port], requests, options)
    const after = await this.#counts()
    const each = (name: keyof typeof after) => {
      const [start, end] = [before[name], after[name]]
      return start === null || end === null ? null : (end - start) / result.answered
    }
    return {
      perSecond: result.requests / result.seconds,
      p50Ms: percentile(result.latenciesMs, 0.5),
      p99Ms: percentile(result.latenciesMs, 0.99),
      serviceMs: each('serviceMs'),
      databaseMs: each('databaseMs'),
      allMs: sum([each('serviceMs'), each('databaseMs'), each('ownMs')]),
      statements: each('statements') ?? 0,
      roundTrips: each('roundTrips') ?? 0,
    }
  }

  async #counts() {
    const { statements, roundTrips } = await this.service.counts()
    const serviceMs = processorMs(this.service.pid)
    return { statements, roundTrips, serviceMs, databaseMs: this.#databaseMs(), ownMs: processorMs(process.pid) }
  }

  #databaseMs(): number | null {
    const { serverPid } = this.database
    return serverPid === null ? null : familyProcessorMs(serverPid)
  }

  async #overHttp(name: 'echo' | 'lookup' | 'eleven', control: HttpControl, durationMs: number): Promise<ControlSlot> {
    const used = () => sum([processorMs(this.controls.pid), this.#databaseMs(), processorMs(process.pid)])
    const before = used()
    const options = { connections: CONNECTIONS, durationMs, status: control.status }
    const result = await load([this.controls.ports[name]], control.requests, options)
    return { perSecond: result.requests / result.seconds, allMs: each(before, used(), result.answered) }
  }

  async #databaseAlone({ script, prepare, rows = 1 }: DatabaseControl): Promise<ControlSlot> {
    const options = {
      connections: CONNECTIONS,
      seconds: this.durations.pgbenchSeconds,
      set: await prepare(CONNECTIONS),
      used: (clientPid: number) => sum([this.#databaseMs(), processorMs(clientPid)]),
    }
    const { perSecond, done, usedMs } = this.#pgbench
      ? await pgbench(BENCH_FOLDER, this.database.url, script, options)
      : await rawLoop(this.database.url, script, options)
    await this.#sessionsEnd()
    return { perSecond: perSecond * rows, allMs: usedMs === null ? null : usedMs / (done * rows) }
  }

  /** PostgreSQL takes pgbench's sessions down when it has gone: not in the time of the case that comes next. */
  async #sessionsEnd(): Promise<void> {
    const left = "select from pg_stat_activity where application_name = 'pgbench' and datname = current_database()"
    while (((await this.database.client.query(left)).rowCount ?? 0) > 0) await sleep(10)
  }
}

interface ControlSlot {
  perSecond: number
  allMs: number | null
}

function sum(values: readonly (number | null)[]): number | null {
  return values.reduce((total, value) => (total === null || value === null ? null : total + value), 0)
}

function each(before: number | null, after: number | null, count: number): number | null {
  return before === null || after === null ? null : (after - before) / count
}

interface Round {
  cases: Map<string, Slot>
  /** By the key of the control. */
  controls: Map<string, ControlSlot>
}

function figuresOf(found: Case, rounds: readonly Round[]): CaseFigures {
  const slots = rounds.map(round => round.cases.get(found.name)).filter(slot => slot !== undefined)
  const over = (figure: (slot: Slot) => number | null) => median(slots.map(figure))
  const p99OverP50 = ({ p99Ms, p50Ms }: Slot) => p99Ms / p50Ms
  return {
    name: found.name,
    perSecond: over(slot => slot.perSecond),
    p50Ms: over(slot => slot.p50Ms),
    p99Ms: over(slot => slot.p99Ms),
    p99OverP50: over(p99OverP50),
    spread: { allMs: spread(slots.map(slot => slot.allMs)), p99OverP50: spread(slots.map(p99OverP50)) },
    serviceMs: over(slot => slot.serviceMs),
    databaseMs: over(slot => slot.databaseMs),
    allMs: over(slot => slot.allMs),
    statements: over(slot => slot.statements),
    roundTrips: over(slot => slot.roundTrips),
    controls: controlsOf(found, rounds),
  }
}

function controlsOf(found: Case, rounds: readonly Round[]): CaseFigures['controls'] {
  const given = {
    pgbench: found.database,
    batches: found.batches,
    echo: found.echo,
    lookup: found.lookup,
    eleven: found.eleven,
  }
  return Object.entries(given).flatMap(([name, control]) => {
    if (control === undefined) return []
    const pairs = rounds.map(round => [round.cases.get(found.name), round.controls.get(control.key)] as const)
    const over = (figure: (own: Slot, other: ControlSlot) => number | null) =>
      pairs.map(([own, other]) => (own === undefined || other === undefined ? null : figure(own, other)))
    const ratio = over((own, other) => own.perSecond / other.perSecond)
    const processorRatio = over((own, other) => own.allMs && other.allMs && other.allMs / own.allMs)
    return [
      {
        name: name as ControlName,
        perSecond: median(over((_, other) => other.perSecond)),
        ratio: median(ratio),
        allMs: median(over((_, other) => other.allMs)),
        processorRatio: median(processorRatio),
        spread: { ratio: spread(ratio), processorRatio: spread(processorRatio) },
      },
    ]
  })
}

function summary(round: Round | undefined): string {
  return [...(round?.cases ?? [])].map(([name, slot]) => `${name} ${Math.round(slot.perSecond)}/s`).join(', ')
}
