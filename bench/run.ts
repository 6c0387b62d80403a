/** `npm run bench`: measures the built service as a process of its own beside what it is compared with, in the same run. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { readConfig } from '../src/config.js'
import { openUrl } from '../src/db/open.js'
import { captureStatements } from './captured.js'
import { casesOf } from './cases.js'
import { type BenchDatabase, openBenchDatabase } from './database.js'
import { sendAll } from './load.js'
import { hasPgbench } from './pgbench.js'
import { measureProcess } from './process-figures.js'
import { describeMachine, loadNow, markdownOf, markdownOfChange, type Report } from './report.js'
import { agentsFor, unchangedAgent } from './requests.js'
import { Bench, type Durations } from './rounds.js'
import { compareSizes } from './scale.js'
import { LARGE, SMALL } from './world.js'

const USAGE = `Usage: npm run bench -- [--quick] [--scale] [--only TEXT] [--compare FILE]

  --quick         takes about a minute and shows whether something broke
  --scale         measures on a million agents, which it makes at the first run
  --only TEXT     keeps the cases whose name holds the text
  --compare FILE  shows the change since another results.json
  --help          shows this

DATABASE_URL names a server on which databases may be created; without it an embedded one is used.
A whole run writes bench/results.json and bench/RESULTS.md (with --scale results-scale.json and RESULTS-SCALE.md); a quick
or partial one only prints.
`

const QUICK: Durations = { rounds: 5, slotMs: 300, warmUpMs: 200, pgbenchSeconds: 1, mixedRequests: 2_000 }
/** pgbench runs longer than its controls: in one second a third of what is measured are its connections and first plans. */
const FULL: Durations = { rounds: 5, slotMs: 1_200, warmUpMs: 800, pgbenchSeconds: 4, mixedRequests: 100_000 }
/** The question at this size is how it compares with the small one: shorter rounds answer it. */
const AT_SCALE: Durations = { ...FULL, slotMs: 1_000 }

/** The key ring of the benchmark's own databases; they hold nothing that is secret. */
const KEY_ID = 'bench'
const KEYS = `${KEY_ID}:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=`

interface Options {
  help: boolean
  quick: boolean
  scale: boolean
  only?: string
  compare?: string
}

async function main(): Promise<void> {
  const options = readOptions()
  if (options === undefined) return
  if (options.help) return void process.stdout.write(USAGE)
  const before = options.compare === undefined ? undefined : readReport(options.compare)
  const database = await openBenchDatabase(options.scale ? LARGE : SMALL, KEY_ID, say)
  try {
    const report = await measure(database, options)
    const text = [markdownOf(report), ...(before ? [markdownOfChange(before, report)] : [])].join('\n\n')
    process.stdout.write(`${text}\n`)
    if (!options.quick && options.only === undefined) keep(report, text, options.scale ? '-scale' : '')
  } finally {
    await database.close()
  }
}

async function measure(database: BenchDatabase, { quick, scale, only }: Options): Promise<Report> {
  const durations = quick ? QUICK : scale ? AT_SCALE : FULL
  const loadAtStart = loadNow()
  const cases = await preparedCases(database)
  const wanted = cases.filter(({ name }) => only === undefined || name.includes(only))
  const bench = await Bench.start(database, KEYS, durations, say)
  try {
    const same = agentsFor(database.world, 'same').map(id => unchangedAgent(database.world, id))
    await sendAll(bench.service.ports.port, same, 200)
    const whole = only === undefined
    const [agentUpdate] = cases
    return {
      at: new Date().toISOString(),
      machine: describeMachine(),
      loadAtStart,
      database: database.description,
      size: database.world.size,
      rounds: durations.rounds,
      connections: bench.connections,
      databaseControl: hasPgbench() ? 'pgbench' : 'raw pg',
      cases: await bench.measure(wanted),
      sweep: whole && agentUpdate ? await bench.sweep(agentUpdate) : [],
      process:
        whole && !scale ? await measureProcess(database, KEYS, durations.mixedRequests, durations.slotMs * 3) : null,
      scale: scale ? await compareWithSmall(database, durations) : null,
    }
  } finally {
    await bench.end()
  }
}

async function preparedCases(database: BenchDatabase) {
  const own = openUrl(database.url, readConfig({}))
  try {
    return casesOf(database, await captureStatements(own, database.world))
  } finally {
    await own.close()
  }
}

async function compareWithSmall(large: BenchDatabase, durations: Durations) {
  const small = await openBenchDatabase(SMALL, KEY_ID, say)
  try {
    return await compareSizes(small, large, KEYS, durations)
  } finally {
    await small.close()
  }
}

/** What the command line asks for; undefined, with a line and exit status 2, when that is nothing that there is. */
function readOptions(): Options | undefined {
  try {
    const { values } = parseArgs({
      options: {
        help: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        scale: { type: 'boolean', default: false },
        only: { type: 'string' },
        compare: { type: 'string' },
      },
    })
    return values
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const [fault] = error.message.split(/\. |\n/)
    say(`bench: ${fault}; npm run bench -- --help shows the options`)
    process.exitCode = 2
    return undefined
  }
}

function readReport(path: string): Report {
  return JSON.parse(readFileSync(path, 'utf8')) as Report // what `keep` wrote
}

/** Writes both files anew; what people wrote below the mark stays. */
function keep(report: Report, text: string, suffix: string): void {
  const folder = fileURLToPath(new URL('../../bench/', import.meta.url))
  const page = `${folder}RESULTS${suffix.toUpperCase()}.md`
  const [, notes = '\n'] = existsSync(page) ? readFileSync(page, 'utf8').split(NOTES_MARK) : []
  writeFileSync(`${folder}results${suffix}.json`, `${JSON.stringify(report, null, 2)}\n`)
  writeFileSync(page, `# What \`npm run bench\` measured\n\n${text}\n\n${NOTES_MARK}${notes}`)
}

const NOTES_MARK = '<!-- Written by hand from here on; a new run keeps it. -->'

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}

await main()
