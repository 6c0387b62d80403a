import { setTimeout as sleep } from 'node:timers/promises'
import { generateKey } from '../../src/secrets/key-ring.js'
import { slowness } from '../slowness.js'
import { Cluster, type ClusterOptions } from './cluster.js'
import type { Fault } from './faults.js'
import { type Findings, findings, type Queried } from './findings.js'
import { Load, type Sent } from './load.js'
import { ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

/** What one run of a fault showed. Times in milliseconds, from the end of the fault. */
export interface Run {
  faults: string[]
  requests: number
  acknowledged: number
  stale: number
  notApplied: number
  unknown: number
  /** Of the unknown: how many turned out to be there. */
  unknownApplied: number
  connectionErrors: number
  byReason: Record<string, number>
  /** Until the first update was acknowledged. */
  firstSuccessMs: number
  /** Until the last answer that was not 200 or 412. */
  recoveryMs: number
  longestAnswerMs: number
}

/** Where other work has most of the machine, requests wait longer for each other, and a fault lasts as much longer. */
const TIMES_SLOWER = Math.min(5, Math.round(slowness(100)))

/** Short waits, so that every one of them comes to its end while the fault lasts. */
const SETTINGS = {
  DATABASE_POOL_SIZE: '12',
  DATABASE_CONNECT_TIMEOUT_MS: String(1_000 * TIMES_SLOWER),
  STATEMENT_TIMEOUT_MS: String(1_500 * TIMES_SLOWER),
  LOCK_TIMEOUT_MS: String(700 * TIMES_SLOWER),
  IDLE_IN_TRANSACTION_TIMEOUT_MS: String(2_000 * TIMES_SLOWER),
}

const BEFORE_MS = 250
const RECOVERY_LIMIT_MS = 5_000
/** On a busy machine a recovery may take so many times as long as a request took before the fault; on a quiet one this is less. */
const RECOVERY_REQUESTS = 100
/** How much longer than that a recovery is waited for, to see how long it took. */
const LATE_MS = 3_000
const CALM_MS = 500

/** A database server that a trial asks, and removes at its end. */
interface Server extends Queried {
  remove(): Promise<void>
}

/** A service and its database, which faults strike again and again. */
export class Trial<S extends Server = Cluster> {
  readonly #cluster: S
  readonly #service: ServiceProcess
  readonly #token: string

  constructor(cluster: S, service: ServiceProcess, token: string) {
    this.#cluster = cluster
    this.#service = service
    this.#token = token
  }

  /** Starts database and service. */
  static async open(options: ClusterOptions = {}): Promise<Trial> {
    const cluster = await Cluster.create(options)
    try {
      const token = await makeWorld(cluster.url())
      const env = { ...SETTINGS, DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }
      return new Trial(cluster, await ServiceProcess.start(env), token)
    } catch (error) {
      await cluster.remove()
      throw error
    }
  }

  /** Whether the service's readiness probe succeeds. */
  async isReady(): Promise<boolean> {
    return (await this.#service.readiness()).status === 200
  }

  /** Since the last strike began. */
  get serviceLog(): string {
    return this.#service.log
  }

  /**
   * Strikes once under load, and compares what the clients were told with what is stored. `count` says how often this
   * fault struck before.
   */
  async strike(fault: Fault<S>, count: number): Promise<Run> {
    const mayLose = fault.mayLose ?? false
    this.#service.clearLog()
    const load = new Load(() => this.#service.port, this.#token)
    const loggedBefore = this.#service.refusalsLogged
    load.start()
    try {
      await sleep(BEFORE_MS)
      const usualMs = await usualDuration(load)
      const mend = await fault.strike({ cluster: this.#cluster, service: this.#service, run: count })
      await sleep(fault.holdMs(count) * TIMES_SLOWER)
      await mend()
      const mendedAt = performance.now()
      const limitMs = Math.max(fault.recoveryLimitMs ?? RECOVERY_LIMIT_MS * TIMES_SLOWER, RECOVERY_REQUESTS * usualMs)
      await calm(load.sent, mendedAt, limitMs + LATE_MS)
      await load.stop()
      const found = await findings(this.#cluster, load.sent, mayLose)
      // A killed service takes its last lines with it.
      if (!mayLose) found.faults.push(...(await this.#logFaults(load, loggedBefore)))
      const repeats = await this.#repeatUnknown(load, found)
      return summary(load.sent, found, repeats, mendedAt, limitMs)
    } finally {
      await load.stop()
      load.close()
    }
  }

  async close(): Promise<void> {
    await this.#service.stop('SIGKILL')
    await this.#cluster.remove()
  }

  /** Every 503 has a line with its cause. */
  async #logFaults({ sent }: Load, before: number): Promise<string[]> {
    const answered = sent.filter(({ status }) => status === 503).length
    let logged = this.#service.refusalsLogged - before
    for (const end = performance.now() + LATE_MS; logged < answered && performance.now() < end; ) {
      await sleep(20) // the line comes behind the answer, and through a pipe
      logged = this.#service.refusalsLogged - before
    }
    return logged === answered ? [] : [`${answered} answers of 503 and ${logged} lines in the log`]
  }

  /** Repeating an update of unknown outcome with the same precondition must not apply it a second time. */
  async #repeatUnknown(load: Load, found: Findings): Promise<string[]> {
    const doubtful = load.sent.filter(sent => isUnknown(sent) && sent.ifMatch !== undefined)
    const again: Sent[] = []
    for (const sent of doubtful) again.push(await load.repeat(sent))
    if (again.length === 0) return []
    const after = await findings(this.#cluster, again, false)
    const lost = again.filter(sent => sent.status === 412 && !found.rowsByMarker.has(sent.marker) && isCurrent(sent))
    return [
      ...after.faults.filter(fault => !fault.endsWith('refused with 412 and there')),
      ...lost.map(sent => `${sent.marker}: could not be repeated`),
    ]
  }
}

/** Whether the tag that a 412 names is the one that was sent: then it should have been a write. */
function isCurrent(sent: Sent): boolean {
  return (JSON.parse(sent.text) as { current_etag?: string }).current_etag === sent.ifMatch
}

function isUnknown({ status, outcome, dryRun }: Sent): boolean {
  return !dryRun && (status === 0 || outcome === 'unknown')
}

/** The median of the requests before the fault, in ms; waits for the first of them. */
async function usualDuration({ sent }: Load): Promise<number> {
  const ended = () => sent.filter(({ endedAt }) => endedAt > 0).map(({ durationMs }) => durationMs)
  while (ended().length < 16) await sleep(20)
  const durations = ended().sort((a, b) => a - b)
  return durations[durations.length >> 1] ?? 0
}

/** Waits until every client has been answered well for a while. */
async function calm(sent: readonly Sent[], mendedAt: number, limitMs: number): Promise<void> {
  while (performance.now() < mendedAt + limitMs) {
    const trouble = Math.max(mendedAt, ...sent.filter(isTrouble).map(({ endedAt }) => endedAt))
    const successes = sent.filter(({ status, endedAt }) => status === 200 && endedAt > trouble).length
    if (performance.now() > trouble + CALM_MS && successes > 20) return
    await sleep(50)
  }
}

/** An unanswered request counts from when it ends. */
function isTrouble({ status, endedAt }: Sent): boolean {
  return endedAt > 0 && status !== 200 && status !== 412
}

function summary(sent: readonly Sent[], found: Findings, repeats: string[], mendedAt: number, limitMs: number): Run {
  const updates = sent.filter(({ dryRun }) => !dryRun)
  const after = (times: number[]) => times.filter(time => time > mendedAt).map(time => time - mendedAt)
  const unknown = updates.filter(({ outcome }) => outcome === 'unknown')
  const firstSuccessMs = Math.min(
    ...after(updates.filter(({ status }) => status === 200).map(({ endedAt }) => endedAt)),
  )
  const recoveryMs = Math.max(0, ...after(sent.filter(isTrouble).map(({ endedAt }) => endedAt)))
  const slow = recoveryMs > limitMs ? [`recovered only after ${Math.round(recoveryMs)} ms`] : []
  return {
    faults: [...found.faults, ...repeats, ...slow],
    requests: sent.length,
    acknowledged: updates.filter(({ status }) => status === 200).length,
    stale: updates.filter(({ status }) => status === 412).length,
    notApplied: updates.filter(({ outcome }) => outcome === 'not_applied').length,
    unknown: unknown.length,
    unknownApplied: unknown.filter(({ marker }) => found.rowsByMarker.has(marker)).length,
    connectionErrors: sent.filter(({ status }) => status === 0).length,
    byReason: countBy(sent.flatMap(({ reason }) => reason ?? [])),
    firstSuccessMs: Math.round(firstSuccessMs),
    recoveryMs: Math.round(recoveryMs),
    longestAnswerMs: Math.round(Math.max(...sent.map(({ durationMs }) => durationMs))),
  }
}

function countBy(keys: string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const key of keys) counts[key] = (counts[key] ?? 0) + 1
  return counts
}
