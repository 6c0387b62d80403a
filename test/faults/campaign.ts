/**
 * The fault campaign: every fault twenty times, a killed service a hundred times; then the suites that run in full only
 * here. Results of the faults are kept after every run in
 * `test/faults/results.json`, so that a campaign that was broken off goes on where it was; delete the file to begin anew.
 *
 *     npm run test:campaign -- [fault or suite ...]
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { misused, readArguments } from '../arguments.js'
import { type Cluster, canMount } from './cluster.js'
import { EMBEDDED_FAULTS, type EmbeddedServer, embeddedTrial } from './embedded.js'
import { FAULTS, type Fault } from './faults.js'
import { type Run, Trial } from './trial.js'

interface Total extends Omit<Run, 'faults' | 'firstSuccessMs' | 'recoveryMs'> {
  runs: number
  failedRuns: number
  firstSuccessMs: number[]
  recoveryMs: number[]
}

type Results = Record<string, Total>

const RESULTS = fileURLToPath(new URL('../../../test/faults/results.json', import.meta.url))
const RUNS = 20
const KILLED_RUNS = 100

/** Suites by the folder and the names of their files. They measure: nothing else should run on the machine. */
const SUITES: Readonly<Record<string, { folder: string; files: RegExp; parts: number }>> = {
  fairness: { folder: 'fairness', files: /\.test\.js$/, parts: 1 },
  growth: { folder: 'definition', files: /^growth-request-thread\.js$|^growth.*\.test\.js$/, parts: 9 },
}

const NOTHING = {
  runs: 0,
  failedRuns: 0,
  requests: 0,
  acknowledged: 0,
  stale: 0,
  notApplied: 0,
  unknown: 0,
  unknownApplied: 0,
  connectionErrors: 0,
  longestAnswerMs: 0,
}

const NAMES = [...Object.keys(FAULTS), ...Object.keys(EMBEDDED_FAULTS), ...Object.keys(SUITES)]
const USAGE = `npm run test:campaign -- [name ...], of ${NAMES.join(', ')}`
const { positionals: asked } = readArguments(USAGE, { allowPositionals: true })
const unknown = asked.find(name => !NAMES.includes(name))
if (unknown !== undefined) misused(USAGE, `Unknown fault or suite '${unknown}'`)
const results: Results = existsSync(RESULTS) ? (JSON.parse(readFileSync(RESULTS, 'utf8')) as Results) : {}
let hasFailed = false
for (const name of asked.length > 0 ? asked : NAMES) await strikeAll(name)
process.exitCode = hasFailed ? 1 : 0

async function strikeAll(name: string): Promise<void> {
  const fault = FAULTS[name]
  const embedded = EMBEDDED_FAULTS[name]
  const suite = SUITES[name]
  if (fault !== undefined) {
    const { tablesMib, walMib } = fault.cluster ?? {}
    await strikeOften(name, fault, (tablesMib ?? walMib) !== undefined, () => Trial.open(fault.cluster))
  } else if (embedded !== undefined) {
    await strikeOften(name, embedded, embedded.ownDisk === true, () => embeddedTrial(embedded))
  } else if (suite !== undefined) {
    runInFull(suite)
  }
}

/** Runs one file of a suite after the other, or the part of each that `TEST_PART` asks for. */
function runInFull({ folder, files, parts }: (typeof SUITES)[string]): void {
  const path = fileURLToPath(new URL(`../${folder}/`, import.meta.url))
  const { TEST_PART: asked } = process.env
  const all = asked !== undefined ? [asked] : Array.from({ length: parts }, (_, i) => `${i + 1}/${parts}`)
  for (const name of readdirSync(path).filter(name => files.test(name))) {
    for (const part of all) {
      const { status } = spawnSync(
        'npx',
        ['--no-install', 'tap', '--disable-coverage', '--timeout=3600', path + name],
        {
          env: { ...process.env, TEST_CAMPAIGN: 'full', TEST_PART: part },
          stdio: 'inherit',
        },
      )
      if (status !== 0) hasFailed = true
    }
  }
}

async function strikeOften<S extends Cluster | EmbeddedServer>(
  name: string,
  fault: Fault<S>,
  mounts: boolean,
  open: () => Promise<Trial<S>>,
): Promise<void> {
  const wanted = name === 'service_killed' ? KILLED_RUNS : RUNS
  const done = results[name]?.runs ?? 0
  if (done >= wanted) return
  if (mounts && !canMount()) {
    console.log(`${name}: skipped, file systems cannot be mounted here`)
    return
  }
  const trial = await open()
  try {
    for (let run = done; run < wanted; run++) report(name, run, await trial.strike(fault, run), trial.serviceLog)
  } finally {
    await trial.close()
  }
}

function report(name: string, run: number, seen: Run, serviceLog: string): void {
  results[name] = added(results[name], seen)
  const text = JSON.stringify(results, (_, value) => (isNumbers(value) ? `[${value.join(', ')}]` : value), 2)
  writeFileSync(RESULTS, `${text.replace(/"(\[[\d, ]*\])"/g, '$1')}\n`)
  const { faults, byReason, ...numbers } = seen
  console.log(`${name} ${run + 1}: ${JSON.stringify({ ...numbers, ...byReason })}`)
  if (faults.length === 0) return
  hasFailed = true
  console.log(faults.slice(0, 20).join('\n'))
  console.log(serviceLog.slice(-3_000))
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value)
}

function added(
  total: Total | undefined,
  { faults, firstSuccessMs, recoveryMs, byReason, longestAnswerMs, ...counts }: Run,
): Total {
  const before = total ?? { ...NOTHING, byReason: {}, firstSuccessMs: [], recoveryMs: [] }
  const reasons = Object.keys({ ...before.byReason, ...byReason })
  return {
    runs: before.runs + 1,
    failedRuns: before.failedRuns + (faults.length > 0 ? 1 : 0),
    requests: before.requests + counts.requests,
    acknowledged: before.acknowledged + counts.acknowledged,
    stale: before.stale + counts.stale,
    notApplied: before.notApplied + counts.notApplied,
    unknown: before.unknown + counts.unknown,
    unknownApplied: before.unknownApplied + counts.unknownApplied,
    connectionErrors: before.connectionErrors + counts.connectionErrors,
    byReason: Object.fromEntries(reasons.map(key => [key, (before.byReason[key] ?? 0) + (byReason[key] ?? 0)])),
    longestAnswerMs: Math.max(before.longestAnswerMs, longestAnswerMs),
    firstSuccessMs: [...before.firstSuccessMs, firstSuccessMs],
    recoveryMs: [...before.recoveryMs, recoveryMs],
  }
}
