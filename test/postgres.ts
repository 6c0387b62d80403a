import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { readConfig } from '../src/config.js'
import { type DatabaseAddress, parseDatabaseUrl } from '../src/db/connection/database-url.js'
import type { Database } from '../src/db/database.js'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { openUrl } from '../src/db/open.js'

type WithTeardown = { teardown(fn: () => Promise<void>): void }

/** The content of a new database. It is built once in a template and then copied. */
export interface Template {
  name: string
  /** Fills the empty database at `url` and closes its connections. */
  prepare(url: string): Promise<void>
}

/** The advisory lock for creating and copying templates. The number is arbitrary. */
const TEMPLATE_LOCK = 7_140_311

/**
 * Creates a new database on the server of the run and returns its URL. Call it before creating resources that use the database: tap runs teardowns in
 * reverse order, so the resources are closed before the database is dropped.
 */
export async function testDatabase(t: WithTeardown, template?: Template): Promise<{ url: string }> {
  const { TEST_SERVER_URL: server } = process.env
  if (!server) throw new Error('there is no TEST_SERVER_URL: run this by npm test -- FILE')
  const name = `test_${process.pid}_${randomBytes(6).toString('hex')}`
  await withClient(server, client => createDatabase(client, server, name, template))
  t.teardown(() =>
    withClient(server, async client => {
      await client.query(`drop database if exists "${name}" with (force)`)
    }),
  )
  return { url: urlOf(server, name) }
}

/**
 * Returns the server of `TEST_DATABASE_URL`, whose user must be able to create databases. Without this variable, starts an embedded server with the
 * programs in `PG_BIN_DIR` or the installed ones. `leave` removes the embedded server.
 */
export async function startServer(): Promise<{ url: string; leave(): Promise<void> }> {
  const { TEST_DATABASE_URL: url, PG_BIN_DIR: binDir } = process.env
  if (url) {
    await withClient(url, dropTemplates)
    return { url, leave: async () => {} }
  }
  const dataDir = mkdtempSync(join(tmpdir(), 'agents-server-'))
  chmodSync(dataDir, 0o711) // the account that runs the server needs access to this folder
  const settings = {
    ...{ fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', autovacuum: 'off' },
    ...{ wal_level: 'minimal', max_wal_senders: '0', deadlock_timeout: '200ms', max_connections: '200' },
  }
  const server = await startEmbedded({ dataDir, settings, ...(binDir ? { binDir } : {}) })
  const leave = async () => {
    await server.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
  return { url: server.url, leave }
}

/** Drops the templates of earlier runs, which another version of the service may have made. */
async function dropTemplates(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ datname: string }>(
    `select datname from pg_database where datname like 'test\\_template\\_%' and datistemplate`,
  )
  for (const { datname } of rows) {
    await client.query(`alter database "${datname}" is_template false`)
    await client.query(`drop database "${datname}" with (force)`)
  }
}

async function createDatabase(client: pg.Client, server: string, name: string, template?: Template): Promise<void> {
  if (!template) {
    await client.query(`create database "${name}" template template0 strategy file_copy`)
    return
  }
  const source = `test_template_${template.name}`
  await client.query('select pg_advisory_lock($1)', [TEMPLATE_LOCK]) // the lock ends with the connection
  // A database is marked as a template only when it is complete.
  const made = await client.query('select from pg_database where datname = $1 and datistemplate', [source])
  if (made.rowCount === 0) {
    await client.query(`drop database if exists "${source}" with (force)`)
    await client.query(`create database "${source}" template template0`)
    await template.prepare(urlOf(server, source))
    await client.query(`alter database "${source}" is_template true allow_connections false`)
  }
  await client.query(`create database "${name}" template "${source}" strategy file_copy`)
}

/** Runs `work` with a new client, which is closed afterwards. */
export async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

/** Opens a database, and closes it after the test. */
export function opened(t: WithTeardown, url: string, settings: Record<string, string> = {}): Database {
  const database = openUrl(url, readConfig(settings))
  t.teardown(() => database.close())
  return database
}

/** Creates a folder that is removed after the test. If root starts PostgreSQL, it runs as another user, who needs access to the folder. */
export function newFolder(t: WithTeardown): string {
  const path = mkdtempSync(join(tmpdir(), 'agents-test-'))
  chmodSync(path, 0o711)
  t.teardown(async () => rmSync(path, { recursive: true, force: true, maxRetries: 5 }))
  return path
}

/** Returns the parsed address of a test database, with its host and port. */
export function addressOf(url: string): DatabaseAddress & { host: string; port: number } {
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  const { host = '', port = 0 } = parsed.address.config
  return { ...parsed.address, host, port }
}

/** Returns the URL of a database through a proxy on `port`. */
export function urlThrough(port: number, url: string): string {
  const { user, database } = addressOf(url).config
  return `postgresql://${user}@127.0.0.1:${port}/${database}`
}

function urlOf(server: string, database: string): string {
  const url = new URL(server)
  url.pathname = `/${database}`
  return url.href
}
