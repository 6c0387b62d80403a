import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { chownSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import {
  type Account,
  accountFor,
  type Binaries,
  findBinaries,
  runAs,
  serverEnvironment,
} from '../../src/db/embedded/home.js'
import { eventually } from '../eventually.js'
import type { WithTeardown } from '../test-service.js'

const HOSTS = 'local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n'

/** A PostgreSQL server for a test to break, on its own port, with fsync as in production. `remove` stops it and deletes its folder. */
export class Cluster {
  #server: ChildProcess | undefined

  private constructor(
    readonly folder: string,
    readonly port: number,
    private readonly account: Account,
    private readonly binaries: Binaries,
    private readonly settings: Record<string, string>,
  ) {}

  /** Creates and starts a server with the empty database `world`. With `t`, removes it after the test. */
  static async create(t?: WithTeardown): Promise<Cluster> {
    const cluster = await Cluster.#empty({})
    t?.teardown(() => cluster.remove())
    const { major, dir } = cluster.binaries
    const locale = major >= 17 ? ['--locale-provider=builtin', '--locale=C.UTF-8'] : ['--locale=C.UTF-8']
    const initdb = ['-D', cluster.#data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync', ...locale]
    const made = runAs(cluster.account, join(dir, 'initdb'), initdb)
    if (!made.ok) throw new Error(`initdb: ${made.fault}`)
    writeFileSync(join(cluster.#data, 'pg_hba.conf'), HOSTS)
    await cluster.start()
    await cluster.query('create database world', [], 'postgres')
    return cluster
  }

  /** Creates a standby from a copy of a stopped primary, without starting the standby. `name` is the standby's `application_name`. */
  static async copyOf(primary: Cluster, name: string): Promise<Cluster> {
    const primary_conninfo = `host=127.0.0.1 port=${primary.port} user=postgres application_name=${name}`
    const standby = await Cluster.#empty({ cluster_name: name, primary_conninfo })
    const { account } = standby
    cpSync(primary.#data, standby.#data, { recursive: true })
    writeFileSync(join(standby.#data, 'standby.signal'), '')
    if (account) execFileSync('chown', ['-R', `${account.uid}:${account.gid}`, standby.#data])
    return standby
  }

  static async #empty(settings: Record<string, string>): Promise<Cluster> {
    const account = accountFor()
    const binaries = findBinaries(account, process.env.PG_BIN_DIR)
    const folder = mkdtempSync(join(tmpdir(), 'agents-faults-'))
    const cluster = new Cluster(folder, await freePort(), account, binaries, settings)
    for (const path of [folder, cluster.#data]) {
      mkdirSync(path, { recursive: true, mode: 0o700 })
      if (account) chownSync(path, account.uid, account.gid)
    }
    return cluster
  }

  url(database = 'world', user = 'postgres'): string {
    return `postgresql://${user}@127.0.0.1:${this.port}/${database}`
  }

  /** Changes a setting for the next start. */
  configure(name: string, value: string): void {
    this.settings[name] = value
  }

  get log(): string {
    return readFileSync(join(this.folder, 'log'), 'utf8')
  }

  get #data(): string {
    return join(this.folder, 'data')
  }

  /** Starts the server and waits until it accepts connections. */
  async start(): Promise<void> {
    this.launch()
    await this.ready()
  }

  launch(): void {
    const settings: Record<string, string> = {
      listen_addresses: '127.0.0.1',
      port: String(this.port),
      unix_socket_directories: this.folder,
      deadlock_timeout: '100ms',
      max_connections: '100',
      ...this.settings,
    }
    const given = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const program = [join(this.binaries.dir, 'postgres'), '-D', this.#data, ...given]
    const env = { ...serverEnvironment(), LOG: join(this.folder, 'log') }
    const options = { ...this.account, cwd: this.folder, env, stdio: 'ignore' } as const
    this.#server = spawn('/bin/sh', ['-c', 'exec "$0" "$@" >>"$LOG" 2>&1', ...program], options)
  }

  /** Waits until the server accepts connections. Throws if the server ends first. */
  async ready(): Promise<void> {
    await eventually(async () => {
      if (typeof this.#server?.exitCode === 'number') throw new Error(this.log.slice(-2_000))
      const answer = await this.query('select 1', [], 'postgres').catch(() => [])
      return answer.length > 0
    })
  }

  /** Stops the server. `fast` ends its sessions and writes a checkpoint. `immediate` is a crash, so the next start recovers. */
  async stop(how: 'fast' | 'immediate' = 'fast'): Promise<void> {
    await this.#end(how === 'fast' ? 'SIGINT' : 'SIGQUIT')
  }

  /** Kills all processes of the server at once, like a power failure. */
  async kill(): Promise<void> {
    for (const pid of this.#processes()) signal(pid, 'SIGKILL')
    await this.#end('SIGKILL')
  }

  /** Suspends all processes of the server. Sockets stay open but silent. */
  async freeze(): Promise<void> {
    // The postmaster is suspended first, so that it cannot start further processes.
    const [postmaster = 0] = this.#processes()
    signal(postmaster, 'SIGSTOP')
    await eventually(() => statusOf(postmaster)[0] === 'T')
    for (const pid of this.#processes()) signal(pid, 'SIGSTOP')
  }

  thaw(): void {
    for (const pid of this.#processes().reverse()) signal(pid, 'SIGCONT')
  }

  /** Returns the process ids of the server, the postmaster's first. */
  #processes(): number[] {
    const postmaster = this.#server?.pid
    return postmaster === undefined ? [] : [postmaster, ...processesWhere(pid => isChildOf(postmaster, pid))]
  }

  /** Runs a statement on a new connection. */
  async query<R extends pg.QueryResultRow>(text: string, values: unknown[] = [], database = 'world'): Promise<R[]> {
    const client = await this.connect(database)
    try {
      const { rows } = await client.query<R>(text, values)
      return rows
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Waits until at least `count` statements wait for a lock. */
  async lockWaits(count = 1): Promise<void> {
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock'`
    await eventually(async () => (await this.query(waiting)).length >= count)
  }

  async connect(database = 'world'): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url(database), connectionTimeoutMillis: 30_000 })
    client.on('error', () => {})
    await client.connect()
    return client
  }

  async remove(): Promise<void> {
    this.thaw()
    await this.#end('SIGQUIT')
    rmSync(this.folder, { recursive: true, force: true })
  }

  async #end(how: NodeJS.Signals): Promise<void> {
    const server = this.#server
    this.#server = undefined
    if (server?.pid === undefined || server.exitCode !== null || server.signalCode !== null) return
    signal(server.pid, how)
    await ended(server)
  }
}

/** Returns a port that is not in use and was not returned before. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS_FROM + (process.pid % PORT_ROWS) * PORTS_PER_ROW + (portsGiven++ % PORTS_PER_ROW)
    if (await isFree(port)) return port
  }
}

/** The ports are below the system's range for outgoing connections. Each test process has its own block of ports. */
const PORTS_FROM = 10_000
const PORT_ROWS = 1_000
const PORTS_PER_ROW = 22
let portsGiven = 0

function isFree(port: number): Promise<boolean> {
  const server = createServer()
  return new Promise(resolve => {
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

export function signal(pid: number, name: NodeJS.Signals): void {
  if (pid <= 0) return
  try {
    process.kill(pid, name)
  } catch {
    // The process has already ended.
  }
}

export async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  await new Promise(resolve => child.once('exit', resolve))
}

function isChildOf(parent: number, pid: number): boolean {
  return Number(statusOf(pid)[1]) === parent
}

/** Returns the fields of /proc/pid/stat after the process name: the state, the parent, and more. */
function statusOf(pid: number): string[] {
  // The name can contain any characters, so the fields begin after the last parenthesis.
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}

export function processesWhere(matches: (pid: number) => boolean): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return pids.filter(pid => {
    try {
      return matches(pid)
    } catch {
      return false // the process has ended
    }
  })
}
