import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
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
  embedded: boolean
  leave(): Promise<void>
}

/** The part of a tap test that is needed here. */
interface WithTeardown {
  teardown(fn: () => Promise<void>): void
}

/** Makes and copies of the templates exclude each other by this advisory lock; the number has no meaning. */
const TEMPLATE_LOCK = 7_140_311

/**
 * A fresh database for a test file, on `TEST_DATABASE_URL` if that is set (a server on which its user may create databases), or
 * else on one embedded cluster that all files of a run share. Ask for it before the resources that use it: tap runs
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

/** The server of `TEST_DATABASE_URL`, or of the run (`all.ts`), or else one that this process runs while it is used. */
async function openServer(): Promise<Server> {
  const { TEST_DATABASE_URL: external, TEST_EMBEDDED_URL: shared } = process.env
  if (external) return { url: external, embedded: false, leave: async () => undefined }
  if (shared) return { url: shared, embedded: true, leave: async () => undefined }
  users++
  own ??= startServer()
  const { url, leave } = await own
  return {
    url,
    embedded: true,
    leave: async () => {
      if (--users > 0) return
      own = undefined
      await leave()
    },
  }
}

/**
 * The cluster stays under `build/`, or in the folder that `TEST_DATA_DIR` names, between runs. It does without fsync, so what
 * it holds is believed only until the machine starts anew: see `templateOf`. Processes at the same time take one each.
 */
async function startServer(): Promise<Server> {
  const { PG_BIN_DIR: binDir, TEST_DATA_DIR } = process.env
  const folder = `test-postgres-${binDir ? binDir.replace(/\W+/g, '-') : 'embedded'}`
  for (let number = 0; ; number++) {
    try {
      const server = await startEmbedded({
        dataDir: join(TEST_DATA_DIR || buildFolder(), number === 0 ? folder : `${folder}-${number}`),
        patienceMs: 0,
        settings: {
          fsync: 'off',
          synchronous_commit: 'off',
          full_page_writes: 'off',
          deadlock_timeout: '200ms',
          max_connections: '200',
        },
        ...(binDir ? { binDir } : {}),
      })
      await withClient(server.url, dropAbandoned)
      return { url: server.url, embedded: true, leave: server.stop }
    } catch (error) {
      if (number > 20 || !String(error).includes('another process runs one')) throw error
    }
  }
}

/** Keeps a server until the end of a run; answers the environment by which its files find it. */
export async function sharedServer(t: WithTeardown): Promise<Record<string, string>> {
  const { url, embedded, leave } = await openServer()
  t.teardown(leave)
  return embedded ? { TEST_EMBEDDED_URL: url } : {}
}

function buildFolder(): string {
  return fileURLToPath(new URL('..', import.meta.url))
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8)
  } catch {
    return 'any'
  }
}

/** Databases of test processes that were killed. */
async function dropAbandoned(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ datname: string }>(
    `select datname from pg_database where datname like 'test\\_%'`,
  )
  for (const { datname } of rows) {
    if (!isAlive(Number(datname.split('_')[1]))) await client.query(`drop database if exists "${datname}" with (force)`)
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function createDatabase(client: pg.Client, server: Server, name: string, template?: Template): Promise<void> {
  if (!template) {
    await client.query(`create database "${name}" template template0`)
    return
  }
  const source = templateOf(server, template)
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

function templateOf(server: Server, { name }: Template): string {
  if (!/^[a-z0-9_]{1,40}$/.test(name)) throw new Error(`not a name for a template: ${name}`)
  return server.embedded ? `template_${bootId()}_${name}` : `template_${name}`
}

/** Whether the template is there and whole: it is marked as one only when its preparation is over. */
async function isTemplate(client: pg.Client, source: string): Promise<boolean> {
  const { rowCount } = await client.query('select from pg_database where datname = $1 and datistemplate', [source])
  return rowCount === 1
}

async function makeTemplate(client: pg.Client, server: Server, source: string, template: Template): Promise<void> {
  if (server.embedded) await dropOtherTemplates(client)
  await client.query(`drop database if exists "${source}" with (force)`)
  await client.query(`create database "${source}" template template0`)
  await template.prepare(urlOf(server, source))
  await client.query(`alter database "${source}" is_template true allow_connections false`)
}

/** The embedded cluster is ours alone: templates of earlier versions need not stay. */
async function dropOtherTemplates(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ datname: string }>(
    `select datname from pg_database where datname like 'template\\_%' and datistemplate`,
  )
  for (const { datname } of rows) {
    await client.query(`alter database "${datname}" is_template false`)
    await client.query(`drop database "${datname}" with (force)`)
  }
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
