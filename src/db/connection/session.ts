import { CompiledQuery, type DatabaseConnection, type QueryResult, type TransactionSettings } from 'kysely'
import pg from 'pg'
import {
  CommitUnknown,
  ConnectionLost,
  classifyDatabaseError,
  type DatabaseErrorKind,
  isLostBy,
} from './database-error.js'

/** A compiled query with further properties. */
export interface Query<R = unknown> extends CompiledQuery<R> {
  /** True if it changes data; undefined if the form of the query decides. */
  readonly writes?: boolean
  /** The name for preparing it on a connection, unique to its text. */
  readonly name?: string
  /** The query sets `statement_timeout` for the session or, if `isLocal`, for the transaction. Undefined resets that of the session. */
  readonly sets?: { timeoutMs: number | undefined; isLocal: boolean }
}

/** One round trip, for metrics and logs. It contains no parameter values. */
export interface Exchange {
  text: string
  /** From sending to the last answer. */
  durationMs: number
  ok: boolean
  /** True if the answer proves that changes are stored, false if it proves that they are not; else undefined. */
  stores: boolean | undefined
}

/** The settings that all sessions of a pool share. */
export interface SessionSettings {
  /** True if statements are prepared by name. */
  prepares: boolean
  /** The `statement_timeout` of a new connection. */
  statementTimeoutMs: number
  /** A server that is silent this long after the `statement_timeout` counts as lost, and its connection is cut. */
  responseMarginMs: number
  /** Sent after every `begin`, in the same round trip. */
  transactionPrelude: string | undefined
  onExchange(exchange: Exchange): void
  /** Called if an error of this session concerns all open connections of the pool. */
  onStale(): void
}

/**
 * The server routine that warns when a commit stopped waiting for its synchronous standby. The COMMIT succeeds, but a failover would lose
 * it. (No statement timeout applies to a commit; the response timeout limits it.)
 */
const SYNC_REPLICATION_WAIT = 'SyncRepWaitForLSN'

/** Errors that mean that no change can be stored at present. */
const NOT_STORED: ReadonlySet<DatabaseErrorKind> = new Set(['disk_full', 'read_only'])

/**
 * An open connection of the pool, for Kysely. Runs and prepares queries, limits their time, and reports a lost connection
 * as `ConnectionLost` or `CommitUnknown`.
 */
export class Session implements DatabaseConnection {
  readonly #client: pg.Client
  readonly #settings: SessionSettings
  /** Resolves when the connection's socket is closed. Never rejects. */
  readonly ended: Promise<void>
  #loss: unknown
  #isStale = false
  #isUnreplicated = false
  /** The statement timeouts of this session and of its transaction, if set there; 0 is no limit. */
  #statementTimeoutMs: number
  #localTimeoutMs: number | undefined
  /** False through a pooler. Set when the connection is made. */
  isDirect = false

  constructor(client: pg.Client, settings: SessionSettings) {
    this.#client = client
    this.#settings = settings
    this.#statementTimeoutMs = settings.statementTimeoutMs
    // An `error` event without a listener would end the process when the server dies.
    client.on('error', error => this.#lose(error))
    client.on('notice', ({ routine }) => {
      if (routine === SYNC_REPLICATION_WAIT) this.#isUnreplicated = true
    })
    this.ended = new Promise(resolve => {
      client.on('end', () => {
        this.#lose(undefined)
        resolve()
      })
    })
  }

  /** True if the connection can be used again. */
  get isUsable(): boolean {
    return this.#loss === undefined && !this.#isStale
  }

  /** Closes the connection when it is released. */
  markStale(): void {
    this.#isStale = true
  }

  /** Closes the connection at once. Running work is lost. */
  cut(): void {
    this.#client.connection.stream.destroy()
  }

  /** Runs one query in its own round trip. If settings are per transaction, a query outside one runs in its own transaction. */
  async executeQuery<R>(query: Query): Promise<QueryResult<R>> {
    const isAlone = this.#settings.transactionPrelude !== undefined && !this.#isInTransaction
    // A text without parameters may be several statements, or one that cannot run in a transaction. It runs unchanged unless it only reads.
    if (!isAlone || (query.parameters.length === 0 && changes(query))) return await this.#run<R>(query)
    await this.begin()
    try {
      const result = await this.#run<R>(query)
      await this.commit()
      return result
    } catch (error) {
      await this.rollback()
      throw error
    }
  }

  // biome-ignore lint/correctness/useYield: nothing is streamed, and Kysely's interface has it
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('no query is streamed')
  }

  /** Begins a transaction, at READ COMMITTED by default, whatever the server's default is. */
  async begin({ isolationLevel = 'read committed', accessMode }: TransactionSettings = {}): Promise<void> {
    const begin = `begin isolation level ${isolationLevel}${accessMode === undefined ? '' : ` ${accessMode}`}`
    const { transactionPrelude: prelude } = this.#settings
    await this.#run(CompiledQuery.raw(prelude === undefined ? begin : `${begin}; ${prelude}`), false)
  }

