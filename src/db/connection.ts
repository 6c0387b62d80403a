import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'
import { Kysely, PostgresDialect, type PostgresPool } from 'kysely'
import pg from 'pg'
import type { StatementResult } from './batch.js'
import { type CommitUnknown, ConnectionLost, DatabaseClosed, PoolExhausted, ServerReadOnly } from './database-error.js'
import type { DatabaseHost, DatabaseUrl } from './database-url.js'
import { HostList } from './hosts.js'
import { PreparedNames } from './prepared-names.js'
import { BEGIN, type BoundStatement, COMMIT, type Exchange, Session, type SessionSettings } from './session.js'
import { type Outcome, settle } from './settle.js'
import { TYPE_PARSERS } from './type-parsers.js'

export interface DatabaseOptions {
  url: DatabaseUrl
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  idleInTransactionTimeoutMs: number
  /** Bounds both making a connection and waiting for a free one. `connect_timeout` of the URL wins. */
  connectTimeoutMs: number
  /** A server silent for longer is taken for lost. Default: the statement timeout and two seconds. */
  responseTimeoutMs?: number
  /** A connection not used for longer is closed. Default: five minutes. */
  idleTimeoutMs?: number
  /** False behind PgBouncer in transaction mode: what a prepared statement answers is asked once on each connection. */
  preparedStatements: boolean
  /** How many texts are prepared by name, each on every connection. Default: 200. */
  preparedStatementLimit?: number
  /**
   * How the three timeouts reach the server:
   * - `startup` (default): in the start-up packet. PgBouncer refuses such a connection, as these are not parameters it tracks.
   * - `transaction`: as `SET LOCAL` with every `begin`, in the same round trip. Behind PgBouncer in transaction mode a
   *   session setting would stay with whatever server connection it met, this one ends with its transaction. A single
   *   statement with parameters gets a transaction for it; others have the role's or the server's timeouts.
   * - `none`: not at all; set them for the role with ALTER ROLE ... SET.
   */
  sessionSettings?: 'startup' | 'transaction' | 'none'
  /** Called after every round trip. Must not throw. */
  onStatement?: (exchange: Exchange) => void
  /** Called whenever a connection was asked for: how long it took until there was one, or an error. Must not throw. */
  onPoolWait?: (durationMs: number) => void
  /** Called when a connection is lost while nobody uses it. */
  onError?: (error: Error) => void
}

/** How much went to the database since it was opened. */
export interface StatementCounters {
  statements: number
  roundTrips: number
}

export interface OpenDatabase<DB> {
  readonly db: Kysely<DB>
  /** For its counts of connections; statements go through `db` and `pipeline`. */
  readonly pool: pg.Pool
  readonly counters: Readonly<StatementCounters>
  /**
   * Runs the statements in the order given on one connection in one round trip, and answers one result for each. When one
   * fails, no later one runs, the transaction is rolled back, and the error is thrown. A transaction needs its `BEGIN` and
   * `COMMIT` in the list; without them the list is one implicit transaction.
   * Throws `ConnectionLost` when nothing was applied for certain, `CommitUnknown` when the loss left that open.
   */
  pipeline(statements: readonly BoundStatement[]): Promise<StatementResult[]>
  /**
   * Runs the statements as one transaction in one round trip; answers their results without those of begin and commit.
   * Throws as `pipeline` does.
   */
  transact(statements: readonly BoundStatement[]): Promise<StatementResult[]>
  /**
   * Finds out what became of a transaction whose commit was not confirmed. `trace` answers a row if, and only if, the
   * transaction was applied. `unknown` when that cannot be known within `withinMs` (default 2.5 seconds). Never throws.
   */
  settle(doubt: CommitUnknown, trace: BoundStatement, withinMs?: number): Promise<Outcome>
  /**
   * Closes: refuses new work, waits for statements under way at most `graceMs`, then cuts their connections. Resolves when
   * every socket is closed. May be called again.
   */
  close(graceMs?: number): Promise<void>
}

export { BEGIN, COMMIT }

/**
 * Opens a pool of connections. Connects lazily: the first statement reports a server that cannot be reached. With several
 * hosts, and `target_session_attrs=read-write`, connections go to the host that accepts writes and follow it when it
 * changes. Reads the certificate files of the URL, and throws when they cannot be read.
 */
export function openDatabase<DB>(options: DatabaseOptions): OpenDatabase<DB> {
  return new Connections<DB>(options)
}

/** `OpenDatabase.pipeline` as a function. */
export function pipeline(
  database: Pick<OpenDatabase<unknown>, 'pipeline'>,
  statements: readonly BoundStatement[],
): Promise<StatementResult[]> {
  return database.pipeline(statements)
}

