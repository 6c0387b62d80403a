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
  '# Results of `npm run test:cluster -- --full`',
  '',
  'Made by the harness from `ops/cluster/results.json`; what each fault does stands in `test/cluster/faults.ts`. Times in',
  'seconds, the longest of all runs.',
  '',
  "- **412**: the client's version was no longer the current one, as it happens where clients meet.",
  '- **`unknown` (stored)**: updates whose outcome could not be told, and how many of them were found stored in the end.',
  "- **no answer**: the connection failed, or the balancer answered in the instance's place.",
  "- **no leader**, **no commit**: the cluster's own: how long Patroni named no leader, and how long no node confirmed a",
  '  commit that was sent to it directly.',
  '- **no success**: how long clients of that way in got no update acknowledged, all its instances together.',
  "- **excess**: by how much that was longer than the longer of the cluster's two times in the same run.",
  '- **ready, untrue**: answers of `/readyz` that said 200 while that instance had acknowledged no update for 5 s and did',
  '  not within the next second.',
  '- **false**: what a client was told that is not so (`test/cluster/checker.ts`), and instances that ended or stayed away.',
  '',
  '| fault | way in | runs | acknowledged | 412 | `not_applied` | `unknown` (stored) | no answer | no leader | no commit | no success | excess | ready, untrue | false |',
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
