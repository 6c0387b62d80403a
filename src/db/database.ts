import { setTimeout as sleep } from 'node:timers/promises'
import type { CompiledQuery, DatabaseConnection, Driver, Kysely, QueryResult } from 'kysely'
import pg from 'pg'
import { ConnectionLost, DatabaseFault } from './connection/database-error.js'
import { type DatabaseOptions, startupOptions } from './connection/options.js'
import { readServer } from './connection/read-server.js'
import { withRetries } from './connection/retry.js'
import { Session } from './connection/session.js'
import { kyselyOn } from './statements/queries.js'
import type { Executor } from './statements/statement.js'
import type { Tables } from './tables.js'

/** The connection pools of a database. If the server is unreachable, the first statement fails, not the constructor. */
export class Database {
  readonly db: Kysely<Tables>
  /** A separate connection, so that readiness probes do not wait for the pool. */
  readonly probe: Kysely<Tables>
  /** For the connection counts only. Run statements with `db`. */
  readonly pool: pg.Pool
  /** The name and version that the server reported on the newest connection. */
  server: string | undefined
  readonly #probePool: pg.Pool
  readonly #options: DatabaseOptions
  readonly #sessions = new WeakMap<pg.ClientBase, Session>()
  /** The shared connection of each key, and the number of reads that run on it. */
  readonly #shared = new Map<string, { session: Promise<Session>; reads: number }>()
  #closed: Promise<unknown> | undefined

  constructor(options: DatabaseOptions) {
    this.#options = options
    this.pool = this.#makePool(options.poolSize)
    this.#probePool = this.#makePool(1)
    this.db = this.#kyselyOn(this.pool)
    this.probe = this.#kyselyOn(this.#probePool)
  }

  /**
   * Returns an executor for reads. Up to 16 reads with the same key share a connection, so a slow read delays only reads with the same key. Behind a
   * pooler in transaction mode, connections are not shared, because each read needs its own transaction.
   */
  sharedReads(key: string): Executor {
    if (!this.#options.preparedStatements) return this.db
    return { executeQuery: query => this.#readShared(key, query) }
  }

  /** Checks whether an unconfirmed commit was stored. Returns true if `trace` finds a row within 2.5 s. Never throws. */
  async hasStored(trace: CompiledQuery): Promise<boolean> {
    const look = withRetries(() => this.db.executeQuery(trace)).catch(() => undefined)
    const found = await Promise.race([look, sleep(SETTLE_WITHIN_MS, undefined, { ref: false })])
    return found?.rows[0] !== undefined
  }

  get description(): string {
    return this.#options.address.description
  }

  /** Closes the pools. Refuses new work and waits up to `graceMs` for running statements. Further calls have no effect. */
  async close(graceMs = 5_000): Promise<void> {
    const ended = () => Promise.all([this.pool.end(), this.#probePool.end()])
    this.#closed ??= Promise.race([ended(), sleep(graceMs, undefined, { ref: false })])
    await this.#closed
  }

  #makePool(connectionsMax: number): pg.Pool {
    const { address, onError } = this.#options
    const pool = new pg.Pool({
      application_name: 'agent-tool-management',
      ...address.config,
      // Later options take precedence, so the session settings override the options of the URL.
      options:
        `${address.config.options ?? ''} ${this.#options.preparedStatements ? startupOptions(this.#options) : ''}`.trim(),
      types: VALUES,
      pipeline: true,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_IDLE_MS,
      connectionTimeoutMillis: address.connectTimeoutMs,
      idleTimeoutMillis: CONNECTION_AGE_MAX_MS,
      maxLifetimeSeconds: CONNECTION_AGE_MAX_MS / 1_000,
      max: connectionsMax,
      Client: ClosingClient,
      // The pool waits for the returned promise before it provides the connection, although the declared type is void.
      onConnect: client => this.#begin(client as pg.PoolClient), // the pool adds `release` later
    })
    pool.on('error', error => {
      if (!pool.ending) onError?.(error)
    })
    return pool
  }

  async #begin(client: pg.PoolClient): Promise<void> {
    this.#sessions.set(client, new Session(client, this.#options))
    this.server = await readServer(client, this.#options)
  }

  async #readShared<R>(key: string, query: CompiledQuery<R>): Promise<QueryResult<R>> {
    const current = this.#shared.get(key)
    const isJoined = current !== undefined && current.reads < SHARED_READS_MAX && this.pool.waitingCount === 0
    const shared = isJoined ? current : { session: this.#acquire(this.pool), reads: 0 }
    this.#shared.set(key, shared)
    shared.reads += 1
    let isLost = false
    try {
      return await (await shared.session).executeQuery<R>(query)
    } catch (error) {
      isLost = true
      throw error
    } finally {
      shared.reads -= 1
      if ((isLost || shared.reads === 0) && this.#shared.get(key) === shared) this.#shared.delete(key)
      if (shared.reads === 0)
        await shared.session.then(
          session => session.release(),
          () => {},
        )
    }
  }

  async #acquire(pool: pg.Pool): Promise<Session> {
    try {
      return this.#sessions.get(await pool.connect()) as Session // `#begin` has made a session for each client
    } catch (error) {
      throw this.#connectFault(error)
    }
  }

  #connectFault(error: unknown): unknown {
    if (this.pool.ending)
      return new DatabaseFault('closed', 'the connections to the database are closed', { cause: error })
    if (error instanceof pg.DatabaseError || error instanceof DatabaseFault) return error
    // The pool's timeout error has no class of its own, so the message is compared.
    const isWait = error instanceof Error && error.message === 'timeout exceeded when trying to connect'
    if (!isWait) return new ConnectionLost({ cause: error })
    return new DatabaseFault('waited', 'no connection became free in time', { cause: error })
  }

  #kyselyOn(pool: pg.Pool): Kysely<Tables> {
    const own = (connection: DatabaseConnection) => connection as Session // `acquireConnection` returns sessions only
    const driver: Driver = {
      init: async () => {},
      acquireConnection: () => this.#acquire(pool),
      beginTransaction: (connection, settings) => own(connection).begin(settings),
      commitTransaction: connection => own(connection).commit(),
      rollbackTransaction: connection => own(connection).rollback(),
      releaseConnection: async connection => own(connection).release(),
      destroy: async () => {}, // `close` closes the pool
    }
    return kyselyOn(driver)
  }
}

const SHARED_READS_MAX = 16

/** Closes the socket of a failed connection. pg leaves it open, for example if the password is missing. */
class ClosingClient extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config)
    this.connection.once('error', () => this.connection.stream.destroy())
  }
}

const KEEP_ALIVE_IDLE_MS = 10_000

const SETTLE_WITHIN_MS = 2_500

const CONNECTION_AGE_MAX_MS = 300_000

/** Converts `int8` to a number, and `timestamptz` to text such as `2024-01-02T03:04:05.123456Z`. Leaves `infinity` and years BC as they are. */
const VALUES = new pg.TypeOverrides()
VALUES.setTypeParser(pg.types.builtins.INT8, Number)
VALUES.setTypeParser(pg.types.builtins.TIMESTAMPTZ, text =>
  text.replace(/^(\S+) ([\d:]+)(?:\.(\d+))?\+00$/, (_, date, time, fraction = '') => {
    return `${date}T${time}.${fraction.padEnd(6, '0')}Z`
  }),
)
