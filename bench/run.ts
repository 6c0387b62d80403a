import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import fastify from 'fastify'
import pg from 'pg'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { generateKey } from '../src/secrets/key-ring.js'
import { agentUpdate, CASES, type Case } from './cases.js'
import { type LoadResult, load } from './load.js'
import { pgbench, recorded } from './pgbench.js'
import { migrate, parentOf, processorMs, residentMib, type Service, startService } from './process.js'
import { fillWorld, type World } from './world.js'

/* Measures this build, plain controls and, with `--against`, another built checkout, in turns in one run. */

const USAGE = `Usage: npm run bench -- [--against CHECKOUT] [--rounds 5] [--seconds 3] [--write]
  --against  another built checkout, measured in turns with this one
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

interface Side extends Service {
  world: World
  env: NodeJS.ProcessEnv
}

type Slot = LoadResult & { serviceMs: number; databaseMs: number }

/** A checkout's service on a new database with the world in it. */
async function startSide(name: string, checkout: string, server: pg.Client, serverUrl: string): Promise<Side> {
  const database = `bench_${process.pid}_${name}`
  await server.query(`create database ${database}`)
  const url = serverUrl.replace(/\/[^/?]*(?=\?|$)/, `/${database}`)
  const env = { PATH: process.env.PATH, DATABASE_URL: url, SECRET_KEYS: generateKey('bench') }
  migrate(checkout, env)
  const world = await withClient(url, client => fillWorld(client, 'bench'))
  return { world, env, ...(await startService(checkout, env)) }
}

async function withClient<T>(url: string | undefined, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return await work(client).finally(() => client.end())
}

/** An echo of validations behind one prepared look-up of the token. */
async function startEcho(now: Side): Promise<Side> {
  const pool = new pg.Pool({ connectionString: now.env.DATABASE_URL, max: CONNECTIONS })
  const app = fastify({ bodyLimit: 8 * 1024 * 1024 })
  app.addHook('onRequest', async ({ headers }) => {
    const hash = createHash('sha256').update(String(headers.authorization)).digest()
    await pool.query({ name: 'token', text: 'select user_id, revoked_at from token where hash = $1', values: [hash] })
  })
  app.post('/admin/tool/custom/validate', async ({ body }) => body)
  await app.listen({ host: '127.0.0.1', port: 0 })
  return { ...now, port: (app.addresses()[0] as AddressInfo).port } // it listens on TCP
}

async function measure(side: Side, { source, status }: Case, postmaster: number): Promise<Slot> {
  const used = () => [processorMs(side.pid), processorMs(postmaster, true)] as const
  const before = used()
  const options = { connections: CONNECTIONS, durationMs: seconds * 1000, status }
  const result = await load(side.port, source(side.world), options)
  const [serviceMs, databaseMs] = used().map((ms, i) => (ms - (before[i] ?? 0)) / result.requests)
  return { ...result, serviceMs: serviceMs ?? 0, databaseMs: databaseMs ?? 0 }
}

/** Each side's rounds of one case, the order turned round each time; the first round warms up and does not count. */
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

/** Updates a second by pgbench, with the statements of one update; undefined where there is no pgbench. */
async function pgbenchRate({ env, world }: Side): Promise<number | undefined> {
  const row = { id: 777, version: 50_003 }
  await withClient(env.DATABASE_URL, client => client.query('update persona set version = $1', [row.version]))
  const sent = await recorded(env, port => agentUpdate(port, world, row.id))
  return pgbench(env.DATABASE_URL ?? '', sent, row, { clients: CONNECTIONS, seconds: seconds * rounds })
}

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'bench-'))
  const embedded = process.env.DATABASE_URL ? undefined : await startEmbedded({ dataDir })
  const serverUrl = embedded?.url ?? process.env.DATABASE_URL ?? ''
  const server = new pg.Client({ connectionString: serverUrl })
  await server.connect()
  const asked = `select pg_backend_pid() as pid, current_setting('server_version') as version`
  const [{ pid, version } = { pid: 0, version: '' }] = (await server.query(asked)).rows
  const postmaster = parentOf(pid)
  const now = await startSide('now', OWN, server, serverUrl)
  const before = given.against === undefined ? [] : [await startSide('before', given.against, server, serverUrl)]
  const echo = await startEcho(now)
  const lines = [
    '| case | a second | p50 ms | p99 ms | ms of service | before | ms of database | a second over before | over echo |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- |',
  ]
  for (const each of CASES) {
    const isEchoed = each.name.startsWith('validation')
    const earlierSides = each.isRead ? [] : before // 1.0.0 has no reads
    const sides = [now, ...earlierSides, ...(isEchoed ? [echo] : [])]
    const [own = [], ...others] = await roundsOf(each, sides, postmaster)
    if (earlierSides.length === 0) others.unshift([])
    const figure = (slots: Slot[], key: keyof Slot) => median(slots.map(slot => slot[key])).toFixed(2)
    const ratio = (slots: Slot[] = []) =>
      median(slots.map((slot, i) => (own[i]?.perSecond ?? 0) / slot.perSecond)).toFixed(2)
    const [earlier = [], echoed] = others
    const figures = [figure(own, 'serviceMs'), figure(earlier, 'serviceMs'), figure(own, 'databaseMs')]
    const times = [figure(own, 'perSecond').split('.')[0], figure(own, 'p50Ms'), figure(own, 'p99Ms')]
    lines.push(
      `| ${[each.name, ...times, ...figures, ratio(earlier), ratio(echoed)].join(' | ').replaceAll('NaN', '')} |`,
    )
    process.stdout.write(`${lines.at(-1)}\n`)
  }
  const resident = [now, ...before].map(each => `${residentMib(each.pid).toFixed(0)} MiB`).join(', before ')
  const rate = await pgbenchRate(now)
  lines.push(
    '',
    `Resident afterwards: ${resident}. pgbench with the statements of an agent update: ${rate?.toFixed(0) ?? 'not here'} a second.`,
    `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}, PostgreSQL ${version},`,
    `${CONNECTIONS} connections, medians of ${rounds} rounds of ${seconds} s.`,
  )
  process.stdout.write(`${lines.slice(-3).join('\n')}\n`)
  const page = join(OWN, 'bench/README.md')
  if (given.write) writeFileSync(page, `${readFileSync(page, 'utf8').split('| case')[0]}${lines.join('\n')}\n`)
  await server.end()
  await embedded?.stop()
  process.exit(0)
}

if (given.help) process.stdout.write(USAGE)
else await main()
