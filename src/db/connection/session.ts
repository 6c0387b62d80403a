import { createHash } from 'node:crypto'
import pg from 'pg'
import { CommitUnknown, ConnectionLost } from './database-error.js'
import type { DatabaseServer } from './database-server.js'
import { type Descriptions, Pipeline, prepareValue, type StatementResult, type WireStatement } from './pipeline.js'
import { classifyDatabaseError, type DatabaseErrorKind, maySpeakForServer } from './sqlstate.js'

/** SQL text and its values by position, as a compiled Kysely query holds them. */
export interface BoundStatement {
  readonly sql: string
  readonly parameters: readonly unknown[]
}

/** What was sent in one round trip, for metrics and slow-statement logs. Never holds a value. */
export interface Exchange {
  texts: readonly string[]
  /** From sending to the last answer. */
  durationMs: number
  ok: boolean
  /** Whether it shows that changes are stored, or that they cannot be; undefined where it shows neither. */
  stores: boolean | undefined
}

/** What all sessions of a pool share. */
export interface SessionSettings {
  /** Undefined: nothing is prepared by name. */
  names: PreparedNames | undefined
  /** The `statement_timeout` of a new connection. */
  statementTimeoutMs: number
  /** A server that has not answered so long after the `statement_timeout` is taken for lost, and its connection is cut. */
  responseMarginMs: number
  /** Sent behind every `begin` of a transaction. */
  transactionPrelude: BoundStatement | undefined
  onExchange(exchange: Exchange): void
  /** Called when what this session met concerns all connections of the pool that are open now. */
  onStale(): void
}

