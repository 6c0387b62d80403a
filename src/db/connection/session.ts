import type { CompiledQuery, DatabaseConnection, QueryResult, TransactionSettings } from 'kysely'
import pg from 'pg'
import { CommitUnknown, ConnectionLost, classifyDatabaseError, isLostBy } from './database-error.js'
import { type DatabaseOptions, transactionPrelude } from './options.js'

export interface Query<R = unknown> extends CompiledQuery<R> {
  /** True if the query changes data. Default: true unless the query begins with `select`. */
  readonly writes?: boolean
  readonly name?: string
  /** The `statement_timeout` that the query sets for the transaction; 0 means no limit. */
  readonly setsTimeoutMs?: number
}

/** A connection counts as lost if the server does not answer within the statement timeout plus this margin. */
const ANSWER_MARGIN_MS = 2_000

/** A pooled connection for Kysely. Limits the time of queries. Reports a lost connection as `ConnectionLost` or `CommitUnknown`. */
export class Session implements DatabaseConnection {
  readonly #client: pg.PoolClient
  readonly #options: DatabaseOptions
  /** The query that applies the settings, sent with every `begin`; undefined if the session keeps the settings. */
  readonly #prelude: string | undefined
  #loss: unknown
  #isStale = false
  #timeoutMs: number
  #answeredAtMs = 0

  constructor(client: pg.PoolClient, options: DatabaseOptions) {
    this.#client = client
    this.#options = options
    this.#prelude = transactionPrelude(options)
    this.#timeoutMs = options.statementTimeoutMs
    // Without a listener, an `error` event would end the process.
    client.on('error', error => {
      this.#loss ??= error
    })
    client.on('end', () => {
      this.#loss ??= new Error('the connection ended')
    })
  }

  /** Runs one query. Behind a pooler, a query outside a transaction gets its own transaction, because the settings need a transaction. */
  async executeQuery<R>(query: Query): Promise<QueryResult<R>> {
    if (this.#prelude === undefined || this.#isInTransaction) return await this.#run<R>(query)
    await this.begin()
    try {
      const result = await this.#run<R>(query)
      await this.commit(changes(query))
      return result
    } catch (error) {
      await this.rollback()
      throw error
    }
  }

  // biome-ignore lint/correctness/useYield: Kysely requires the method, but nothing is streamed
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('queries cannot be streamed')
  }

  /** Begins a transaction, by default with READ COMMITTED. Ignores the server's default isolation level. */
  async begin({ isolationLevel = 'read committed', accessMode }: TransactionSettings = {}): Promise<void> {
    const begin = `begin isolation level ${isolationLevel} ${accessMode ?? ''}`.trimEnd()
    await this.#exchange({ text: this.#prelude === undefined ? begin : `${begin}; ${this.#prelude}` }, false)
  }

  /** Commits. Throws `CommitUnknown` if the connection is lost and `mayApply` is true. Throws `Error` if the server rolled back. */
  async commit(mayApply = true): Promise<void> {
    const { command } = await this.#exchange({ text: 'commit' }, mayApply)
    if (command === 'ROLLBACK') throw new Error('a statement failed, so the transaction was rolled back')
  }

  /** Rolls back. If the connection is lost, does nothing, because the server then rolls back by itself. */
  async rollback(): Promise<void> {
    if (this.#loss !== undefined) return
    await this.#exchange({ text: 'rollback' }, false).catch(() => {
      this.#isStale = true
    })
  }

  release(): void {
    this.#timeoutMs = this.#options.statementTimeoutMs
    this.#client.release(this.#isStale || this.#loss !== undefined)
  }

  async #run<R>(query: Query): Promise<QueryResult<R>> {
    const { sql: text, parameters, name, setsTimeoutMs } = query
    const values = parameters as unknown[] // pg does not modify the values
    // Behind a pooler, the next query can reach another session, so statements are not prepared.
    const isNamed = name !== undefined && this.#prelude === undefined
    const sent = values.length === 0 ? { text } : { text, values, ...(isNamed && { name }) }
    const { rows, rowCount } = await this.#exchange<R>(sent, changes(query) && !this.#isInTransaction)
    this.#timeoutMs = setsTimeoutMs ?? this.#timeoutMs
    return { rows, numAffectedRows: BigInt(rowCount ?? 0) }
  }

  /** Sends a query and returns its result. Closes the connection if the server is silent for too long. `mayApply`: the query can commit changes. */
  async #exchange<R>(sent: pg.QueryConfig, mayApply: boolean) {
    // The connection was lost before the query was sent, so nothing was applied.
    if (this.#loss !== undefined) throw new ConnectionLost({ cause: this.#loss })
    const limitMs = this.#timeoutMs === 0 ? 2 ** 31 - 1 : this.#timeoutMs + ANSWER_MARGIN_MS
    // The server runs the queries of a shared connection in sequence, so the time limit of a query starts at the answer to the previous query.
    const cutIfSilent = () => {
      const silentMs = performance.now() - Math.max(sentAtMs, this.#answeredAtMs)
      if (silentMs < limitMs) timer = setTimeout(cutIfSilent, limitMs - silentMs).unref()
      else this.#client.connection.stream.destroy()
    }
    const sentAtMs = performance.now()
    let timer = setTimeout(cutIfSilent, limitMs).unref()
    try {
      const result = await this.#client.query<R & pg.QueryResultRow>(sent)
      // For several statements, pg returns a list of results, although the declared type has no list.
      return Array.isArray(result) ? (result.at(-1) as typeof result) : result
    } catch (error) {
      throw this.#translated(error, mayApply)
    } finally {
      this.#answeredAtMs = performance.now()
      clearTimeout(timer)
    }
  }

  get #isInTransaction(): boolean {
    return /[TE]/.test(this.#client.getTransactionStatus() ?? '')
  }

  /** Returns the error to throw. For a lost connection: `CommitUnknown` if `mayApply`, or else the server's error or `ConnectionLost`. */
  #translated(error: unknown, mayApply: boolean): unknown {
    if (error instanceof pg.DatabaseError) {
      const { kind } = classifyDatabaseError(error)
      this.#isStale ||= kind === 'cached_plan' || kind === 'read_only'
      if (!isLostBy(error)) return error
      this.#loss ??= error
      this.#client.connection.stream.destroy()
    }
    if (this.#loss === undefined) return error // an error of pg itself, for example for a value that cannot be sent
    if (mayApply) return new CommitUnknown({ cause: error })
    return error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })
  }
}

function changes({ writes, sql }: Query): boolean {
  return writes ?? !/^\s*select/i.test(sql)
}
