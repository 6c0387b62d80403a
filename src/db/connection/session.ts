import { CompiledQuery, type DatabaseConnection, type QueryResult, type TransactionSettings } from 'kysely'
import pg from 'pg'
import {
  CommitUnknown,
  ConnectionLost,
  classifyDatabaseError,
  type DatabaseErrorKind,
  maySpeakForServer,
} from './database-error.js'
import type { DatabaseServer } from './database-server.js'

/** A compiled query, and what its author says of it beyond its text. */
export interface Query<R = unknown> extends CompiledQuery<R> {
  /** Whether it changes something; undefined where the form of the query tells. */
  readonly writes?: boolean
  /** The name under which it may be prepared on a connection: no other text has it. */
  readonly name?: string
  /** The new `statement_timeout` of the session or, if `isLocal`, of the transaction; undefined ends the session's own. */
  readonly sets?: { timeoutMs: number | undefined; isLocal: boolean }
}

/** One round trip, for metrics and slow-statement logs. Never holds a value. */
export interface Exchange {
  text: string
  /** From sending to the last answer. */
  durationMs: number
  ok: boolean
  /** Whether it shows that changes are stored, or that they cannot be; undefined where it shows neither. */
  stores: boolean | undefined
}

/** What all sessions of a pool share. */
export interface SessionSettings {
  /** Whether statements are prepared by name. */
  prepares: boolean
  /** The `statement_timeout` of a new connection. */
  statementTimeoutMs: number
  /** A server that has not answered so long after the `statement_timeout` is taken for lost, and its connection is cut. */
  responseMarginMs: number
  /** Sent after every `begin`, in the same round trip. */
  transactionPrelude: string | undefined
  onExchange(exchange: Exchange): void
  /** Called when what this session met concerns all connections of the pool that are open now. */
  onStale(): void
}

/**
 * The routine of the server that warns when somebody cancelled its wait for a synchronous standby: COMMIT then succeeds
 * here, but a failover would lose it. (No statement timeout runs during a commit: the response timeout bounds it.)
 */
const SYNC_REPLICATION_WAIT = 'SyncRepWaitForLSN'

/** Errors that mean: no change is stored at present, whatever it is. */
const NOT_STORED: ReadonlySet<DatabaseErrorKind> = new Set(['disk_full', 'read_only'])

/**
 * One connection of the pool while it is open, for Kysely and for batches. Runs queries, prepares them by name, bounds the
 * time of each, and turns the loss of the connection into `ConnectionLost` or `CommitUnknown`.
 */
export class Session implements DatabaseConnection {
  readonly #client: pg.Client
  readonly #settings: SessionSettings
  /** The name under which the server lists this connection, and no other (`application_name`). */
  readonly name: string
  /** Resolves when the connection's socket is closed. Never rejects. */
  readonly ended: Promise<void>
  #loss: unknown
  #isStale = false
  #isUnreplicated = false
  /** What the server gives to a statement on this connection, and in this transaction where it is set there; 0: no limit. */
  #statementTimeoutMs: number
  #localTimeoutMs: number | undefined
  /** Set when the connection was made; undefined before. */
  server: DatabaseServer | undefined