const IS_COMMIT = /^\s*(?:commit|end)\b/i
const IS_BEGIN = /^\s*(?:begin|start\s+transaction)\b/i
/** What changes the time that the server gives to later statements: by a whole number of milliseconds, or of seconds with an `s`. */
const SETS_TIMEOUT =
  /^\s*(?:set\s+(local\s+|session\s+)?statement_timeout\s*(?:=|to)\s*'?(\d+)(s?)|reset\s+statement_timeout)/i
const IS_ROLLBACK = /^\s*rollback\s*(?:;\s*)?$/i
const IS_QUERY = /^\s*(?:select|values|with)\b/i
// Of the functions that write, the service calls this one in a SELECT.
const IS_READ =
  /^\s*(?:select(?![\s\S]*\bpg_logical_emit_message\b)|begin|start|set|show|explain|values|rollback|with(?![\s\S]*\b(?:insert|update|delete|merge)\b))\b/i

export const BEGIN: BoundStatement = { sql: 'begin', parameters: [] }
export const COMMIT: BoundStatement = { sql: 'commit', parameters: [] }
export const ROLLBACK: BoundStatement = { sql: 'rollback', parameters: [] }

/**
 * The routine of the server that warns when somebody cancelled its wait for a synchronous standby: COMMIT then succeeds
 * here, but a failover would lose it. (No statement timeout runs during a commit: the response timeout bounds it.)
 */
const SYNC_REPLICATION_WAIT = 'SyncRepWaitForLSN'

/**
 * One connection of the pool while it is open. Runs single statements and pipelines, prepares them by name, bounds the time
 * of each, and turns the loss of the connection into `ConnectionLost` or `CommitUnknown`.
 */
export class Session {
  readonly #client: pg.Client
  readonly #settings: SessionSettings
  readonly #descriptions: Descriptions = new Map()
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

  /** The server's process id, as the server or a pooler before it says; Kysely reads it under this name to cancel queries. */
  get processID(): number | undefined {
    // Set by pg from the server's BackendKeyData; missing in its declarations.
    return (this.#client as pg.Client & { processID?: number }).processID
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

  /** Runs one statement in a round trip of its own. */
  async query(sql: string, parameters: readonly unknown[] = []): Promise<StatementResult> {
    // The server rolls back what it loses. Kysely sends a rollback after every failure and would report this one instead.
    if (this.#loss !== undefined && IS_ROLLBACK.test(sql)) return { command: 'ROLLBACK', rowCount: null, rows: [] }
    this.#assertConnected()
    if (this.#needsTransaction(sql, parameters)) return await this.#queryInTransaction({ sql, parameters })
    // Without parameters the text may hold several statements, as migrations do: those cannot be prepared.
    if (parameters.length === 0) return await this.#exchange([sql], () => this.#simple(sql))
    const wire = [this.#wireStatement({ sql, parameters })]
    return lastResult(await this.#exchange([sql], () => this.#submit(wire)))
  }

  /** Runs several statements in one round trip. When one fails, none of those behind it runs. */
  async pipeline(asked: readonly BoundStatement[]): Promise<StatementResult[]> {
    this.#assertConnected()
    const prelude = this.#settings.transactionPrelude
    const beginAt = asked.findIndex(({ sql }) => IS_BEGIN.test(sql))
    const begin = asked[beginAt]
    if (prelude === undefined || begin === undefined) return await this.#pipeline(asked)
    const results = await this.#pipeline(
      asked.toSpliced(beginAt, 1, { ...begin, sql: committedOnly(begin.sql) }, prelude),
    )
    return results.toSpliced(beginAt + 1, 1)
  }

  async #pipeline(statements: readonly BoundStatement[]): Promise<StatementResult[]> {
    // Values are converted before anything is sent: one that cannot be is the caller's error and leaves no half of a pipeline.
    const wire = statements.map(statement => this.#wireStatement(statement))
    const texts = statements.map(({ sql }) => sql)
    try {
      return await this.#exchange(texts, () => this.#submit(wire))
    } catch (error) {
      await this.#leaveTransaction(texts)
      throw error
    }
  }

  /** Gives the connection back to the pool, or closes it when it is lost, stale or to be destroyed. */
  release(destroy = false): void {
    // The pool adds this method when it hands the client out.
    const { release } = this.#client as pg.Client & Pick<pg.PoolClient, 'release'>
    release.call(this.#client, destroy || !this.isUsable)
  }

  /** What is not sent cannot have been applied, be it a commit. */
  #assertConnected(): void {
    if (this.#loss !== undefined) throw new ConnectionLost({ cause: this.#loss })
  }

  /**
   * Where settings live no longer than a transaction, a single statement gets one, so that they hold for it too. Without
   * parameters it may be a list of statements, or one that cannot run in a transaction: unless it is a query, it stays as
   * it is.
   */
  #needsTransaction(sql: string, parameters: readonly unknown[]): boolean {
    if (this.#settings.transactionPrelude === undefined || this.#isInTransaction) return false
    return parameters.length > 0 || (IS_QUERY.test(sql) && !sql.includes(';'))
  }

  async #queryInTransaction(statement: BoundStatement): Promise<StatementResult> {
    const [, result] = await this.pipeline([BEGIN, statement, COMMIT])
    return lastResult(result ?? [])
  }

  async #simple(sql: string): Promise<StatementResult> {
    const prelude = IS_BEGIN.test(sql) ? this.#settings.transactionPrelude : undefined
    const text = prelude === undefined ? sql : `${committedOnly(sql)}; ${prelude.sql}`
    return lastResult(await this.#client.query(text))
  }

  /** Nothing is prepared by name through a pooler: which server gets the next statement, only the pooler knows. */
  #wireStatement({ sql, parameters }: BoundStatement): WireStatement {
    const names = this.server?.isDirect ? this.#settings.names : undefined
    return { sql, name: names?.nameOf(sql), values: parameters.map(prepareValue) }
  }

  #submit(wire: readonly WireStatement[]): Promise<StatementResult[]> {
    return new Promise((resolve, reject) => {
      this.#client.query(new Pipeline(wire, this.#descriptions, resolve, reject))
    })
  }

  /** Runs what is sent in one round trip, bounds its time, reports it, and says in its error what may have become of it. */
  async #exchange<T>(texts: readonly string[], run: () => Promise<T>): Promise<T> {
    const start = performance.now()
    const mayApply = mayBeApplied(texts, this.#isInTransaction)
    const timer = this.#responseTimer()
    let ok = false
    let stores: boolean | undefined
    try {
      const result = await run()
      if (this.#isUnreplicated && mayApply) {
        this.markStale()
        throw new CommitUnknown(this.name, this.server)
      }
      ok = true
      if (texts.some(isWrite)) stores = true
      return result
    } catch (error) {
      if (NOT_STORED.has(classifyDatabaseError(error).kind)) stores = false
      throw await this.#translated(error, mayApply)
    } finally {
      clearTimeout(timer)
      this.#noteTimeout(texts, ok)
      this.#isUnreplicated = false
      this.#settings.onExchange({ texts, durationMs: performance.now() - start, ok, stores })
    }
  }

  /** Cuts the connection when the server is silent for longer than it may work; it then ends the statement by itself. */
  #responseTimer(): NodeJS.Timeout | undefined {
    const limitMs = this.#localTimeoutMs ?? this.#statementTimeoutMs
    if (limitMs === 0) return undefined
    return setTimeout(() => this.cut(), limitMs + this.#settings.responseMarginMs).unref()
  }

  /** The client waits for as long as the server was told to work. */
  #noteTimeout(texts: readonly string[], ok: boolean): void {
    for (const text of ok ? texts : []) {
      const [found, scope, number, seconds] = SETS_TIMEOUT.exec(text) ?? []
      if (found === undefined) continue
      const ms = number === undefined ? this.#settings.statementTimeoutMs : Number(number) * (seconds ? 1_000 : 1)
      if (/local/i.test(scope ?? '')) this.#localTimeoutMs = ms
      else this.#statementTimeoutMs = ms
    }
    if (!this.#isInTransaction) this.#localTimeoutMs = undefined
  }

  /** After a failed pipeline the transaction it began is still open, and the connection not yet fit for others. */
  async #leaveTransaction(texts: readonly string[]): Promise<void> {
    if (this.#loss !== undefined || !texts.some(sql => IS_BEGIN.test(sql))) return
    try {
      await this.#exchange(['rollback'], () => this.#client.query('rollback'))
    } catch {
      this.markStale()
    }
  }

  get #isInTransaction(): boolean {
    const status = this.#client.getTransactionStatus()
    return status === 'T' || status === 'E'
  }

  /** What to tell of an error, when what was sent may have been applied unless the server itself refused it. */
  async #translated(error: unknown, mayApply: boolean): Promise<unknown> {
    const isServers = error instanceof pg.DatabaseError
    if (isServers && !maySpeakForServer(error)) return this.#refused(error)
    // The server may be lost: a rollback behind the error then finds the connection closed.
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

/** A plain `begin` as one at READ COMMITTED, whatever the default of the server is; another says itself what it wants. */
function committedOnly(begin: string): string {
  return BEGIN.sql === begin ? 'begin isolation level read committed' : begin
}

/**
 * Whether what was sent may be applied without a word of the server: a commit, or what writes outside a transaction. A
 * pipeline's commit has been sent with the rest.
 */
function mayBeApplied(texts: readonly string[], isInTransaction: boolean): boolean {
  const commits = texts.some(sql => IS_COMMIT.test(sql))
  if (isInTransaction) return commits
  if (texts.every(sql => IS_READ.test(sql) || IS_COMMIT.test(sql))) return false
  return commits || !texts.some(sql => IS_BEGIN.test(sql))
}

/** What says that no change is stored now, whatever it is. */
const NOT_STORED: ReadonlySet<DatabaseErrorKind> = new Set(['disk_full', 'read_only'])

function isWrite(sql: string): boolean {
  return !IS_READ.test(sql) && !IS_COMMIT.test(sql)
}

/** pg answers a text of several statements with a list of results. */
function lastResult(result: StatementResult | StatementResult[]): StatementResult {
  const last = Array.isArray(result) ? result.at(-1) : result
  return last ?? { command: '', rowCount: null, rows: [] }
}

const NAMES_MAX = 200

/**
 * The names under which texts are prepared on each connection: hashes, so that they are the same on all. So many texts get
 * one at most, as each costs memory on every connection of the server.
 */
export class PreparedNames {
  readonly #names = new Map<string, string>()

  /** The name of this text; undefined when it is to be sent unnamed. */
  nameOf(sql: string): string | undefined {
    const known = this.#names.get(sql)
    if (known !== undefined || this.#names.size >= NAMES_MAX) return known
    const name = `q_${createHash('sha256').update(sql).digest('hex').slice(0, 24)}`
    this.#names.set(sql, name)
    return name
  }
}
