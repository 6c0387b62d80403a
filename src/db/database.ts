import { setTimeout as sleep } from 'node:timers/promises'
import { type CompiledQuery, type Driver, type Kysely, sql, type TransactionSettings } from 'kysely'
import pg from 'pg'
import type { Outcome } from '../errors.js'
import { type CommitUnknown, ConnectionLost, DatabaseFault, WaitedInVain } from './connection/database-error.js'
import { describeDatabase } from './connection/database-url.js'
import { type DatabaseOptions, optionsOf, startupSettings, transactionPrelude } from './connection/options.js'
import { type DatabaseServer, describeServer, readServer } from './connection/read-server.js'
import { Session, type SessionSettings } from './connection/session.js'
import { VALUES } from './connection/type-parsers.js'
import { kyselyOn } from './statements/queries.js'
import type { Tables } from './tables.js'

/**
 * The database: its pools. It connects at the first statement, which reports an unreachable server.
 */
export class Database {
  readonly db: Kysely<Tables>
  /** A separate connection for readiness probes, which works while the pool is busy. */
  readonly probe: Kysely<Tables>
  /** For its connection counts. Run statements with `db`. */
  readonly pool: pg.Pool
  readonly #probePool: pg.Pool
  /** The number of statements sent since the start. */
  readonly counters = { statements: 0 }
  readonly #options: DatabaseOptions
  readonly #settings: SessionSettings
  readonly #sessions = new Map<pg.PoolClient, Session>()
  readonly #config: pg.PoolConfig
  #server: DatabaseServer | undefined
  /** False if the last change could not be stored; true before the first. */
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
   * Looks once for what an unconfirmed commit stored: `applied` if `trace` returns a row, else `unknown`. Tries to reach the database for
   * 2.5 s. Never throws.
   */
  async settle({ isUnreplicated }: CommitUnknown, trace: CompiledQuery): Promise<Outcome> {
    if (isUnreplicated) return 'unknown' // a failover would lose it
    const leaving = new AbortController()
    const look = async (): Promise<Outcome> => {
      while (!leaving.signal.aborted) {
        const found = await this.db.executeQuery(trace).catch(() => undefined)
        if (found !== undefined) return found.rows.length > 0 ? 'applied' : 'unknown'
        await sleep(SETTLE_PAUSE_MS)
      }
      return 'unknown'
    }
    const late = sleep(SETTLE_WITHIN_MS, 'unknown' as const, { ref: false })
    return await Promise.race([look(), late]).finally(() => leaving.abort())
  }

  /** Asks the database, on the probe connection, whether it accepts changes: it is no standby and not read-only. */
  async acceptsWrites(): Promise<boolean> {
    const { rows } = await sql<{ accepts: boolean }>`
      select current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery() as accepts`.execute(
      this.probe,
    )
    return rows[0]?.accepts ?? false
  }

  /** The address of the database for logs, without password and certificate files. */
  get description(): string {
    return describeDatabase(this.#options.url)
  }

  /** The server of the newest connection; undefined before the first. */
  get server(): DatabaseServer | undefined {
    return this.#server
  }

  /**
   * Closes the pools: refuses new work, waits up to `graceMs` for running statements, then cuts their connections. Resolves when every
   * socket is closed. It may be called again.
   */
  close(graceMs = 5_000): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    const cut = setTimeout(() => {
      for (const client of this.#sessions.keys()) client.connection.stream.destroy()
    }, graceMs)
    // pg's pool resolves before the sockets are closed.
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

  /** Replaces all connections, at most once per `RENEW_PAUSE_MS`, because new ones may be no better. */
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
      // The pool awaits it before it hands out the connection, although its type says void.
      onConnect: client => this.#begin(client),
    })
    pool.on('remove', client => this.#sessions.delete(client))
    pool.on('error', error => {
      if (!pool.ending) this.#options.onError?.(error)
    })
    return pool
  }

