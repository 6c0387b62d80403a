import type { CompiledQuery, DatabaseConnection, QueryResult, TransactionSettings } from 'kysely'
import pg from 'pg'
import { CommitUnknown, ConnectionLost, classifyDatabaseError, isLostBy } from './database-error.js'
import { type DatabaseOptions, transactionPrelude } from './options.js'

export interface Query<R = unknown> extends CompiledQuery<R> {
  /** True if the query changes data. Default: true unless it begins with `select`. */
  readonly writes?: boolean
  readonly name?: string
  /** Set if the query changes the `statement_timeout` of its transaction to this value; 0 means no limit. */
  readonly setsTimeoutMs?: number
}

/** How long after the statement timeout a silent server counts as lost. */
const ANSWER_MARGIN_MS = 2_000

/** A pooled connection as Kysely uses it. It limits the time of queries, and reports its loss as `ConnectionLost` or `CommitUnknown`. */
export class Session implements DatabaseConnection {
  readonly #client: pg.PoolClient
  readonly #options: DatabaseOptions
  /** Sent with every `begin` if the session cannot keep settings. */
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
    // Without a listener, an `error` event would end the process when the server dies.
    client.on('error', error => {
      this.#loss ??= error
    })
    client.on('end', () => {
      this.#loss ??= new Error('the connection ended')
    })
  }

  /** Runs one query. If the session cannot keep settings, a query outside a transaction gets its own transaction. */
  async executeQuery<R>(query: Query): Promise<QueryResult<R>> {
    if (this.#prelude === undefined || this.#isInTransaction) return await this.#run<R>(query)
    await this.begin()
    try {
      const result = await this.#run<R>(query)
      await (changes(query) ? this.commit() : this.rollback())
      return result
    } catch (error) {
      await this.rollback()
      throw error
    }
  }

  // biome-ignore lint/correctness/useYield: Kysely requires the method, but nothing is streamed
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('no query is streamed')
  }

  /** Begins a transaction. The isolation level defaults to READ COMMITTED, not to the server's default. */
  async begin({ isolationLevel = 'read committed', accessMode }: TransactionSettings = {}): Promise<void> {
    const begin = `begin isolation level ${isolationLevel} ${accessMode ?? ''}`.trimEnd()
    await this.#exchange({ text: this.#prelude === undefined ? begin : `${begin}; ${this.#prelude}` }, false)
  }

  /** Commits. Throws `CommitUnknown` if the connection is lost meanwhile, and an error if the server rolled back. */
  async commit(): Promise<void> {
    const { command } = await this.#exchange({ text: 'commit' }, true)
    if (command === 'ROLLBACK') throw new Error('a statement of the transaction had failed: it was rolled back')
  }

  /** Rolls back. If the connection is lost, the server does so itself. */
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
    const values = parameters as unknown[] // pg does not modify them
    // Behind a pooler, the next statement may reach another server session, so nothing is prepared.
    const isNamed = name !== undefined && this.#prelude === undefined
    const sent = values.length === 0 ? { text } : { text, values, ...(isNamed && { name }) }
    const { rows, rowCount } = await this.#exchange<R>(sent, changes(query) && !this.#isInTransaction)
    this.#timeoutMs = setsTimeoutMs ?? this.#timeoutMs
    return { rows, numAffectedRows: BigInt(rowCount ?? 0) }
  }

  /** Sends a query in one round trip, and closes the connection if the server is silent too long. `mayApply`: the query commits. */
  async #exchange<R>(sent: pg.QueryConfig, mayApply: boolean) {
    // The connection was lost before sending, so nothing was applied.
    if (this.#loss !== undefined) throw new ConnectionLost({ cause: this.#loss })
    const limitMs = this.#timeoutMs === 0 ? 2 ** 31 - 1 : this.#timeoutMs + ANSWER_MARGIN_MS
    // The server works on queries that share this connection one after another.
    const cutIfSilent = () => {
      const silentMs = performance.now() - Math.max(sentAtMs, this.#answeredAtMs)
      if (silentMs < limitMs) timer = setTimeout(cutIfSilent, limitMs - silentMs).unref()
      else this.#client.connection.stream.destroy()
    }
    const sentAtMs = performance.now()
    let timer = setTimeout(cutIfSilent, limitMs).unref()
    try {
      const result = await this.#client.query<R & pg.QueryResultRow>(sent)
      // For several statements, pg returns a non-empty list. Its type does not declare this.
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

  /** Translates an error. The statement may have been applied unless the server itself refused it. */
  #translated(error: unknown, mayApply: boolean): unknown {
    if (error instanceof pg.DatabaseError) {
      const { kind } = classifyDatabaseError(error)
      this.#isStale ||= kind === 'cached_plan' || kind === 'read_only'
      if (!isLostBy(error)) return error
      this.#loss ??= error
      this.#client.connection.stream.destroy()
    }
    if (this.#loss === undefined) return error // from pg itself, for example for a value that cannot be sent
    if (mayApply) return new CommitUnknown({ cause: error })
    return error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })
  }
}

function changes({ writes, sql }: Query): boolean {
  return writes ?? !/^\s*select/i.test(sql)
}
