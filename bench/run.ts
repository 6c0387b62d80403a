import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { generateKey } from '../src/secrets/key-ring.js'
import { CASES, type Case } from './cases.js'
import { type LoadResult, load } from './load.js'
import * as processes from './process.js'
import { fillFloor, fillWorld, type World } from './world.js'

/* Measures this build, the floor (floor.ts) and, with `--against`, another built checkout. Alternates between them within one run. */

const USAGE = `Usage: npm run bench -- [--against CHECKOUT] [--rounds 5] [--seconds 3] [--write]
  --against  another built checkout, measured alternately with this one
  --write    stores the table in bench/README.md
`
const OWN = fileURLToPath(new URL('../..', import.meta.url))
const { values: given } = parseArgs({
  options: {
    against: { type: 'string' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '3' },
    write: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const rounds = Number(given.rounds)
const seconds = Number(given.seconds)
const CONNECTIONS = 16

interface Side extends processes.Service {
  world: World
}

type Slot = LoadResult & { serviceMs: number; databaseMs: number }

/** Starts a checkout's service on a new database that `fillWorld` has filled. */
async function startSide(name: string, checkout: string, server: pg.Client, serverUrl: string): Promise<Side> {
  const url = await newDatabase(name, server, serverUrl)
  const env = { PATH: process.env.PATH, DATABASE_URL: url, SECRET_KEYS: generateKey('bench') }
  processes.migrate(checkout, env)
  const world = await withClient(url, client => fillWorld(client, env.SECRET_KEYS))
  return { world, ...(await processes.startService(checkout, env)) }
}

async function startFloor(world: World, server: pg.Client, serverUrl: string): Promise<Side> {
  const url = await newDatabase('floor', server, serverUrl)
  await withClient(url, client => fillFloor(client, world))
  const env = { PATH: process.env.PATH, DATABASE_URL: url }
  return { world, ...(await processes.startProcess(OWN, 'node build/bench/floor.js', env)) }
}

async function newDatabase(name: string, server: pg.Client, serverUrl: string): Promise<string> {
  const database = `bench_${process.pid}_${name}`
  await server.query(`create database ${database}`)
  return serverUrl.replace(/\/[^/?]*(?=\?|$)/, `/${database}`)
}

async function withClient<T>(url: string | undefined, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return await work(client).finally(() => client.end())
}

async function measure(side: Side, { source, status }: Case, postmaster: number): Promise<Slot> {
  const used = () => [processes.processorMs(side.pid), processes.processorMs(postmaster, true)] as const
  const before = used()
  const options = { connections: CONNECTIONS, durationMs: seconds * 1000, status }
  const result = await load(side.port, source(side.world), options)
  const [serviceMs, databaseMs] = used().map((ms, i) => (ms - (before[i] ?? 0)) / result.requests)
  return { ...result, serviceMs: serviceMs ?? 0, databaseMs: databaseMs ?? 0 }
}

/** Measures the rounds of one case on each side. The order of the sides alternates. The first round is a warm-up and is not counted. */
async function roundsOf(each: Case, sides: readonly Side[], postmaster: number): Promise<Slot[][]> {
  const slots: Slot[][] = sides.map(() => [])
  for (let round = 0; round <= rounds; round++) {
    const order = sides.map((_, i) => (round % 2 === 0 ? i : sides.length - 1 - i))
    for (const i of order) {
      const slot = await measure(sides[i] as Side, each, postmaster)
      if (round > 0) slots[i]?.push(slot)
    }
  }
  return slots
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN
}

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'bench-'))
  chmodSync(dataDir, 0o711) // PostgreSQL started by root runs as another user, who needs access to this folder
  const embedded = process.env.DATABASE_URL ? undefined : await startEmbedded({ dataDir })
  const serverUrl = embedded?.url ?? process.env.DATABASE_URL ?? ''
  const server = new pg.Client({ connectionString: serverUrl })
  await server.connect()
  const asked = `select pg_backend_pid() as pid, current_setting('server_version') as version`
  const [{ pid, version } = { pid: 0, version: '' }] = (await server.query(asked)).rows
  const postmaster = processes.parentOf(pid)
  const now = await startSide('now', OWN, server, serverUrl)
  const { against } = given
  const before = against === undefined ? [] : [await startSide('before', against, server, serverUrl)]
  const floor = await startFloor(now.world, server, serverUrl)
  const old = against === undefined ? 'another' : processes.packageOf(against).version
  const lines = [
    `| case | a second | p50 ms | p99 ms | ms of service | of ${old} | of the floor | ms of database | over ${old} | over the floor |`,
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for (const each of CASES) {
    const sides = [[now], each.isOld ? before : [], each.isOnFloor ? [floor] : []]
    const slots = await roundsOf(each, sides.flat(), postmaster)
    const [own = [], earlier = [], bare = []] = sides.map(one => (one.length > 0 ? slots.shift() : []))
    const figure = (of: Slot[], key: keyof Slot) => median(of.map(slot => slot[key])).toFixed(2)
    const over = (of: Slot[]) => median(of.map((slot, i) => (own[i]?.perSecond ?? 0) / slot.perSecond)).toFixed(2)
    const times = [figure(own, 'perSecond').split('.')[0], figure(own, 'p50Ms'), figure(own, 'p99Ms')]
    const used = [own, earlier, bare].map(of => figure(of, 'serviceMs'))
    const cells = [each.name, ...times, ...used, figure(own, 'databaseMs'), over(earlier), over(bare)]
    lines.push(`| ${cells.join(' | ').replaceAll('NaN', '')} |`)
    process.stdout.write(`${lines.at(-1)}\n`)
  }
  const resident = [now, ...before].map(({ pid }) => `${processes.residentMib(pid).toFixed(0)} MiB`)
  lines.push(
    '',
    `Resident afterwards: ${resident.join(`, ${old} `)}. "over ${old}" and "over the floor" are this build's requests a second over theirs.`,
    `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}, PostgreSQL ${version},`,
    `${CONNECTIONS} connections, medians of ${rounds} rounds of ${seconds} s.`,
  )
  process.stdout.write(`${lines.slice(-3).join('\n')}\n`)
  const page = join(OWN, 'bench/README.md')
  if (given.write) writeFileSync(page, `${readFileSync(page, 'utf8').split('| case')[0]}${lines.join('\n')}\n`)
  await server.end()
  await embedded?.stop()
  rmSync(dataDir, { recursive: true })
  process.exit(0)
}

if (given.help) process.stdout.write(USAGE)
else await main()