class Connections<DB> implements OpenDatabase<DB> {
  readonly db: Kysely<DB>
  readonly pool: pg.Pool
  readonly counters: StatementCounters = { statements: 0, roundTrips: 0 }
  readonly #options: DatabaseOptions
  readonly #hosts: HostList<DatabaseHost>
  readonly #settings: SessionSettings
  readonly #sessions = new Map<pg.PoolClient, Session>()
  #renewedAt = Number.NEGATIVE_INFINITY
  #closed: Promise<void> | undefined

  constructor(options: DatabaseOptions) {
    this.#options = options
    this.#hosts = new HostList(options.url.hosts)
    this.#settings = this.#sessionSettings()
    this.pool = this.#makePool()
    this.db = new Kysely<DB>({ dialect: new PostgresDialect({ pool: this.#kyselyPool() }) })
  }

  async pipeline(statements: readonly BoundStatement[]): Promise<StatementResult[]> {
    if (statements.length === 0) return []
    const session = await this.#acquire()
    try {
      return await session.batch(statements)
    } finally {
      session.release()
    }
  }

  async transact(statements: readonly BoundStatement[]): Promise<StatementResult[]> {
    const results = await this.pipeline([BEGIN, ...statements, COMMIT])
    return results.slice(1, -1)
  }

  settle(doubt: CommitUnknown, trace: BoundStatement, withinMs = SETTLE_WITHIN_MS): Promise<Outcome> {
    return settle(() => this.#acquire(), doubt, trace, withinMs)
  }

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
    await this.pool.end()
    await Promise.all(ended)
    clearTimeout(cut)
  }

  #sessionSettings(): SessionSettings {
    const options = this.#options
    return {
      names: options.preparedStatements ? new PreparedNames(options.preparedStatementLimit ?? 200) : undefined,
      types: TYPE_PARSERS,
      responseTimeoutMs: options.responseTimeoutMs ?? options.statementTimeoutMs + 2_000,
      transactionPrelude: options.sessionSettings === 'transaction' ? transactionPrelude(options) : [],
      onExchange: exchange => {
        this.counters.statements += exchange.texts.length
        this.counters.roundTrips += 1
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

  #makePool(): pg.Pool {
    const { url, poolSize, connectTimeoutMs, idleTimeoutMs = 300_000 } = this.#options
    const pool = new pg.Pool({
      max: poolSize,
      connectionTimeoutMillis: url.connectTimeoutMs ?? connectTimeoutMs,
      idleTimeoutMillis: idleTimeoutMs,
      types: TYPE_PARSERS,
      Client: hostClient(this.#hosts, clientConfig(this.#options), this.#settings),
      // Awaited by the pool before it hands the connection out, though its declaration says void.
      onConnect: client => this.#checkWritable(client),
    })
    pool.on('connect', client => {
      const session = sessionOf.get(client)
      if (session !== undefined) this.#sessions.set(client, session)
    })
    pool.on('remove', client => this.#sessions.delete(client))
    pool.on('error', error => {
      if (!pool.ending) this.#options.onError?.(error)
    })
    return pool
  }

  /** Refuses a connection to a server that accepts no writes, where the URL asks for one that does. */
  async #checkWritable(client: pg.ClientBase): Promise<void> {
    if (this.#options.url.targetSessionAttrs !== 'read-write' || !(client instanceof pg.Client)) return
    const timer = setTimeout(() => client.connection.stream.destroy(), this.#options.connectTimeoutMs)
    const { rows } = await client
      .query<{ setting: string }>("select current_setting('transaction_read_only') as setting")
      .catch(error => {
        this.#failed(client)
        throw error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })
      })
      .finally(() => clearTimeout(timer))
    if (rows[0]?.setting === 'off') return
    this.#failed(client)
    throw new ServerReadOnly()
  }

  #failed(client: pg.Client): void {
    const place = placeOf.get(client)
    if (place !== undefined) this.#hosts.failed(place)
  }

  /** A usable session. Tries each host once; leaves connections that became stale while they were idle. */
  async #acquire(): Promise<Session> {
    const start = performance.now()
    try {
      for (;;) {
        const session = await this.#acquireAny()
        if (session.isUsable) return session
        session.release()
      }
    } finally {
      this.#options.onPoolWait?.(performance.now() - start)
    }
  }

  async #acquireAny(): Promise<Session> {
    for (let attempt = 1; ; attempt++) {
      try {
        const client = await this.pool.connect()
        const session = this.#sessions.get(client)
        if (session) return session
        client.release(true)
      } catch (error) {
        const fault = this.#connectFault(error)
        const isHostsFault = !(fault instanceof PoolExhausted || fault instanceof DatabaseClosed)
        if (!isHostsFault || attempt >= this.#hosts.size) throw fault
      }
    }
  }

  /** Why the pool gave no connection. Its own errors have no class: they are what is left. */
  #connectFault(error: unknown): unknown {
    if (this.pool.ending) return new DatabaseClosed({ cause: error })
    if (isConnectFault(error)) return error
    // The pool wraps a connection that took too long.
    if (error instanceof Error && isConnectFault(error.cause)) return error.cause
    return new PoolExhausted({ cause: error })
  }

  #kyselyPool(): PostgresPool {
    return {
      connect: async () => {
        const session = await this.#acquire()
        // Kysely declares a generic row type and a cursor overload; without a cursor configured it sends text and values only.
        return session as unknown as Awaited<ReturnType<PostgresPool['connect']>>
      },
      // The pool is closed by `close`, in its order.
      end: async () => {},
      options: this.pool.options,
    }
  }
}

function isConnectFault(error: unknown): boolean {
  return error instanceof pg.DatabaseError || error instanceof ConnectionLost || error instanceof ServerReadOnly
}

/** How long an update waits at most to learn what became of it. */
const SETTLE_WITHIN_MS = 2_500

const RENEW_PAUSE_MS = 500

/** PostgreSQL cuts an `application_name` behind so many bytes. */
const NAME_BYTES_MAX = 63

/** Which host of the list a client was made for. */
const placeOf = new WeakMap<pg.Client, number>()

/** Each client's session, made with it: one made later would not hear of a connection lost meanwhile. */
const sessionOf = new WeakMap<pg.ClientBase, Session>()

/** A name that no other connection has: by it a lost one is found on the server, whatever process id it had. */
function connectionName(base: string): string {
  const mark = `/${randomBytes(9).toString('base64url')}`
  return (
    Buffer.from(base)
      .subarray(0, NAME_BYTES_MAX - mark.length)
      .toString('latin1') + mark
  )
}

type ConnectCallback = (error: Error | null, client?: pg.Client) => void

/** A client class for the pool: each new client goes to the host that is current, and says when it cannot be reached. */
function hostClient(
  hosts: HostList<DatabaseHost>,
  config: pg.ClientConfig,
  settings: SessionSettings,
): new () => pg.Client {
  return class HostClient extends pg.Client {
    constructor() {
      const place = hosts.current
      const name = connectionName(config.application_name ?? '')
      super({ ...config, ...hosts.at(place), application_name: name })
      placeOf.set(this, place)
      sessionOf.set(this, new Session(this, name, settings))
    }

    override connect(): Promise<pg.Client>
    override connect(callback: ConnectCallback): void
    override connect(callback?: ConnectCallback): Promise<pg.Client> | undefined {
      const fail = (error: Error): Error => {
        hosts.failed(placeOf.get(this) ?? hosts.current)
        // The pool forgets this client; where it was the client that gave up, as for want of a password, its socket is open.
        this.connection.stream.destroy()
        return error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })
      }
      if (!callback) return super.connect().catch(error => Promise.reject(fail(error)))
      super.connect((error: Error | null) => (error ? callback(fail(error)) : callback(null, this)))
      return undefined
    }
  }
}

