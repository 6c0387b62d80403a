import { type ChildProcess, spawn } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { accountFor } from '../../src/db/embedded/home.js'
import { eventually } from '../eventually.js'
import { ended, freePort } from './cluster.js'

const PROGRAM = '/usr/sbin/pgbouncer'

/** PgBouncer in transaction mode, from Debian's package. Offers every database of the server under its own name. */
export class Pooler {
  #child: ChildProcess | undefined

  private constructor(
    private readonly folder: string,
    readonly port: number,
  ) {}

  static isInstalled(): boolean {
    return existsSync(PROGRAM)
  }

  /** Starts PgBouncer for the server on the local port `serverPort`, with few connections to each database. */
  static async start(serverPort: number): Promise<Pooler> {
    const account = accountFor()
    const folder = mkdtempSync(join(tmpdir(), 'agents-pooler-'))
    if (account) chownSync(folder, account.uid, account.gid)
    const pooler = new Pooler(folder, await freePort())
    const settings = [
      '[databases]',
      `* = host=127.0.0.1 port=${serverPort} user=postgres`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${pooler.port}`,
      'unix_socket_dir =',
      'auth_type = any',
      'pool_mode = transaction',
      'default_pool_size = 6',
      'max_client_conn = 1000',
    ]
    writeFileSync(join(folder, 'ini'), `${settings.join('\n')}\n`)
    await pooler.restart()
    return pooler
  }

  url(database = 'world'): string {
    return `postgresql://postgres@127.0.0.1:${this.port}/${database}`
  }

  /** Restarts PgBouncer, which closes all connections. */
  async restart(): Promise<void> {
    await this.#end()
    const options = { ...accountFor(), cwd: '/', stdio: 'ignore' } as const
    this.#child = spawn(PROGRAM, ['-q', join(this.folder, 'ini')], options)
    await eventually(() => this.#answers())
  }

  async stop(): Promise<void> {
    await this.#end()
    rmSync(this.folder, { recursive: true, force: true })
  }

  async #end(): Promise<void> {
    if (this.#child === undefined) return
    this.#child.kill('SIGTERM')
    await ended(this.#child)
  }

  async #answers(): Promise<boolean> {
    const client = new pg.Client({ connectionString: this.url('postgres') })
    client.on('error', () => {})
    const isReached = client.connect().then(() => true)
    return await isReached.catch(() => false).finally(() => client.end().catch(() => {}))
  }
}
