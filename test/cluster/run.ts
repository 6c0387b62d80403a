/**
 * The service on a real cluster: three nodes with Patroni and PostgreSQL 15, three etcd members, three ways in, two
 * instances of the service for each; made from the files of `ops/cluster`, on this machine, and struck by faults under load.
 *
 *     npm run test:cluster                        the short form: three faults, once each
 *     npm run test:cluster -- --full              every fault five times; goes on where it was broken off
 *     npm run test:cluster -- [--runs n] fault ...   these faults, n times each
 *
 * The full form keeps its results in `ops/cluster/results.json` and makes the table `ops/cluster/results.md` from them;
 * delete the file to begin anew.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { misused, readArguments } from '../arguments.js'
import { FAULTS, SHORT } from './faults.js'
import { removeLeftovers } from './leftovers.js'
import { missing } from './programs.js'
import { type Results, table } from './table.js'
import { type Run, Trial } from './trial.js'

const RUNS_OF_FULL = 5
const RESULTS = fileURLToPath(new URL('../../../ops/cluster/results.json', import.meta.url))
const TABLE = fileURLToPath(new URL('../../../ops/cluster/results.md', import.meta.url))
/** sysexits.h: something that this needs is not there. */
const EX_UNAVAILABLE = 69

const USAGE = `npm run test:cluster -- [--full] [--runs 1 to 99] [fault ...], of ${Object.keys(FAULTS).join(', ')}`
const { values, positionals } = readArguments(USAGE, {
  allowPositionals: true,
  options: { full: { type: 'boolean', default: false }, runs: { type: 'string' } },
})
const unknown = positionals.find(name => FAULTS[name] === undefined)
if (unknown !== undefined) misused(USAGE, `Unknown fault '${unknown}'`)
if (!/^[1-9]\d?$/.test(values.runs ?? '1')) misused(USAGE, `--runs ${values.runs} is not a number from 1 to 99`)
process.exitCode = refusal() ?? (await main())

/** Says why it cannot begin, if it cannot, and answers the exit status. */
function refusal(): number | undefined {
  const reasons = missing()
  if (reasons.length === 0) return undefined
  console.error(`The cluster cannot run on this machine: ${reasons.join('; ')}.`)
  return EX_UNAVAILABLE
}

async function main(): Promise<number> {
  const isFull = values.full
  const names = positionals.length > 0 ? positionals : isFull ? Object.keys(FAULTS) : SHORT
  const runs = Number(values.runs ?? (isFull ? RUNS_OF_FULL : 1))
  const results: Results = isFull && existsSync(RESULTS) ? (JSON.parse(readFileSync(RESULTS, 'utf8')) as Results) : {}
  if (names.every(name => (results[name]?.length ?? 0) >= runs)) return report(results)
  removeLeftovers()
  const trial = await Trial.open()
  try {
    // Round by round: a campaign that is broken off has seen every fault about as often.
    for (let round = 0; round < runs; round++) {
      for (const name of names) {
        if ((results[name]?.length ?? 0) > round) continue
        const run = await trial.strike(name, FAULTS[name] as (typeof FAULTS)[string])
        results[name] = [...(results[name] ?? []), run]
        print(name, run)
        if (isFull) keep(results)
      }
    }
  } finally {
    await trial.close()
  }
  return report(results)
}

function keep(results: Results): void {
  writeFileSync(RESULTS, `${JSON.stringify(results, null, 1)}\n`)
  writeFileSync(TABLE, table(results))
}

function print(name: string, { cluster, ways, faults }: Run): void {
  const { electionMs, commitGapMs, leaders, events } = cluster
  console.log(
    `${name}: no leader ${electionMs} ms, no commit ${commitGapMs} ms, leaders ${leaders.join(' ')} ${events.join('; ')}`,
  )
  for (const [way, seen] of Object.entries(ways)) console.log(`  ${way}: ${JSON.stringify(seen)}`)
  for (const fault of faults.slice(0, 20)) console.log(`  NOT OK  ${fault}`)
  if (faults.length > 20) console.log(`  NOT OK  and ${faults.length - 20} more`)
}

function report(results: Results): number {
  console.log(table(results))
  return Object.values(results).some(runs => runs.some(({ faults }) => faults.length > 0)) ? 1 : 0
}
