import { randomBytes } from 'node:crypto'
import { type Driver, type Kysely, sql, type TransactionSettings } from 'kysely'
import pg from 'pg'
import type { Outcome } from '../errors.js'
import {
  type CommitUnknown,
  ConnectionLost,
  DatabaseClosed,
  DatabaseFault,
  PoolExhausted,
  ServerReadOnly,
} from './connection/database-error.js'
import type { DatabaseServer } from './connection/database-server.js'
import { describeDatabase, sslOptions } from './connection/database-url.js'
import { type DatabaseOptions, optionsOf, startupSettings, transactionPrelude } from './connection/options.js'
import { readServer } from './connection/read-server.js'
import { type Query, Session, type SessionSettings } from './connection/session.js'
import { settle } from './connection/settle.js'
import { VALUES } from './connection/type-parsers.js'
import { Batcher } from './statements/batcher.js'
import { kyselyOn } from './statements/queries.js'
import {
  type BatchRunner,
  byPosition,
  type Positioned,
  type RowStatement,
  weightOf,
} from './statements/row-statement.js'
import type { Tables } from './tables.js'

/**
 * The database: pools of connections, and what runs on them. Connects lazily: the first statement reports a server that cannot be
 * reached. Making it reads the certificate files of the URL, and throws when they cannot be read.
 */
export class Database implements BatchRunner {
  readonly db: Kysely<Tables>
  /** One connection of its own, for readiness: it tells a pool that is busy from a server that does not answer. */
  readonly probe: Kysely<Tables>
  /** For its counts of connections; statements go through `db` and `batched`. */
  readonly pool: pg.Pool
  readonly #probePool: pg.Pool
  /** How many statements went to the database since it was opened. */
  readonly counters = { statements: 0 }
  readonly #options: DatabaseOptions
  readonly #settings: SessionSettings
  readonly #sessions = new Map<pg.PoolClient, Session>()
  /** One for each statement that ever ran in batches: the program has a fixed set of them. */
  readonly #batchers = new Map<unknown, unknown>()
  readonly #config: pg.PoolConfig
  #server: DatabaseServer | undefined
  /** Whether the last change that was sent was stored; true before the first. */
  storesChanges = true
  #renewedAt = Number.NEGATIVE_INFINITY
  #closed: Promise<void> | undefined

  constructor(options: DatabaseOptions) {
    this.#options = options
    this.#settings = this.#sessionSettings()
    this.#config = poolConfig(options)
    this.pool = this.#makePool(options.poolSize)
    this.#probePool = this.#makePool(1)
    this.db = this.#kyselyOn(this.pool)
    this.probe = this.#kyselyOn(this.#probePool)
  }

  /**
   * Runs a statement for one row in a batch with those of other requests; answers undefined where it answered nothing for the row.
   * `onSend` is called when there is a connection: the last moment to put values onto the row. An error of the server about one row
   * is only that row's, a lost connection everybody's: `ConnectionLost` when nothing was applied for certain, `CommitUnknown` when
   * the loss left that open. A statement that may wait long for a lock does not belong here.
   */
  batched<P extends object, R>(
    statement: RowStatement<P, R>,
    row: P,
    onSend?: () => void,
  ): Promise<Positioned<R> | undefined> {
    const key = statement.written && row[statement.written]
    return this.#batcherOf(statement).add({ row, key, sizeBytes: weightOf(row), onSend })
  }

