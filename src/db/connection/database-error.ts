import pg from 'pg'

/** The SQLSTATE codes that the program refers to by name (PostgreSQL documentation, appendix A). */
export const SQLSTATE = { foreignKeyViolation: '23503', insufficientPrivilege: '42501' } as const

/** The kinds of database errors with their SQLSTATE codes and classes. A FATAL error is `connection_lost`, unless the server lacks resources (class 53). */
const KINDS = {
  connection_lost: '08 57P 25P03 25P04',
  // The server does not know a prepared statement, or knows one of this name already: a pooler has switched sessions.
  cached_plan: '26000 42P05',
  read_only: '25006',
  out_of_resources: '53 58',
  disk_full: '53100',
  too_many_connections: '53300',
  serialization: '40001 40P01',
  lock_timeout: '55P03',
  statement_timeout: '57014',
  no_table: '42P01',
  // Errors that the program throws itself: no connection became free in time, another process migrates for too long, the pool is closed.
  waited: '',
  migrating: '',
  closed: '',
  constraint: '23',
  other: '',
} as const

/** After an error of these kinds nothing was applied, and a retry on another connection may succeed. */
const TRANSIENT = ['connection_lost', 'cached_plan', 'read_only', 'too_many_connections', 'serialization']

export type DatabaseErrorKind = keyof typeof KINDS

const KIND_OF_CODE = new Map(
  Object.entries(KINDS).flatMap(([kind, codes]) => codes.split(' ').map(code => [code, kind as DatabaseErrorKind])),
)

/** A database error that the server did not report. Errors that it reports are pg's `DatabaseError`. */
export class DatabaseFault extends Error {
  constructor(
    readonly kind: DatabaseErrorKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
    this.name = new.target.name
  }
}

/** The connection failed or was lost, and nothing was applied. */
export class ConnectionLost extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the connection to the database was lost; nothing was applied', options)
  }
}

/**
 * The connection was lost after a commit or an autocommitted write was sent, so it may have been applied. Call `Database.hasStored` before
 * repeating the work.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the commit was not confirmed; whether it was applied is unknown', options)
  }
}

/** The service cannot use this server. The message names the reason and the remedy. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

/** Classifies a database error by its SQLSTATE; other errors are `other`. A `CommitUnknown` does not count as transient. Never throws. */
export function classifyDatabaseError(error: unknown) {
  const kind = kindOf(error)
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  return { kind, transient: TRANSIENT.includes(kind) && !(error instanceof CommitUnknown), constraint }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof DatabaseFault) return error.kind
  if (!(error instanceof pg.DatabaseError)) return 'other'
  const { code = '', severity = '', routine } = error
  // 0A000 covers many errors. Only this routine reports "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (/FATAL|PANIC/.test(severity) && !code.startsWith('53')) return 'connection_lost'
  return [code, code.slice(0, 3), code.slice(0, 2)].map(part => KIND_OF_CODE.get(part)).find(kind => kind) ?? 'other'
}

/** True if this error means that the connection is lost. A pooler may send it after the statement was applied. */
export function isLostBy(error: pg.DatabaseError): boolean {
  return /FATAL|PANIC/.test(error.severity ?? '') || kindOf(error) === 'connection_lost'
}

/** True if the server is unreachable or refuses the connection. Messages of such errors are safe to show; messages about statements may quote stored data. */
export function isAboutConnecting(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08|28|3D|53|57)/.test(error.code ?? '')
  return kindOf(error) !== 'other'
}

/** The innermost cause of an error. Its message is for operators only, because it may quote data sent to the server. */
export function rootOf(error: unknown): Error {
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0])
  if (!(error instanceof Error)) return new Error(String(error))
  return error.cause instanceof Error ? rootOf(error.cause) : error
}
