/** `npm run bench`: measures the built service as a process of its own beside what it is compared with, in the same run. */
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { readConfig } from '../src/config.js'
import { openUrl } from '../src/db/open.js'
import { VERSION } from '../src/version.js'
import { compareBuilds, isBuilt, openDatabaseOf } from './against.js'
import { captureStatements } from './captured.js'
import { type Case, casesOf } from './cases.js'
import { type BenchDatabase, openBenchDatabase } from './database.js'
import { sendAll } from './load.js'
import { hasPgbench } from './pgbench.js'
import { measureProcess } from './process-figures.js'
import { builtBench } from './processes.js'
import { describeMachine, loadNow, markdownOf, markdownOfBuilds, markdownOfChange, type Report } from './report.js'
import { agentsFor, manyToolsUpdates, unchangedAgent } from './requests.js'
import { Bench, type Durations } from './rounds.js'
import { compareSizes } from './scale.js'
import { LARGE, SMALL } from './world.js'

const USAGE = `Usage: npm run bench -- [--quick] [--scale] [--only TEXT] [--compare FILE | --against FOLDER]

  --quick         takes about two minutes and shows whether something broke; too short to say whether goals are met
  --scale         measures on a million agents, which it makes at the first run
  --only TEXT     keeps the cases whose name holds the text
  --compare FILE  shows the change since another results.json
  --against FOLDER
                  measures another checkout, built by its npm run build, and this one in turns, each with its own database,
                  and prints what each case takes of both: the way to see a change where others work on the machine
  --help          shows this

A whole run takes about seven minutes on two idle cores. It rewrites bench/results.json and the tables of bench/RESULTS.md
(with --scale results-scale.json and RESULTS-SCALE.md); a quick or partial one, or one against another build, only prints.

DATABASE_URL        a server on which databases may be created; without it an embedded one is used, below build/ (of each build
                    that is compared; given, both have one database, whose schema both must take)
BENCH_NODE_OPTIONS  what the service and the controls are run with, instead of the options of npm start for the service
pgbench             of Debian's postgresql packages, in PATH; without it its column is a loop over pg and is not compared

`

const QUICK: Durations = { rounds: 3, slotMs: 300, warmUpMs: 200, pgbenchSeconds: 1, mixedRequests: 2_000 }
const FULL: Durations = { rounds: 5, slotMs: 1_000, warmUpMs: 800, pgbenchSeconds: 2, mixedRequests: 100_000 }

/** The key ring of the benchmark's own databases; they hold nothing that is secret. */
const KEY_ID = 'bench'
const KEYS = `${KEY_ID}:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=`

interface Options {
  help: boolean
  quick: boolean
  scale: boolean
  only?: string
  compare?: string
  against?: string
}

async function main(): Promise<void> {
  const options = readOptions()
  if (options.help) return void process.stdout.write(USAGE)
  const before = options.compare === undefined ? undefined : readReport(options.compare)
  if (options.against !== undefined && !isBuilt(options.against))
    throw new Misuse(`--against takes a built checkout, and ${builtBench(options.against)} has no service.js`)
  const database = await openBenchDatabase(options.scale ? LARGE : SMALL, KEY_ID, say)
  try {
    if (options.against !== undefined)
      return void process.stdout.write(await measureAgainst(options.against, database, options))
    const report = await measure(database, options)
    const text = [markdownOf(report, options.quick), ...(before ? [markdownOfChange(before, report)] : [])].join('\n\n')
    process.stdout.write(`${text}\n`)
    if (!options.quick && options.only === undefined) keep(report, text, options.scale ? '-scale' : '')
  } finally {
    await database.close()
  }
}

async function measure(database: BenchDatabase, { quick, scale, only }: Options): Promise<Report> {
  const durations = quick ? QUICK : FULL
  const loadAtStart = loadNow()
  const cases = await casesOf(database, await capturedFrom(database))
  const wanted = casesNamed(cases, only)
  const bench = await begun(database, durations)
  try {
    const whole = only === undefined
    const [agentUpdate] = cases
    return {
      at: new Date().toISOString(),
      version: VERSION,
      commit: checkedOut(),
      machine: describeMachine(),
      loadAtStart,
      database: database.description,
      size: database.world.size,
      rounds: durations.rounds,
      connections: bench.connections,
      databaseControl: hasPgbench() ? 'pgbench' : 'raw pg',
      cases: await bench.measure(wanted),
      sweep: whole && agentUpdate ? await bench.sweep(agentUpdate) : [],
      process: whole && !scale ? await measureProcess(database, KEYS, durations, say) : null,
      scale: scale ? await compareWithSmall(database, durations) : null,
    }
  } finally {
    await bench.end()
  }
}