  constructor(client: pg.Client, name: string, settings: SessionSettings) {
    this.#client = client
    this.name = name
    this.#settings = settings
    this.#statementTimeoutMs = settings.statementTimeoutMs
    // Without a listener of its own, a client that is checked out would end the process when its server dies.
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

  /** Whether the connection may be used again. */
  get isUsable(): boolean {
    return this.#loss === undefined && !this.#isStale
  }

  /** Has the connection closed when it is released. */
  markStale(): void {
    this.#isStale = true
  }

  /** Closes the connection at once: what is under way on it is lost. */
  cut(): void {
    this.#client.connection.stream.destroy()
  }

  /** Runs one query in a round trip of its own. Where settings live in transactions only, a query outside one gets one. */
  async executeQuery<R>(query: Query): Promise<QueryResult<R>> {
    const isAlone = this.#settings.transactionPrelude !== undefined && !this.#isInTransaction
    // A text without values may be a list of statements, or one that cannot run in a transaction: unless it reads, it stays as it is.
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

  /** Begins a transaction; at READ COMMITTED, whatever the default of the server is, unless another level is asked for. */
  async begin({ isolationLevel = 'read committed', accessMode }: TransactionSettings = {}): Promise<void> {
    const begin = `begin isolation level ${isolationLevel}${accessMode === undefined ? '' : ` ${accessMode}`}`
    const { transactionPrelude: prelude } = this.#settings
    await this.#run(CompiledQuery.raw(prelude === undefined ? begin : `${begin}; ${prelude}`), false)
  }

  /** Commits. Throws `CommitUnknown` when the connection was lost meanwhile, and an error where the server rolled back. */
  async commit(): Promise<void> {
    const { command } = await this.#exchange({ text: 'commit' }, true)
    this.#localTimeoutMs = undefined
    if (command === 'ROLLBACK') throw new Error('a statement of the transaction had failed: it was rolled back')
  }

  /** Rolls back; the server does so itself with a connection that is lost. Closes the connection where it fails. */
  async rollback(): Promise<void> {
    if (this.#loss !== undefined) return
    try {
      await this.#exchange({ text: 'rollback' }, false)
      this.#localTimeoutMs = undefined
    } catch {
      this.markStale()
    }
  }

  /** Gives the connection back to the pool, or closes it when it is lost, stale or to be destroyed. */
  release(destroy = false): void {
    // The pool adds this method when it hands the client out.
    const { release } = this.#client as pg.Client & Pick<pg.PoolClient, 'release'>
    release.call(this.#client, destroy || !this.isUsable)
  }

  async #run<R>(query: Query, mayApply = changes(query) && !this.#isInTransaction): Promise<QueryResult<R>> {
    const { sql: text, parameters, name, sets, writes = false } = query
    // Nothing is prepared by name through a pooler: which server gets the next statement, only the pooler knows.
    const isNamed = name !== undefined && this.#settings.prepares && this.server?.isDirect
    const values = parameters as unknown[] // pg only reads them
    const sent = values.length === 0 ? { text } : { text, values, ...(isNamed && { name }) }
    const { rows, command, rowCount } = await this.#exchange<R>(sent, mayApply, writes)
    if (sets?.isLocal) this.#localTimeoutMs = sets.timeoutMs
    else if (sets) this.#statementTimeoutMs = sets.timeoutMs ?? this.#settings.statementTimeoutMs
    const isCounted = ['INSERT', 'UPDATE', 'DELETE', 'MERGE'].includes(command)
    return { rows, ...(isCounted && { numAffectedRows: BigInt(rowCount ?? 0) }) }
  }

  /** Sends one round trip, bounds its time, reports it, and says in its error what may have become of it. */
  async #exchange<R>(sent: pg.QueryConfig, mayApply: boolean, writes = false) {
    // What is not sent cannot have been applied, be it a commit.
    if (this.#loss !== undefined) throw new ConnectionLost({ cause: this.#loss })
    const start = performance.now()
    const timer = this.#responseTimer()
    let ok = false
    let stores: boolean | undefined
    try {
      const result = await this.#client.query<R & pg.QueryResultRow>(sent)
      if (this.#isUnreplicated && mayApply) {
        this.markStale()
        throw new CommitUnknown(this.name, this.server)
      }
      ok = true
      if (writes) stores = true
      // pg answers several statements with a list, never empty, which its declaration does not say.
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

  /** Cuts the connection when the server is silent for longer than it may work; it then ends the statement by itself. */
  #responseTimer(): NodeJS.Timeout | undefined {
    const limitMs = this.#localTimeoutMs ?? this.#statementTimeoutMs
    if (limitMs === 0) return undefined
    return setTimeout(() => this.cut(), limitMs + this.#settings.responseMarginMs).unref()
  }

  get #isInTransaction(): boolean {
    const status = this.#client.getTransactionStatus()
    return status === 'T' || status === 'E'
  }

  /** What to tell of an error, when what was sent may have been applied unless the server itself refused it. */
  async #translated(error: unknown, mayApply: boolean): Promise<unknown> {
    const isServers = error instanceof pg.DatabaseError
    if (isServers && !maySpeakForServer(error)) return this.#refused(error)
    // The server may be lost: a rollback after the error then finds the connection closed.
    if (isServers) this.cut()
    if (this.#client.connection.stream.destroyed) await this.ended
    // pg has no class for a lost connection: what counts is that the connection has reported its end.
    if (this.#loss === undefined) return error
    this.markStale()
    if (!mayApply) return isServers ? error : new ConnectionLost({ cause: error })
    return new CommitUnknown(this.name, this.server, { cause: error })
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

/** Whether a query may change something: as its author or its builder says. Raw SQL does, unless it is a `select`. */
function changes({ writes, query, sql }: Query): boolean {
  if (writes !== undefined) return writes
  return query.kind === 'RawNode'
    ? !/^\s*select/i.test(sql)
    : query.kind !== 'SelectQueryNode' || query.with !== undefined
}
