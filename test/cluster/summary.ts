import type { Recorded } from './clients.js'
import type { Way } from './layout.js'
import type { Asked, ClusterTimes } from './watch.js'

/** What the cluster itself did in one run. */
export interface ClusterRun {
  /** The longest time in which Patroni said of no node that it leads. */
  electionMs: number
  /** The longest time in which no node confirmed a commit that was sent to it directly. */
  commitGapMs: number
  leaders: string[]
  /** What the harness had to repair by hand. */
  events: string[]
}

/** What the clients of one way in saw in one run. */
export interface WayRun {
  requests: number
  acknowledged: number
  reads: number
  stale: number
  notApplied: number
  unknown: number
  /** Of the unknown: how many turned out to be stored. */
  unknownStored: number
  noAnswer: number
  byReason: Record<string, number>
  /** The longest time without an acknowledged update, all instances of the way together, and the worst instance. */
  gapMs: number
  instanceGapMs: number
  /** Answers of `/readyz` that said 200 in the middle of a time without an acknowledged update: see `UNTRUE_AFTER_MS`. */
  readyAsked: number
  readyUntrue: number
  longestAnswerMs: number
}

/** A readiness of 200 is called untrue when no update succeeded for so long before it, and none within a second after. */
const UNTRUE_AFTER_MS = 5_000
const UNTRUE_BEFORE_MS = 1_000

export function clusterRun(times: ClusterTimes, struckAt: number): Omit<ClusterRun, 'events'> {
  return {
    electionMs: longestGap(times.led, struckAt),
    commitGapMs: longestGap(times.committed, struckAt),
    leaders: times.leaders.map(({ name }) => name),
  }
}

interface Seen {
  sent: readonly Recorded[]
  asked: readonly Asked[]
  /** The updates that are stored, by their markers. */
  stored: ReadonlyMap<string, unknown>
  struckAt: number
}

/** `ports` are those of the instances of the way. */
export function wayRun(
  { way, ports }: { way: Way; ports: readonly number[] },
  { sent, asked, stored, struckAt }: Seen,
): WayRun {
  const own = sent.filter(request => request.way === way)
  const updates = own.filter(({ dryRun }) => !dryRun)
  const acknowledged = updates.filter(({ status }) => status === 200)
  const unknown = updates.filter(({ outcome, attempt }) => outcome === 'unknown' && attempt === 0)
  // Through the balancer nobody sees which instance it was: then the success of one counts for both.
  const isDirect = own.some(request => ports.includes(request.port))
  const timesOf = (port: number) =>
    acknowledged.filter(request => !isDirect || request.port === port).map(({ endedAt }) => endedAt)
  const ready = asked.filter(({ port, status }) => ports.includes(port) && status === 200)
  return {
    requests: own.length,
    acknowledged: acknowledged.length,
    reads: own.filter(({ isRead, status }) => isRead && status === 200).length,
    stale: updates.filter(({ status }) => status === 412).length,
    notApplied: updates.filter(({ outcome }) => outcome === 'not_applied').length,
    unknown: unknown.length,
    unknownStored: unknown.filter(({ marker }) => stored.has(marker)).length,
    noAnswer: own.filter(({ status }) => status === 0).length,
    byReason: countBy(own.flatMap(({ reason }) => reason ?? [])),
    gapMs: longestGap(
      acknowledged.map(({ endedAt }) => endedAt),
      struckAt,
    ),
    instanceGapMs: Math.max(...ports.map(port => longestGap(timesOf(port), struckAt))),
    readyAsked: asked.filter(({ port }) => ports.includes(port)).length,
    readyUntrue: ready.filter(({ at, port }) => isAmidSilence(at, timesOf(port))).length,
    longestAnswerMs: Math.round(Math.max(...own.map(({ durationMs }) => durationMs))),
  }
}

function isAmidSilence(at: number, successes: readonly number[]): boolean {
  return !successes.some(time => time > at - UNTRUE_AFTER_MS && time < at + UNTRUE_BEFORE_MS)
}

/** The longest time between two successes of which the second is after `struckAt`, in whole milliseconds. */
function longestGap(times: readonly number[], struckAt: number): number {
  const sorted = [...times].sort((a, b) => a - b)
  const gaps = sorted.slice(1).map((time, place) => (time > struckAt ? time - (sorted[place] ?? time) : 0))
  return Math.round(Math.max(0, ...gaps))
}

function countBy(keys: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const key of keys) counts[key] = (counts[key] ?? 0) + 1
  return counts
}