  /** Commits. Throws `CommitUnknown` if the connection was lost meanwhile, and an error if the server rolled back. */
  async commit(): Promise<void> {
    const { command } = await this.#exchange({ text: 'commit' }, true)
    this.#localTimeoutMs = undefined
    if (command === 'ROLLBACK') throw new Error('a statement of the transaction had failed: it was rolled back')
  }

  /** Rolls back; for a lost connection the server does. Marks the connection stale if it fails. */
  async rollback(): Promise<void> {
    if (this.#loss !== undefined) return
    try {
      await this.#exchange({ text: 'rollback' }, false)
      this.#localTimeoutMs = undefined
    } catch {
      this.markStale()
    }
  }

  /** Returns the connection to the pool, or closes it if it is lost, stale or `destroy` is set. */
  release(destroy = false): void {
    // The pool adds this method when it hands the client out.
    const { release } = this.#client as pg.Client & Pick<pg.PoolClient, 'release'>
    release.call(this.#client, destroy || !this.isUsable)
  }

  async #run<R>(query: Query, mayApply = changes(query) && !this.#isInTransaction): Promise<QueryResult<R>> {
    const { sql: text, parameters, name, sets, writes = false } = query
    // Behind a pooler nothing is prepared by name, because the next statement may reach another server connection.
    const isNamed = name !== undefined && this.#settings.prepares && this.isDirect
    const values = parameters as unknown[] // pg only reads them
    const sent = values.length === 0 ? { text } : { text, values, ...(isNamed && { name }) }
    const { rows, command, rowCount } = await this.#exchange<R>(sent, mayApply, writes)
    if (sets?.isLocal) this.#localTimeoutMs = sets.timeoutMs
    else if (sets) this.#statementTimeoutMs = sets.timeoutMs ?? this.#settings.statementTimeoutMs
    const isCounted = ['INSERT', 'UPDATE', 'DELETE', 'MERGE'].includes(command)
    return { rows, ...(isCounted && { numAffectedRows: BigInt(rowCount ?? 0) }) }
  }

  /** Sends one round trip with a time limit and reports it. An error tells whether the statement may have been applied. */
  async #exchange<R>(sent: pg.QueryConfig, mayApply: boolean, writes = false) {
    // If nothing was sent, nothing was applied, not even by a commit.
    if (this.#loss !== undefined) throw new ConnectionLost({ cause: this.#loss })
    const start = performance.now()
    const timer = this.#responseTimer()
    let ok = false
    let stores: boolean | undefined
    try {
      const result = await this.#client.query<R & pg.QueryResultRow>(sent)
      if (this.#isUnreplicated && mayApply) {
        this.markStale()
        throw new CommitUnknown({}, true)
      }
      ok = true
      if (writes) stores = true
      // pg returns a non-empty list for several statements, which its type does not declare.
      return Array.isArray(result) ? (result.at(-1) as typeof result) : result
    } catch (error) {
      if (NOT_STORED.has(classifyDatabaseError(error).kind)) stores = false
      throw await this.#translated(error, mayApply)
    } finally {
      clearTimeout(timer)
      this.#isUnreplicated = false
      this.#settings.onExchange({ text: sent.text, durationMs: performance.now() - start, ok, stores })
    }
  }

  /** Cuts the connection if the server is silent for too long. The server then ends the statement by itself. */
  #responseTimer(): NodeJS.Timeout | undefined {
    const limitMs = this.#localTimeoutMs ?? this.#statementTimeoutMs
    if (limitMs === 0) return undefined
    return setTimeout(() => this.cut(), limitMs + this.#settings.responseMarginMs).unref()
  }

  get #isInTransaction(): boolean {
    const status = this.#client.getTransactionStatus()
    return status === 'T' || status === 'E'
  }

  /** Translates an error. Unless the server itself refused the statement, it may have been applied. */
  async #translated(error: unknown, mayApply: boolean): Promise<unknown> {
    const isServers = error instanceof pg.DatabaseError
    if (isServers && !isLostBy(error)) return this.#refused(error)
    // The server may be lost: cut the connection, so that a rollback does not wait for it.
    if (isServers) this.cut()
    if (this.#client.connection.stream.destroyed) await this.ended
    // pg has no class for a lost connection, so check whether the connection reported its end.
    if (this.#loss === undefined) return error
    this.markStale()
    if (!mayApply) return isServers ? error : new ConnectionLost({ cause: error })
    return new CommitUnknown({ cause: error })
  }

  #refused(error: pg.DatabaseError): pg.DatabaseError {
    const { kind } = classifyDatabaseError(error)
    if (kind === 'cached_plan' || kind === 'read_only') {
      this.markStale()
      this.#settings.onStale()
    }
    return error
  }

  #lose(error: unknown): void {
    this.#loss ??= error ?? new Error('the connection ended')
  }
}

/** True if a query may change data, as declared or by its kind. Raw SQL counts as changing unless it is a `select`. */
function changes({ writes, query, sql }: Query): boolean {
  if (writes !== undefined) return writes
  return query.kind === 'RawNode'
    ? !/^\s*select/i.test(sql)
    : query.kind !== 'SelectQueryNode' || query.with !== undefined
}