/** What each case takes of another build and of this one, as text. */
async function measureAgainst(
  checkout: string,
  database: BenchDatabase,
  { quick, scale, only }: Options,
): Promise<string> {
  const durations = quick ? QUICK : FULL
  const loadAtStart = loadNow()
  const other = await openDatabaseOf(checkout, scale ? LARGE : SMALL, KEY_ID, say)
  try {
    const captured = await capturedFrom(database)
    const cases = await casesOf(database, captured)
    // On one database they are the same requests: who sends a tag has to know who made the last one.
    const theirs = other.url === database.url ? cases : await casesOf(other, captured)
    const sides = [
      { bench: await begun(other, durations, checkout), cases: casesNamed(theirs, only) },
      { bench: await begun(database, durations), cases: casesNamed(cases, only) },
    ] as const
    try {
      return markdownOfBuilds(checkout, await compareBuilds(...sides, durations, say), loadAtStart)
    } finally {
      for (const { bench } of sides) await bench.end()
    }
  } finally {
    await other.close()
  }
}

/** The processes of one build, with the rows that its cases find as they want them. */
async function begun(database: BenchDatabase, durations: Durations, checkout?: string): Promise<Bench> {
  const bench = await Bench.start(database, KEYS, durations, say, checkout)
  const same = agentsFor(database.world, 'same').map(id => unchangedAgent(database.world, id))
  const manyTools = manyToolsUpdates(database.world)(0, 1)
  const attached = agentsFor(database.world, 'many tools').map(() => manyTools())
  for (const requests of [same, attached]) await sendAll(bench.service.ports.port, requests, 200)
  return bench
}

async function capturedFrom(database: BenchDatabase) {
  const own = openUrl(database.url, readConfig({}))
  try {
    return await captureStatements(own, database.world)
  } finally {
    await own.close()
  }
}

async function compareWithSmall(large: BenchDatabase, durations: Durations) {
  const small = await openBenchDatabase(SMALL, KEY_ID, say)
  try {
    return await compareSizes(small, large, KEYS, durations, say)
  } finally {
    await small.close()
  }
}

function casesNamed(cases: readonly Case[], only = ''): Case[] {
  const wanted = cases.filter(({ name }) => name.includes(only))
  if (wanted.length > 0) return wanted
  const names = cases.map(({ name }) => `\n  ${name}`).join('')
  throw new Misuse(`no case has '${only}' in its name; the cases are${names}`)
}

function checkedOut(): string | null {
  try {
    const cwd = fileURLToPath(new URL('.', import.meta.url))
    const described = execFileSync('git', ['describe', '--always', '--dirty=+'], {
      cwd,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    return described.toString('utf8').trim()
  } catch {
    return null
  }
}

/** What the command line asks for is not there: the message is one line for whoever typed it. */
class Misuse extends Error {}

/** What the command line asks for; throws `Misuse`. */
function readOptions(): Options {
  try {
    const { values } = parseArgs({
      options: {
        help: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        scale: { type: 'boolean', default: false },
        only: { type: 'string' },
        compare: { type: 'string' },
        against: { type: 'string' },
      },
    })
    return values
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const [fault] = error.message.split(/\. |\n/)
    throw new Misuse(`${fault}; npm run bench -- --help shows the options`)
  }
}

function readReport(path: string): Report {
  try {
    const report = JSON.parse(readFileSync(path, 'utf8')) as Report // what `keep` wrote, if it has cases
    if (Array.isArray(report.cases)) return report
  } catch (error) {
    throw new Misuse(`--compare cannot read ${path}: ${(error as Error).message}`)
  }
  throw new Misuse(`--compare takes a results.json of this benchmark, and ${path} has no cases`)
}

/** Writes both files anew; what people wrote below the mark stays. */
function keep(report: Report, text: string, suffix: string): void {
  const folder = fileURLToPath(new URL('../../bench/', import.meta.url))
  const page = `${folder}RESULTS${suffix.toUpperCase()}.md`
  const [, notes = '\n'] = existsSync(page) ? readFileSync(page, 'utf8').split(NOTES_MARK) : []
  writeFileSync(`${folder}results${suffix}.json`, `${JSON.stringify(report, null, 2)}\n`)
  writeFileSync(page, `# What \`npm run bench\` measured\n\n${text}\n\n${NOTES_MARK}${notes}`)
  say(`written: ${page} and results${suffix}.json beside it`)
}

const NOTES_MARK = '<!-- Written by hand from here on; a new run keeps it. -->'

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}

// `process.exit` ends what was started: pgbench by its exit handler, the service and the controls by the channel that closes.
process.once('SIGHUP', () => process.exit(129))
process.once('SIGINT', () => process.exit(130))
process.once('SIGTERM', () => process.exit(143))
try {
  await main()
} catch (error) {
  if (!(error instanceof Misuse)) throw error
  say(`bench: ${error.message}`)
  process.exitCode = 2
}
