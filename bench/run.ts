/**
 * `npm run bench`: measures the built service as a process of its own beside what it is compared with, in the same run.
 *
 *     npm run bench -- [--quick] [--scale] [--only TEXT] [--compare FILE]
 *
 * `--quick` takes about a minute and shows whether something broke; `--scale` measures on a million agents, which it makes
 * at the first run; `--only` keeps the cases whose name holds the text; `--compare` shows the change since another
 * `results.json`. `DATABASE_URL` names a server on which databases may be created; without it an embedded one is used.
 */
import { parseArgs } from 'node:util'
import { readConfig } from '../src/config.js'
import { openUrl } from '../src/db/open.js'
import { captureStatements } from './captured.js'
import { casesOf } from './cases.js'
import { openBenchDatabase } from './database.js'
import { sendAll } from './load.js'
import { agentsFor, unchangedAgent } from './requests.js'
import { Bench, type Durations } from './rounds.js'
import { LARGE, SMALL, type World } from './world.js'

const QUICK: Durations = { rounds: 5, slotMs: 400, warmUpMs: 200, pgbenchSeconds: 1 }
const FULL: Durations = { rounds: 5, slotMs: 2_000, warmUpMs: 800, pgbenchSeconds: 2 }

/** The key of the benchmark's own databases; they hold nothing that is secret. */
const KEYS = 'bench:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      scale: { type: 'boolean', default: false },
      only: { type: 'string' },
      compare: { type: 'string' },
    },
  })
  const durations = options.quick ? QUICK : FULL
  const say = (line: string) => process.stderr.write(`${line}\n`)
  const database = await openBenchDatabase(options.scale ? LARGE : SMALL, 'bench', say)
  const own = openUrl(database.url, readConfig({}))
  const captured = await captureStatements(own, database.world)
  await own.close()
  const cases = casesOf(database, captured).filter(({ name }) => !options.only || name.includes(options.only))
  const bench = await Bench.start(database, KEYS, durations, say)
  try {
    await makeUnchanged(bench.service.ports.port, database.world)
    console.table((await bench.measure(cases)).map(({ controls, ...c }) => ({ ...c, ...Object.fromEntries(controls.map(k => [k.name, k.ratio])) , ...Object.fromEntries(controls.map(k => [k.name+'/s', k.perSecond]))})))
  } finally {
    await bench.end()
    await database.close()
  }
}

async function makeUnchanged(port: number, world: World): Promise<void> {
  await sendAll({ port }, agentsFor(world, 'same').map(id => unchangedAgent(world, id)), 200)
}

await main()
