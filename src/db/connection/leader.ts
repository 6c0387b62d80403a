import pg from 'pg'
import { type DatabaseServer, isSameCluster } from './database-server.js'
import type { DatabaseHost } from './database-url.js'
import type { HostList } from './hosts.js'
import { readServer } from './read-server.js'

interface LeaderOptions {
  /** Whether connections should go to a server that accepts writes, and to no other. */
  isSought: boolean
  /** Bounds the look at one host. */
  limitMs: number
  /** What a session has to be set to. */
  settings: Readonly<Record<string, string>>
  /** Called when another server than before is the one to use. */
  onFound(server: DatabaseServer): void
}

/** After trouble, all hosts are looked at; not more often than this. */
const TROUBLE_PAUSE_MS = 1_000
/** A deposed leader may go on answering without any trouble: while there is work, the hosts are looked at this often. */
const LOOK_INTERVAL_MS = 2_000
/** For so long after the last sign of a newer server, an older one is not used. Longer, and a restored cluster never would be. */
const DEPOSED_MS = 60_000

/**
 * Which of the servers is the leader. That one accepts writes does not prove it: a leader that lost its place to a standby
 * while it was cut off, or whose supervisor died, goes on accepting them, and what it acknowledges is lost. Each promotion
 * begins a new timeline, so among those that accept writes the one with the highest is the leader.
 *
 * It looks by short connections of its own, beside the pool: the pool's may all be waiting for the deposed leader.
 */
export class Leader {
  readonly #hosts: HostList<DatabaseHost>
  readonly #config: pg.ClientConfig
  readonly #options: LeaderOptions
  #server: DatabaseServer | undefined
  #seenAt = Number.NEGATIVE_INFINITY
  #lookedAt = performance.now()
  #isLooking = false

  constructor(hosts: HostList<DatabaseHost>, config: pg.ClientConfig, options: LeaderOptions) {
    this.#hosts = hosts
    this.#config = config
    this.#options = options
  }

  /** The leader as last seen; undefined before any server was. */
  get server(): DatabaseServer | undefined {
    return this.#server
  }

  /** Whether a new connection to this server may be used: not when a newer leader of the same cluster was seen lately. */
  admits(server: DatabaseServer): boolean {
    const found = this.#server
    const isOlder = found !== undefined && isSameCluster(server, found) && server.timeline < found.timeline
    if (server.acceptsWrites && isOlder && performance.now() < this.#seenAt + DEPOSED_MS) return false
    if (server.acceptsWrites || !this.#options.isSought) this.#note(server)
    return true
  }

  /** Looks at all hosts, because something went wrong. */
  look(): void {
    if (performance.now() > this.#lookedAt + TROUBLE_PAUSE_MS) void this.#look()
  }

  /** Looks at all hosts now and then, where there are several. */
  lookNowAndThen(): void {
    const isDue = performance.now() > this.#lookedAt + LOOK_INTERVAL_MS
    if (isDue && this.#options.isSought && this.#hosts.size > 1) void this.#look()
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return
    this.#isLooking = true
    const servers = await Promise.all(this.#hosts.hosts.map(host => this.#read(host)))
    this.#isLooking = false
    this.#lookedAt = performance.now()
    const place = this.#best(servers)
    const server = place === undefined ? undefined : servers[place]
    if (place === undefined || server === undefined) return
    if (this.#options.isSought) this.#hosts.choose(place)
    this.#note(server)
  }

  /** The place of the leader. Of servers that are equally new the one in use stays. */
  #best(servers: readonly (DatabaseServer | undefined)[]): number | undefined {
    const writable = servers.flatMap((server, place) =>
      server?.acceptsWrites ? [{ timeline: server.timeline, place }] : [],
    )
    const newest = Math.max(...writable.map(({ timeline }) => timeline))
    const places = writable.filter(({ timeline }) => timeline === newest).map(({ place }) => place)
    return places.includes(this.#hosts.current) ? this.#hosts.current : places[0]
  }

  #note(server: DatabaseServer): void {
    const before = this.#server
    this.#server = server
    this.#seenAt = performance.now()
    if (before === undefined || before.startedAt !== server.startedAt || before.system !== server.system)
      this.#options.onFound(server)
  }

  /** What the server at a host is; undefined when that cannot be known. */
  async #read({ host, port }: DatabaseHost): Promise<DatabaseServer | undefined> {
    const { limitMs, settings } = this.#options
    const client = new pg.Client({ ...this.#config, host, port, connectionTimeoutMillis: limitMs })
    client.on('error', () => {})
    try {
      await client.connect()
      return await readServer(client, limitMs, settings)
    } catch {
      return undefined
    } finally {
      client.connection.stream.destroy()
    }
  }
}