  #batcherOf<P extends object, R>(statement: RowStatement<P, R>): Batcher<P, Positioned<R> | undefined> {
    // The map's types cannot say that a statement and its batcher belong together: this is where they are put in.
    let batcher = this.#batchers.get(statement) as Batcher<P, Positioned<R> | undefined> | undefined
    if (batcher === undefined) {
      batcher = new Batcher(
        (rows, onConnection) => this.#runBatch(statement, rows, onConnection),
        this.#config.connectionTimeoutMillis ?? 0,
      )
      this.#batchers.set(statement, batcher)
    }
    return batcher
  }

  async #runBatch<P extends object, R>(
    statement: RowStatement<P, R>,
    rows: readonly P[],
    onConnection: (cancel: () => void) => void,
  ): Promise<(Positioned<R> | undefined)[]> {
    const session = await this.#acquire(this.pool)
    let cancelling: Promise<void> | undefined
    try {
      onConnection(() => {
        cancelling = this.#cancel(session)
      })
      const answer = await session.executeQuery<Positioned<R>>(statement.bind(rows))
      return byPosition(answer.rows, rows.length)
    } finally {
      await cancelling // or it could meet the next statement on this connection
      session.release()
    }
  }

  /**
   * Has the server cancel what runs on a connection, where another one is free for that. What waits for the standby has committed
   * already: to end that wait would show a change that a failover loses. Never rejects.
   */
  async #cancel({ server }: Session): Promise<void> {
    const { idleCount, totalCount } = this.pool
    if (!server?.isDirect || (idleCount === 0 && totalCount >= this.#options.poolSize)) return
    const cancel = sql`select pg_cancel_backend(pid) from pg_stat_activity
      where pid = ${server.processId}::integer and state = 'active' and wait_event is distinct from 'SyncRep'`
    await cancel.execute(this.db).catch(() => undefined)
  }

  /**
   * Finds out what became of a transaction whose commit was not confirmed: `trace` answers a row if, and only if, it was applied.
   * `unknown` when that cannot be known within `withinMs`. Never throws.
   */
  settle(doubt: CommitUnknown, trace: Query, withinMs = SETTLE_WITHIN_MS): Promise<Outcome> {
    return settle(() => this.#acquire(this.pool), doubt, trace, withinMs)
  }

  /** Whether the database takes changes now: it is no standby and not set to read only. Asks it, on the connection of probes. */
  async acceptsWrites(): Promise<boolean> {
    const { rows } = await sql<{ accepts: boolean }>`
      select current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery() as accepts`.execute(
      this.probe,
    )
    return rows[0]?.accepts ?? false
  }

  /** Where it is, for people and logs: no password, no certificate files. */
  get description(): string {
    return describeDatabase(this.#options.url)
  }

  /** The server of the newest connection; undefined before the first. */
  get server(): DatabaseServer | undefined {
    return this.#server
  }

  /**
   * Closes: refuses new work, waits for statements under way at most `graceMs`, then cuts their connections. Resolves when
   * every socket is closed. May be called again.
   */
  close(graceMs = 5_000): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    const cut = setTimeout(() => {
      for (const client of this.#sessions.keys()) client.connection.stream.destroy()
    }, graceMs)
    // pg's pool is done when it has told its connections to close; the sockets close later.
    const ended = [...this.#sessions.values()].map(session => session.ended)
    await Promise.all([this.pool.end(), this.#probePool.end()])
    await Promise.all(ended)
    clearTimeout(cut)
  }

  #sessionSettings(): SessionSettings {
    const options = this.#options
    return {
      prepares: options.preparedStatements,
      statementTimeoutMs: options.statementTimeoutMs,
      responseMarginMs: options.responseMarginMs ?? 2_000,
      transactionPrelude: transactionPrelude(options),
      onExchange: exchange => {
        this.counters.statements += 1
        this.storesChanges = exchange.stores ?? this.storesChanges
        options.onStatement?.(exchange)
      },
      onStale: () => this.#renew(),
    }
  }

  /** Leaves all connections; not again and again where new ones are no better. */
  #renew(): void {
    if (performance.now() < this.#renewedAt + RENEW_PAUSE_MS) return
    this.#renewedAt = performance.now()
    for (const session of this.#sessions.values()) session.markStale()
  }

  #makePool(connectionsMax: number): pg.Pool {
    const pool = new pg.Pool({
      ...this.#config,
      Client: ClosingClient,
      max: connectionsMax,
      // Awaited by the pool before it hands the connection out, though its declaration says void.
      onConnect: client => this.#begin(client),
    })
    pool.on('remove', client => this.#sessions.delete(client))
    pool.on('error', error => {
      if (!pool.ending) this.#options.onError?.(error)
    })
    return pool
  }

  /** Makes the session of a new connection. Refuses a server that the service cannot work with. */
  async #begin(client: pg.ClientBase): Promise<void> {
    const name = connectionName(this.#config.application_name ?? '')
    const session = new Session(client as pg.Client, name, this.#settings) // the pool makes clients of this class
    const limitMs = this.#options.connectTimeoutMs
    const server = await readServer(client as pg.Client, name, limitMs, startupSettings(this.#options)).catch(error => {
      session.cut()
      throw error
    })
    if (this.#options.url.writesOnly && !server.acceptsWrites) throw new ServerReadOnly()
    session.server = server
    this.#sessions.set(client as pg.PoolClient, session)
    if (this.#server?.startedAt !== server.startedAt) this.#options.onServer?.(server)
    this.#server = server
  }

  /** A usable session. Leaves connections that became stale while they were idle. */
  async #acquire(pool: pg.Pool): Promise<Session> {
    const start = performance.now()
    try {
      for (;;) {
        const client = await pool.connect().catch(error => {
          throw this.#connectFault(error, performance.now() - start)
        })
        const session = this.#sessions.get(client)
        if (session?.isUsable) return session
        client.release(true)
      }
    } finally {
      this.#options.onPoolWait?.(performance.now() - start)
    }
  }

  /** Why the pool gave no connection. Its own errors have no class: one without a cause that took so long waited for a free one. */
  #connectFault(error: unknown, waitedMs: number): unknown {
    if (this.pool.ending) return new DatabaseClosed({ cause: error })
    if (isConnectFault(error)) return error
    if (!(error instanceof Error)) return new ConnectionLost({ cause: error })
    // The pool wraps a connection that took too long.
    if (isConnectFault(error.cause)) return error.cause
    const limitMs = this.#config.connectionTimeoutMillis ?? 0
    const isWait = error.cause === undefined && !('code' in error) && waitedMs > limitMs - TIMER_MS
    return isWait ? new PoolExhausted(limitMs, { cause: error }) : new ConnectionLost({ cause: error.cause ?? error })
  }

  #kyselyOn(pool: pg.Pool): Kysely<Tables> {
    const driver: Driver = {
      init: async () => {},
      acquireConnection: () => this.#acquire(pool),
      beginTransaction: (session, settings: TransactionSettings) => own(session).begin(settings),
      commitTransaction: session => own(session).commit(),
      rollbackTransaction: session => own(session).rollback(),
      releaseConnection: async session => own(session).release(),
      destroy: async () => {}, // the pool is closed by `close`, in its order
    }
    return kyselyOn(driver)
  }
}

/** A connection that the driver is given is one that it acquired. */
function own(connection: unknown): Session {
  return connection as Session
}

function isConnectFault(error: unknown): boolean {
  return error instanceof pg.DatabaseError || error instanceof DatabaseFault
}

/** Closes its socket when it cannot begin, as without a password: the pool forgets such a client and leaves it open. */
class ClosingClient extends pg.Client {
  override connect(): Promise<pg.Client>
  override connect(callback: (error: Error) => void): void
  override connect(callback?: (error: Error) => void): Promise<pg.Client> | undefined {
    if (callback === undefined) return super.connect()
    super.connect((error: Error) => {
      if (error) this.connection.stream.destroy()
      callback(error)
    })
    return undefined
  }
}

/** What every connection of the pool is made with. Reads the certificate files. */
function poolConfig(options: DatabaseOptions): pg.PoolConfig {
  const { url } = options
  return {
    host: url.host,
    port: url.port,
    user: url.user,
    password: url.password,
    database: url.database,
    application_name: url.applicationName ?? 'agent-tool-management',
    ssl: sslOptions(url),
    enableChannelBinding: url.channelBinding,
    types: VALUES,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_IDLE_MS,
    connectionTimeoutMillis: url.connectTimeoutMs ?? options.connectTimeoutMs,
    idleTimeoutMillis: CONNECTION_AGE_MAX_MS,
    maxLifetimeSeconds: CONNECTION_AGE_MAX_MS / 1_000,
    // What is given later wins: ours.
    options: [url.options ?? '', optionsOf(startupSettings(options))].join(' ').trim(),
  }
}

/**
 * A name that no other connection has: by it a lost one is found on the server, whatever process id it had. The server keeps a
 * `?` in place of what is not printable ASCII: sent as it is, the name would never be found.
 */
function connectionName(base: string): string {
  const mark = `/${randomBytes(9).toString('base64url')}`
  return base.replaceAll(/[^ -~]/g, '?').slice(0, NAME_BYTES_MAX - mark.length) + mark
}

/** PostgreSQL cuts an `application_name` to this length. */
const NAME_BYTES_MAX = 63

/** After so long a silence TCP asks whether the server is there. */
const KEEP_ALIVE_IDLE_MS = 10_000

/** A timer may ring so much earlier than the clock says. */
const TIMER_MS = 20

/** How long an update waits at most to learn what became of it. */
const SETTLE_WITHIN_MS = 2_500

const RENEW_PAUSE_MS = 500

const CONNECTION_AGE_MAX_MS = 300_000
