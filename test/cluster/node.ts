import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Account, preferredAccount } from '../../src/db/embedded/account.js'
import { signal } from '../faults/cluster.js'
import { addressOf, type NodeNumber, PATRONI_PORT, POSTGRES_PORT, type Templates } from './layout.js'
import { Daemon, treeOf } from './processes.js'
import { ETCD, PATRONI } from './programs.js'

/** Room for one node's tables and log, in memory. */
const DISK_MIB = 640

/** One machine of the cluster: an etcd member, Patroni, and the PostgreSQL that Patroni runs, on a disk of its own. */
export class ClusterNode {
  readonly name: string
  readonly address: string
  readonly #folder: string
  readonly #account: Account = preferredAccount()
  #etcd: Daemon | undefined
  #patroni: Daemon | undefined

  constructor(
    readonly number: NodeNumber,
    folder: string,
    templates: Templates,
  ) {
    this.name = `node${number}`
    this.address = addressOf(number)
    this.#folder = join(folder, this.name)
    this.#makeFolders()
    const own = {
      NODE: this.name,
      ADDRESS: this.address,
      POSTGRES_DATA_DIR: this.#data,
      SOCKET_DIR: this.#folder,
      ETCD_DATA_DIR: join(this.#folder, 'etcd'),
      PGPASS_FILE: join(this.#folder, 'pgpass'),
    }
    for (const name of ['etcd.yml', 'patroni.yml']) {
      templates.write(name, this.#file(name), own)
      chownSync(this.#file(name), this.#account.uid, this.#account.gid)
    }
  }

  /** Makes the folders; the data have a file system of their own, so that it can get full. */
  #makeFolders(): void {
    mkdirSync(this.#disk, { recursive: true })
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'tmpfs', this.#disk])
    mkdirSync(join(this.#folder, 'etcd'))
    mkdirSync(this.#data)
    for (const path of [this.#folder, join(this.#folder, 'etcd'), this.#data]) {
      chownSync(path, this.#account.uid, this.#account.gid)
      chmodSync(path, 0o700)
    }
  }

  get #disk(): string {
    return join(this.#folder, 'disk')
  }

  get #data(): string {
    return join(this.#disk, 'data')
  }

  #file(name: string): string {
    return join(this.#folder, name)
  }

  startEtcd(): void {
    this.#etcd = Daemon.start(ETCD, ['--config-file', this.#file('etcd.yml')], this.#file('etcd.log'), this.#account)
  }

  startPatroni(): void {
    if (this.#patroni?.isRunning) return
    this.#patroni = Daemon.start(PATRONI, [this.#file('patroni.yml')], this.#file('patroni.log'), this.#account)
  }

  get isPatroniRunning(): boolean {
    return this.#patroni?.isRunning ?? false
  }

  /** What Patroni's and PostgreSQL's own logs say since the last call. */
  patroniLog(): string {
    return existsSync(this.#file('patroni.log')) ? readFileSync(this.#file('patroni.log'), 'utf8') : ''
  }

  /** The ids of PostgreSQL's processes, the postmaster's first; none when it does not run. */
  postgresProcesses(): number[] {
    try {
      const postmaster = Number(readFileSync(join(this.#data, 'postmaster.pid'), 'utf8').split('\n')[0])
      // The file outlives a killed server, and its id may be another process's by now.
      const command = readFileSync(`/proc/${postmaster}/cmdline`, 'utf8')
      return command.includes(this.#data) ? treeOf(postmaster) : []
    } catch {
      return []
    }
  }

  killPostgres(): void {
    for (const pid of this.postgresProcesses()) signal(pid, 'SIGKILL')
  }

  async killPatroni(): Promise<void> {
    await this.#patroni?.end('SIGKILL')
  }

  /** Kills Patroni and PostgreSQL as a power cut does; the etcd member stays. */
  async kill(): Promise<void> {
    const processes = this.postgresProcesses()
    if (this.#patroni !== undefined) signal(this.#patroni.pid, 'SIGKILL')
    for (const pid of processes) signal(pid, 'SIGKILL')
    await this.#patroni?.end('SIGKILL')
  }

  freezePostgres(): void {
    for (const pid of this.postgresProcesses()) signal(pid, 'SIGSTOP')
  }

  thawPostgres(): void {
    for (const pid of this.postgresProcesses().reverse()) signal(pid, 'SIGCONT')
  }

  freeze(): void {
    if (this.#patroni !== undefined) for (const pid of treeOf(this.#patroni.pid)) signal(pid, 'SIGSTOP')
    this.freezePostgres()
  }

  thaw(): void {
    this.thawPostgres()
    if (this.#patroni !== undefined) for (const pid of treeOf(this.#patroni.pid)) signal(pid, 'SIGCONT')
  }

  freezeEtcd(): void {
    if (this.#etcd !== undefined) signal(this.#etcd.pid, 'SIGSTOP')
  }

  thawEtcd(): void {
    if (this.#etcd !== undefined) signal(this.#etcd.pid, 'SIGCONT')
  }

  /** Fills the disk; answers what makes room again. */
  fillDisk(): () => void {
    const ballast = join(this.#disk, 'ballast')
    const block = Buffer.alloc(1024 * 1024)
    try {
      for (let mib = 0; mib <= DISK_MIB; mib++) writeFileSync(ballast, block, { flag: 'a' })
    } catch {
      // Full.
    }
    return () => rmSync(ballast, { force: true })
  }

  /** Throws the data away and starts Patroni anew: it copies them from the leader. */
  async renew(): Promise<void> {
    await this.kill()
    rmSync(this.#data, { recursive: true, force: true })
    mkdirSync(this.#data, { mode: 0o700 })
    chownSync(this.#data, this.#account.uid, this.#account.gid)
    this.startPatroni()
  }

  /** Asks Patroni; the status 0 when it does not answer in time. */
  async ask(path: string, timeoutMs = 1_000): Promise<{ status: number; body: unknown }> {
    try {
      const url = `http://${this.address}:${PATRONI_PORT}${path}`
      const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) })
      return { status: response.status, body: await response.json().catch(() => undefined) }
    } catch {
      return { status: 0, body: undefined }
    }
  }

  url(user: string, password: string, database: string): string {
    return `postgresql://${user}:${password}@${this.address}:${POSTGRES_PORT}/${database}`
  }

  /** Ends everything and gives the disk back. */
  async remove(): Promise<void> {
    this.thaw()
    await this.kill()
    await this.#etcd?.end('SIGKILL')
    // A killed server's processes need a moment to let go of their files.
    for (let attempt = 0; ; attempt++) {
      try {
        execFileSync('umount', [this.#disk], { stdio: 'ignore' })
        return
      } catch (error) {
        if (attempt >= 20) throw error
        execFileSync('sleep', ['0.2'])
      }
    }
  }
}
