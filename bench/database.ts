import { mkdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { readConfig } from '../src/config.js'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { parentOf } from './measure.js'
import { enterWorld, fillWorld, type World, type WorldSize } from './world.js'

/** Where generated files and the embedded database go: below `build`, kept between runs. */
export const BENCH_FOLDER = fileURLToPath(new URL('../../build/bench-files', import.meta.url))

/** A PostgreSQL server with a filled database of the benchmark's own. */
export interface BenchDatabase {
  url: string
  world: World
  /** What it is and how it commits, for the report. */
  description: string
  /** The server's first process when it runs on this machine, for its processor time. */
  serverPid: number | null
  /** A connection for the benchmark's own statements. */
  client: pg.Client
  close(): Promise<void>
}

/**
 * Opens the database of one size on the server of `DATABASE_URL`, or else on an embedded one with the settings that the
 * service gives it. It is made and filled at the first run; later runs find it.
 */
export async function openBenchDatabase(
  size: WorldSize,
  keyId: string,
  progress: (line: string) => void,
): Promise<BenchDatabase> {
  mkdirSync(BENCH_FOLDER, { recursive: true })
  const server = await openServer(progress)
  const name = `bench_${size.agents}_v1`
  const url = withDatabase(server.url, name)
  await makeDatabase(server.url, name, size, keyId, progress)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return {
    url,
    world: await enterWorld(client, size),
    description: await describe(client),
    serverPid: await serverPidOf(client),
    client,
    close: async () => {
      await client.end()
      await server.leave()
    },
  }
}

async function openServer(progress: (line: string) => void) {
  const { DATABASE_URL, PG_BIN_DIR } = process.env
  if (DATABASE_URL) return { url: DATABASE_URL, leave: async () => undefined }
  const embedded = await startEmbedded({
    dataDir: `${BENCH_FOLDER}/embedded`,
    ...(PG_BIN_DIR ? { binDir: PG_BIN_DIR } : {}),
    log: progress,
  })
  return { url: embedded.url, leave: embedded.stop }
}

/** Renamed only when it is whole: a run that was interrupted leaves a name that the next one drops. */
async function makeDatabase(
  server: string,
  name: string,
  size: WorldSize,
  keyId: string,
  progress: (line: string) => void,
) {
  const admin = new pg.Client({ connectionString: server })
  await admin.connect()
  try {
    const { rowCount } = await admin.query('select from pg_database where datname = $1', [name])
    if (rowCount === 1) return
    const unfinished = `${name}_unfinished`
    await admin.query(`drop database if exists ${unfinished}`)
    await admin.query(`create database ${unfinished} template template0`)
    const url = withDatabase(server, unfinished)
    await migrateAt(url)
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await fillWorld(client, size, keyId, progress)
    await client.end()
    await admin.query(`alter database ${unfinished} rename to ${name}`)
  } finally {
    await admin.end()
  }
}

async function migrateAt(url: string): Promise<void> {
  const database = openUrl(url, readConfig({}))
  await migrate(database.db)
  await database.close()
}

function withDatabase(server: string, name: string): string {
  const url = new URL(server)
  url.pathname = `/${name}`
  return url.href
}

async function describe(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ version: string; settings: string }>(
    `select current_setting('server_version') as version, (select string_agg(name || '=' || setting, ', ' order by name)
     from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes')) as settings`,
  )
  const [row] = rows
  return `PostgreSQL ${row?.version} (${process.env.DATABASE_URL ? 'given' : 'embedded'}; ${row?.settings})`
}

/** The session's parent, if it is a process of this machine. */
async function serverPidOf(client: pg.Client): Promise<number | null> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  return parentOf(rows[0]?.pid ?? 0)
}
