import { WAYS, type Way } from './layout.js'
import type { Run } from './trial.js'

/** The runs of each fault. */
export type Results = Record<string, Run[]>

/** The results as a table for people: one row for each fault and way in. */
export function table(results: Results): string {
  const rows = Object.entries(results).flatMap(([name, runs]) => WAYS.map(way => row(name, runs, way)))
  return `${[...HEAD, ...rows].join('\n')}\n`
}

const HEAD = [
  '# Results of `npm run test:cluster`',
  '',
  'Made by the harness from `test/cluster/results.json`. Times in seconds, the longest of all runs. "No leader" and "no',
  'commit" are the cluster\'s own: how long Patroni named no leader, and how long no node confirmed a commit that was sent',
  'to it directly. "No success" is how long the clients of that way in got no update acknowledged.',
  '',
  '| fault | way in | runs | acknowledged | 412 | `not_applied` | `unknown` (stored) | no answer | no leader | no commit | no success | worst of the excess | ready, untrue | false |',
  '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|',
]

function row(name: string, runs: readonly Run[], way: Way): string {
  const own = runs.map(run => ({ ...run.ways[way], cluster: run.cluster, faults: run.faults }))
  const sum = (of: (run: (typeof own)[number]) => number) => own.reduce((total, run) => total + of(run), 0)
  const longest = (of: (run: (typeof own)[number]) => number) => seconds(Math.max(...own.map(of)))
  const cells = [
    name,
    way,
    String(runs.length),
    count(sum(({ acknowledged }) => acknowledged)),
    count(sum(({ stale }) => stale)),
    count(sum(({ notApplied }) => notApplied)),
    `${sum(({ unknown }) => unknown)} (${sum(({ unknownStored }) => unknownStored)})`,
    String(sum(({ noAnswer }) => noAnswer)),
    longest(({ cluster }) => cluster.electionMs),
    longest(({ cluster }) => cluster.commitGapMs),
    longest(({ gapMs }) => gapMs),
    longest(excess),
    `${sum(({ readyUntrue }) => readyUntrue)} of ${count(sum(({ readyAsked }) => readyAsked))}`,
    String(sum(({ faults }) => faults.filter(fault => isOf(way, fault)).length)),
  ]
  return `| ${cells.join(' | ')} |`
}

/** A fault names the update, and that its way in; what concerns all counts for each. */
function isOf(way: Way, fault: string): boolean {
  return fault.includes(way) || !WAYS.some(other => fault.includes(other))
}

/** How much longer than the cluster itself the service was without a success. */
function excess({ gapMs, cluster }: { gapMs: number; cluster: Run['cluster'] }): number {
  return Math.max(0, gapMs - Math.max(cluster.electionMs, cluster.commitGapMs))
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1)
}

function count(number: number): string {
  return number.toLocaleString('en-US')
}