  /** Creates the session of a new connection. Refuses a server that the service cannot use. */
  async #begin(client: pg.ClientBase): Promise<void> {
    const session = new Session(client as pg.Client, this.#settings) // the pool creates clients of this class
    const limitMs = this.#options.connectTimeoutMs
    const server = await readServer(client as pg.Client, limitMs, startupSettings(this.#options)).catch(error => {
      session.cut()
      throw error
    })
    if (this.#options.url.writesOnly && !server.acceptsWrites) {
      throw new DatabaseFault('read_only', 'the database server accepts no writes')
    }
    session.isDirect = server.isDirect
    this.#sessions.set(client as pg.PoolClient, session)
    if (!this.#server || describeServer(this.#server) !== describeServer(server)) this.#options.onServer?.(server)
    this.#server = server
  }

  /** Returns a usable session. Closes connections that became stale while idle. */
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

  /**
   * The reason why the pool gave no connection. Its errors have no class: one without a cause after the whole timeout means that no
   * connection became free.
   */
  #connectFault(error: unknown, waitedMs: number): unknown {
    if (this.pool.ending) {
      return new DatabaseFault('closed', 'the connections to the database are closed', { cause: error })
    }
    if (isConnectFault(error)) return error
    if (!(error instanceof Error)) return new ConnectionLost({ cause: error })
    // The pool wraps the error of a connection that took too long.
    if (isConnectFault(error.cause)) return error.cause
    const limitMs = this.#config.connectionTimeoutMillis ?? 0
    const isWait = error.cause === undefined && !('code' in error) && waitedMs > limitMs - TIMER_MS
    if (!isWait) return new ConnectionLost({ cause: error.cause ?? error })
    return new WaitedInVain('a connection to the database', limitMs, 'DATABASE_POOL_SIZE', { cause: error })
  }

  #kyselyOn(pool: pg.Pool): Kysely<Tables> {
    const driver: Driver = {
      init: async () => {},
      acquireConnection: () => this.#acquire(pool),
      beginTransaction: (session, settings: TransactionSettings) => own(session).begin(settings),
      commitTransaction: session => own(session).commit(),
      rollbackTransaction: session => own(session).rollback(),
      releaseConnection: async session => own(session).release(),
      destroy: async () => {}, // `close` closes the pool
    }
    return kyselyOn(driver)
  }
}

/** Kysely passes only connections that this driver acquired. */
function own(connection: unknown): Session {
  return connection as Session
}

function isConnectFault(error: unknown): boolean {
  return error instanceof pg.DatabaseError || error instanceof DatabaseFault
}

/** Closes its socket if it cannot connect, for example without a password. The pool would leave it open. */
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

/** The pool's configuration. */
function poolConfig(options: DatabaseOptions): pg.PoolConfig {
  const { url } = options
  return {
    host: url.host,
    port: url.port,
    user: url.user,
    password: url.password,
    database: url.database,
    application_name: url.applicationName ?? 'agent-tool-management',
    ssl: url.ssl,
    enableChannelBinding: url.channelBinding,
    types: VALUES,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_IDLE_MS,
    connectionTimeoutMillis: url.connectTimeoutMs ?? options.connectTimeoutMs,
    idleTimeoutMillis: CONNECTION_AGE_MAX_MS,
    maxLifetimeSeconds: CONNECTION_AGE_MAX_MS / 1_000,
    // Later options take precedence: ours.
    options: [url.options ?? '', optionsOf(startupSettings(options))].join(' ').trim(),
  }
}

/** The idle time before TCP keep-alive probes. */
const KEEP_ALIVE_IDLE_MS = 10_000

/** A timer may fire this much early. */
const TIMER_MS = 20

/** The longest time in which an unconfirmed commit is looked for. */
const SETTLE_WITHIN_MS = 2_500
const SETTLE_PAUSE_MS = 50

const RENEW_PAUSE_MS = 500

const CONNECTION_AGE_MAX_MS = 300_000