/**
 * How the server plans what is prepared here. Left to itself it plans the large statements anew at every execution, because
 * it takes lists of ids for longer than they are, and planning costs several times what running does. Every statement
 * finds its rows by keys, so one plan fits all values. Compiling expressions never pays for a handful of rows.
 */
const PLANNER_SETTINGS = '-c plan_cache_mode=force_generic_plan -c jit=off'

function clientConfig(options: DatabaseOptions): pg.ClientConfig {
  const { url, sessionSettings = 'startup' } = options
  return {
    user: url.user,
    password: url.password,
    database: url.database,
    application_name: url.applicationName ?? 'agent-tool-management',
    ssl: sslOptions(url.ssl),
    types: TYPE_PARSERS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    ...(sessionSettings === 'startup' && {
      statement_timeout: options.statementTimeoutMs,
      lock_timeout: options.lockTimeoutMs,
      idle_in_transaction_session_timeout: options.idleInTransactionTimeoutMs,
      options: PLANNER_SETTINGS,
    }),
  }
}

function transactionPrelude(options: DatabaseOptions): BoundStatement[] {
  const texts = [
    `set local statement_timeout = ${Math.trunc(options.statementTimeoutMs)}`,
    `set local lock_timeout = ${Math.trunc(options.lockTimeoutMs)}`,
    `set local idle_in_transaction_session_timeout = ${Math.trunc(options.idleInTransactionTimeoutMs)}`,
  ]
  return texts.map(sql => ({ sql, parameters: [] }))
}

function sslOptions(ssl: DatabaseUrl['ssl']): false | ConnectionOptions {
  if (ssl.mode === 'disable') return false
  return {
    rejectUnauthorized: ssl.mode !== 'require',
    ...(ssl.mode === 'verify-ca' && { checkServerIdentity: () => undefined }),
    // `system` means the certificates that the runtime trusts, as with libpq.
    ...(ssl.rootCertFile && ssl.rootCertFile !== 'system' && { ca: readFileSync(ssl.rootCertFile) }),
    ...(ssl.certFile && { cert: readFileSync(ssl.certFile) }),
    ...(ssl.keyFile && { key: readFileSync(ssl.keyFile) }),
  }
}
