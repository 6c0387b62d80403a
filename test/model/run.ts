/**
 * Checks the model of an update in `test/model/updates.qnt` with Quint's simulator: as the service is built no invariant
 * may break, and under each wrong rule the fault must be found, or the model shows nothing.
 *
 *     npm run test:model
 */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'

interface Check {
  module: string
  /** The invariant that must break; undefined: both must hold. */
  breaks?: string
  says: string
}

const CHECKS: readonly Check[] = [
  { module: 'inDoubt', says: 'as built' },
  { module: 'fatalIsProof', breaks: 'exactlyOnce', says: 'a FATAL taken as proof applies an update twice' },
  { module: 'fatalIsProof', breaks: 'truthful', says: 'a FATAL taken as proof makes an answer untrue' },
  { module: 'foundIsEnough', breaks: 'truthful', says: 'a commit that the standby lacks, taken as applied' },
  { module: 'poolerTellsProcesses', breaks: 'truthful', says: 'settling through a pooler makes an answer untrue' },
]
const INVARIANTS = ['exactlyOnce', 'truthful']
/** States that the runs of the model as built must have reached. */
const WITNESSES = [
  'wasSettledAsApplied',
  'wasSettledAsNotApplied',
  'wasRepeatedAndApplied',
  'wasToldByRepeat',
  'wasUnknownBehindPooler',
  'cameLate',
]
const RUNS = 5_000
const STEPS = 20
/** The same runs every time. */
const SEED = '0x2026'
const TIME_LIMIT_MS = 600_000

const folder = fileURLToPath(new URL('../../../test/model/', import.meta.url))
let failed = 0
for (const check of CHECKS) {
  const { isAsExpected, text } = verdict(check, await simulate(check))
  console.log(`${isAsExpected ? 'ok    ' : 'NOT OK'}  ${check.says}: ${text}`)
  if (!isAsExpected) failed++
}
process.exitCode = failed === 0 ? 0 : 1

interface Simulated {
  code: number
  output: string
}

/** The simulator in TypeScript: the other one would be downloaded at its first use. */
function simulate({ module, breaks }: Check): Promise<Simulated> {
  const args = [
    'node_modules/@informalsystems/quint/dist/src/cli.js',
    ...['run', 'updates.qnt', '--main', module, '--backend', 'typescript', '--seed', SEED],
    ...['--max-samples', String(RUNS), '--max-steps', String(STEPS)],
    ...['--invariants', ...(breaks === undefined ? INVARIANTS : [breaks]), '--witnesses', ...WITNESSES],
  ]
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { cwd: folder, timeout: TIME_LIMIT_MS }, (error, stdout, stderr) => {
      if (error !== null && typeof error.code !== 'number') reject(error)
      else resolve({ code: Number(error?.code ?? 0), output: stdout + stderr })
    })
  })
}

function verdict({ breaks }: Check, { code, output }: Simulated): { isAsExpected: boolean; text: string } {
  if (breaks !== undefined) {
    const states = output.match(/^\[State \d+\]/gm)?.length ?? 0
    const isFound = code !== 0 && output.includes('[violation]')
    return { isAsExpected: isFound, text: isFound ? `found, in ${states} states` : lastLines(output) }
  }
  const missed = WITNESSES.filter(
    name => !(Number(new RegExp(`${name} was witnessed in (\\d+)`).exec(output)?.[1]) > 0),
  )
  if (code !== 0 || !output.includes('No violation found')) return { isAsExpected: false, text: lastLines(output) }
  const text =
    missed.length === 0 ? `no fault in ${RUNS} runs of ${STEPS} steps` : `never reached: ${missed.join(', ')}`
  return { isAsExpected: missed.length === 0, text }
}

function lastLines(output: string): string {
  return `\n${output.split('\n').slice(-30).join('\n')}`
}
