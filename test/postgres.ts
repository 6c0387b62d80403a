import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { startEmbedded } from '../src/db/embedded/embedded.js'

/** A database that a test file has for itself. */
export interface TestDatabase {
  /** For `pg`, as a `connectionString`. */
  url: string
  /** Drops the database, open connections or not. Runs at teardown by itself; a second call does nothing. */
  drop(): Promise<void>
}

/** How to fill a new database: built once into a template, then copied. */
export interface Template {
  /** Lower-case letters, digits and `_`, at most 40. Ends with a hash of what `prepare` does, so that a change makes another. */
  name: string
  /** Fills the empty database at `url` and closes its connections. */
  prepare(url: string): Promise<void>
}

interface Server {
  url: string
  leave(): Promise<void>
}

/** The part of a tap test that is needed here. */
interface WithTeardown {
  teardown(fn: () => Promise<void>): void
}

/** Makes and copies of the templates exclude each other by this advisory lock; the number has no meaning. */
const TEMPLATE_LOCK = 7_140_311

/**
 * A fresh database for a test file, on the server of the run (`all.ts`). Ask for it before the resources that use it: tap runs
 * teardowns in reverse order, so they are closed before the database goes.
 */
export async function testDatabase(t: WithTeardown, options: { template?: Template } = {}): Promise<TestDatabase> {
  const server = await openServer()
  const name = `test_${process.pid}_${randomBytes(6).toString('hex')}`
  try {
    await withClient(server.url, client => createDatabase(client, server, name, options.template))
  } catch (error) {
    await server.leave()
    throw error
  }
  let dropped: Promise<void> | undefined
  const drop = () => {
    dropped ??= dropDatabase(server, name)
    return dropped
  }
  t.teardown(drop)
  return { url: urlOf(server, name), drop }
}

let own: Promise<Server> | undefined
let users = 0

/** The server of the run, or else one that this process keeps while a test uses it. */
async function openServer(): Promise<Server> {
  const { TEST_SERVER_URL } = process.env
  if (TEST_SERVER_URL) return { url: TEST_SERVER_URL, leave: async () => undefined }
  users++
  own ??= startServer()
  const { url, leave } = await own
  return {
    url,
    leave: async () => {
      if (--users > 0) return
      own = undefined
      await leave()
    },
  }
}

/**
 * The server of `TEST_DATABASE_URL`, whose user may create databases; or else a new embedded one, of the programs in `PG_BIN_DIR`
 * if that is set, which is removed when it is left.
 */
export async function startServer(): Promise<Server> {
  const { TEST_DATABASE_URL, PG_BIN_DIR: binDir } = process.env
  if (TEST_DATABASE_URL) return { url: TEST_DATABASE_URL, leave: async () => undefined }
  const dataDir = mkdtempSync(join(tmpdir(), 'agents-server-'))
  chmodSync(dataDir, 0o711) // the account that runs the server passes through
  const server = await startEmbedded({
    dataDir,
    settings: {
      fsync: 'off',
      synchronous_commit: 'off',
      full_page_writes: 'off',
      deadlock_timeout: '200ms',
      max_connections: '200',
    },
    ...(binDir ? { binDir } : {}),
  })
  const leave = async () => {
    await server.stop()
    rmSync(dataDir, { recursive: true, force: true })
  }
  return { url: server.url, leave }
}

async function createDatabase(client: pg.Client, server: Server, name: string, template?: Template): Promise<void> {
  if (!template) {
    await client.query(`create database "${name}" template template0`)
    return
  }
  if (!/^[a-z0-9_]{1,40}$/.test(template.name)) throw new Error(`not a name for a template: ${template.name}`)
  const source = `template_${template.name}`
  for (;;) {
    await client.query('select pg_advisory_lock_shared($1)', [TEMPLATE_LOCK])
    const made = await isTemplate(client, source)
    if (made) await client.query(`create database "${name}" template "${source}"`)
    await client.query('select pg_advisory_unlock_shared($1)', [TEMPLATE_LOCK])
    if (made) return
    await client.query('select pg_advisory_lock($1)', [TEMPLATE_LOCK])
    if (!(await isTemplate(client, source))) await makeTemplate(client, server, source, template)
    await client.query('select pg_advisory_unlock($1)', [TEMPLATE_LOCK])
  }
}

/** Whether the template is there and whole: it is marked as one only when its preparation is over. */
async function isTemplate(client: pg.Client, source: string): Promise<boolean> {
  const { rowCount } = await client.query('select from pg_database where datname = $1 and datistemplate', [source])
  return rowCount === 1
}

async function makeTemplate(client: pg.Client, server: Server, source: string, template: Template): Promise<void> {
  await client.query(`drop database if exists "${source}" with (force)`)
  await client.query(`create database "${source}" template template0`)
  await template.prepare(urlOf(server, source))
  await client.query(`alter database "${source}" is_template true allow_connections false`)
}

async function dropDatabase(server: Server, name: string): Promise<void> {
  try {
    await withClient(server.url, client => client.query(`drop database if exists "${name}" with (force)`))
  } finally {
    await server.leave()
  }
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

function urlOf(server: Server, database: string): string {
  const url = new URL(server.url)
  url.pathname = `/${database}`
  return url.href
}
