import { chmodSync, chownSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { preferredAccount } from '../../src/db/embedded/account.js'
import { checkPort, NODES, type NodeNumber, PATRONI_PORT, Templates } from './layout.js'
import { claim, FOLDER_PREFIX, removeFolder } from './leftovers.js'
import { ClusterNode } from './node.js'
import { Daemon } from './processes.js'
import { HAPROXY, PGBOUNCER } from './programs.js'

const FIRST_LEADER_LIMIT_MS = 90_000
const HEALTHY_LIMIT_MS = 90_000
const ENTRY_LIMIT_MS = 30_000
const ENTRY_CHECKS = 10
const POLL_MS = 250

interface Member {
  name: string
  role: string
  state: string
  lag?: number | string
}

/** Three nodes with their ways in: the files of `ops/cluster`, filled in for one machine. */
export class PatroniCluster {
  readonly folder: string
  readonly templates: Templates
  readonly nodes: readonly ClusterNode[]
  readonly #daemons: Daemon[] = []
  #entry: Daemon | undefined

  private constructor(folder: string) {
    this.folder = folder
    this.templates = new Templates(folder)
    this.nodes = NODES.map(number => new ClusterNode(number, folder, this.templates))
  }

  /** Starts the nodes, makes the database `agents` and its user, and starts HAProxy and PgBouncer in front. */
  static async start(): Promise<PatroniCluster> {
    const folder = mkdtempSync(join(tmpdir(), FOLDER_PREFIX))
    claim(folder)
    // The last thing this process does, whatever ends it: Patroni's PostgreSQL is nobody's child.
    process.once('exit', () => removeFolder(folder))
    // Patroni's account has to pass; it cannot list what is in there.
    chmodSync(folder, 0o711)
    const cluster = new PatroniCluster(folder)
    try {
      for (const node of cluster.nodes) node.startEtcd()
      cluster.node(1).startPatroni()
      await cluster.leader(FIRST_LEADER_LIMIT_MS)
      cluster.node(2).startPatroni()
      cluster.node(3).startPatroni()
      await cluster.#makeDatabase()
      await cluster.healthy()
      cluster.#startEntries()
      for (const way of ['haproxy', 'pgbouncer'] as const) await leadsToLeader(cluster.templates.url(way))
      return cluster
    } catch (error) {
      await cluster.remove()
      throw error
    }
  }

  node(number: NodeNumber): ClusterNode {
    // Node 1 comes first.
    return this.nodes[number - 1] as ClusterNode
  }

  /** The node that Patroni says is the leader; waits for one. */
  async leader(limitMs = HEALTHY_LIMIT_MS): Promise<ClusterNode> {
    const deadline = Date.now() + limitMs
    while (Date.now() < deadline) {
      for (const node of this.nodes) if ((await node.ask('/primary')).status === 200) return node
      await sleep(POLL_MS)
    }
    throw new Error(`no leader within ${limitMs / 1_000} s\n${this.logs()}`)
  }

  /** The standby that has every confirmed commit. */
  async synchronousStandby(): Promise<ClusterNode> {
    const members = await this.members()
    const name = members.find(({ role }) => role === 'sync_standby')?.name
    const node = this.nodes.find(candidate => candidate.name === name)
    if (node === undefined) throw new Error(`no synchronous standby: ${JSON.stringify(members)}`)
    return node
  }

  /** What `patronictl list` shows. */
  async members(): Promise<Member[]> {
    for (const node of this.nodes) {
      const { status, body } = await node.ask('/cluster')
      if (status === 200) return (body as { members: Member[] }).members // as Patroni documents it
    }
    return []
  }

  /** Waits for a leader, a synchronous standby and a third node that follows; a node that does not is made anew. */
  async healthy(): Promise<string[]> {
    if (await this.#isHealthyWithin(HEALTHY_LIMIT_MS)) return []
    const members = await this.members()
    const broken = this.nodes.filter(({ name }) => !isWell(members.find(member => member.name === name)))
    for (const node of broken) await node.renew()
    if (await this.#isHealthyWithin(HEALTHY_LIMIT_MS)) return broken.map(({ name }) => `${name} had to be made anew`)
    throw new Error(`the cluster does not recover: ${JSON.stringify(await this.members())}\n${this.logs()}`)
  }

  async #isHealthyWithin(limitMs: number): Promise<boolean> {
    const deadline = Date.now() + limitMs
    while (Date.now() < deadline) {
      const members = await this.members()
      const roles = members.map(({ role }) => role).sort()
      if (members.every(isWell) && roles.join(' ') === 'leader replica sync_standby') return true
      await sleep(POLL_MS)
    }
    return false
  }

  /** Hands the lead over as `patronictl switchover` does. */
  async switchover(): Promise<void> {
    const leader = await this.leader()
    const authorization = `Basic ${Buffer.from(`patroni:${this.templates.passwords.patroniApi}`).toString('base64')}`
    const response = await fetch(`http://${leader.address}:${PATRONI_PORT}/switchover`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json' },
      body: JSON.stringify({ leader: leader.name }),
      signal: AbortSignal.timeout(60_000),
    })
    if (!response.ok) throw new Error(`switchover: ${response.status} ${await response.text()}`)
  }

  /** Runs a statement at the leader, as the superuser. */
  async query<R extends pg.QueryResultRow>(text: string, values: unknown[] = [], database = 'agents'): Promise<R[]> {
    const leader = await this.leader()
    const client = new pg.Client({
      connectionString: leader.url('postgres', this.templates.passwords.superuser, database),
      connectionTimeoutMillis: 5_000,
    })
    client.on('error', () => {})
    try {
      await client.connect()
      const { rows } = await client.query<R>(text, values)
      return rows
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Starts HAProxy in front of two instances of the service; it is ended with the cluster. */
  startServiceEntry(name: string, port: number, instances: readonly [number, number]): void {
    const target = join(this.folder, `haproxy-${name}.cfg`)
    this.templates.write('haproxy-service.cfg', target, {
      SERVICE_ENTRY_PORT: String(port),
      SERVICE_1: `127.0.0.1:${instances[0]}`,
      SERVICE_2: `127.0.0.1:${instances[1]}`,
      SERVICE_1_CHECK_PORT: String(checkPort(instances[0])),
      SERVICE_2_CHECK_PORT: String(checkPort(instances[1])),
    })
    this.#daemons.push(startHaproxy(target))
  }

  /** Starts HAProxy in front of PostgreSQL. */
  startEntry(): void {
    this.#entry = startHaproxy(this.#entryConfig)
  }

  /** Kills HAProxy in front of PostgreSQL: what it carries is cut at whatever byte it was. */
  async killEntry(): Promise<void> {
    await this.#entry?.end('SIGKILL')
  }

  get #entryConfig(): string {
    return join(this.folder, 'haproxy-postgres.cfg')
  }

  /** The last lines of every node's Patroni. */
  logs(): string {
    return this.nodes.map(node => `${node.name}:\n${node.patroniLog().slice(-1_500)}`).join('\n')
  }

  async remove(): Promise<void> {
    await this.killEntry()
    for (const daemon of this.#daemons) await daemon.end()
    for (const node of this.nodes) await node.remove()
    removeFolder(this.folder)
  }

  async #makeDatabase(): Promise<void> {
    const file = join(this.folder, 'database.sql')
    this.templates.write('database.sql', file)
    const statements = readFileSync(file, 'utf8')
      .split(';')
      .map(text => text.trim())
    // The first commit waits for the standby, which is still being copied.
    for (const text of statements) if (text !== '') await this.query(text, [], 'postgres')
    await this.query('create database control', [], 'postgres')
    await this.query('create table beat (ballast text not null)', [], 'control')
  }

  #startEntries(): void {
    this.templates.write('haproxy-postgres.cfg', this.#entryConfig)
    this.startEntry()
    const account = preferredAccount()
    const pgbouncer = join(this.folder, 'pgbouncer.ini')
    this.templates.write('pgbouncer.ini', pgbouncer)
    this.templates.write('pgbouncer-users.txt', join(this.folder, 'pgbouncer-users.txt'))
    for (const name of ['pgbouncer-users.txt', 'pgbouncer.ini']) {
      chownSync(join(this.folder, name), account.uid, account.gid)
      chmodSync(join(this.folder, name), 0o600)
    }
    // The folder is not PgBouncer's own: its log has to be there.
    writeFileSync(this.poolerLog, '')
    chownSync(this.poolerLog, account.uid, account.gid)
    this.#daemons.push(Daemon.start(PGBOUNCER, ['-q', pgbouncer], this.poolerLog, account))
  }

  get poolerLog(): string {
    return join(this.folder, 'pgbouncer.log')
  }
}

function startHaproxy(config: string): Daemon {
  return Daemon.start(HAPROXY, ['-db', '-f', config], `${config}.log`)
}

/**
 * Waits until the way in leads to the leader, several times in a row: a HAProxy that has just started takes every server
 * for healthy until its checks have failed.
 */
async function leadsToLeader(url: string): Promise<void> {
  const deadline = Date.now() + ENTRY_LIMIT_MS
  for (let inRow = 0; inRow < ENTRY_CHECKS; inRow = (await isWritable(url)) ? inRow + 1 : 0) {
    if (Date.now() > deadline) throw new Error('HAProxy or PgBouncer does not start')
    await sleep(POLL_MS)
  }
}

async function isWritable(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ recovering: boolean }>('select pg_is_in_recovery() as recovering')
    return rows[0]?.recovering === false
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

function isWell(member: Member | undefined): boolean {
  return member !== undefined && (member.state === 'running' || member.state === 'streaming') && !isBehind(member)
}

function isBehind({ role, lag }: Member): boolean {
  return role !== 'leader' && lag !== 0
}
