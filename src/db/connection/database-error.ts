import pg from 'pg'

/** The SQLSTATE codes that the program refers to by name (PostgreSQL documentation, appendix A). */
export const SQLSTATE = { foreignKeyViolation: '23503', insufficientPrivilege: '42501' } as const

/** The kinds of database errors, each with its SQLSTATE codes and classes. FATAL and PANIC errors outside class 53 are `connection_lost`. */
const KINDS = {
  connection_lost: '08 57P 25P03 25P04',
  // A pooler has switched to a session in which the prepared statement is missing or different.
  cached_plan: '26000 42P05',
  read_only: '25006',
  out_of_resources: '53 58',
  disk_full: '53100',
  too_many_connections: '53300',
  serialization: '40001 40P01',
  lock_timeout: '55P03',
  statement_timeout: '57014',
  no_table: '42P01',
  // Errors of the program itself. `waited`: no connection became free in time. `migrating`: another process is still migrating.
  waited: '',
  migrating: '',
  closed: '',
  constraint: '23',
  other: '',
} as const

/** After an error of these kinds, except `CommitUnknown`, nothing was applied, and a retry can succeed. */
const TRANSIENT = ['connection_lost', 'cached_plan', 'read_only', 'too_many_connections', 'serialization']

export type DatabaseErrorKind = keyof typeof KINDS

const KIND_OF_CODE = new Map(
  Object.entries(KINDS).flatMap(([kind, codes]) => codes.split(' ').map(code => [code, kind as DatabaseErrorKind])),
)

/** A database error that does not come from the server. Errors from the server are pg's `DatabaseError`. */
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
    super('connection_lost', 'the connection to the database failed; nothing was applied', options)
  }
}

/**
 * The connection was lost after a commit or an autocommitted write was sent, so the work may have been applied. Call `Database.hasStored` before
 * repeating the work.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the commit was not confirmed, so it is unknown whether the changes are stored', options)
  }
}

/** The service cannot use the database server. The message names the reason and the remedy. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

/** Classifies a database error. Any other error has the kind `other`. A `CommitUnknown` is never transient. Never throws. */
export function classifyDatabaseError(error: unknown) {
  const kind = kindOf(error)
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  return { kind, transient: TRANSIENT.includes(kind) && !(error instanceof CommitUnknown), constraint }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof DatabaseFault) return error.kind
  if (!(error instanceof pg.DatabaseError)) return 'other'
  const { code = '', severity = '', routine } = error
  // Many errors have the code 0A000, but the routine RevalidateCachedQuery reports only "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (/FATAL|PANIC/.test(severity) && !code.startsWith('53')) return 'connection_lost'
  return [code, code.slice(0, 3), code.slice(0, 2)].map(part => KIND_OF_CODE.get(part)).find(kind => kind) ?? 'other'
}

/** True if the connection is unusable after this error. A pooler can send such an error after the statement was applied. */
export function isLostBy(error: pg.DatabaseError): boolean {
  return /FATAL|PANIC/.test(error.severity ?? '') || kindOf(error) === 'connection_lost'
}

/**
 * True if the error concerns the server or the connection, not a statement. The messages of these errors can be shown. Other messages must not be
 * shown, because they can quote stored data.
 */
export function isAboutConnecting(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08|28|3D|53|57)/.test(error.code ?? '')
  return kindOf(error) !== 'other'
}

/** Returns the innermost cause of an error. Show the message only to operators, because it can quote data. */
export function rootOf(error: unknown): Error {
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0])
  if (!(error instanceof Error)) return new Error(String(error))
  return error.cause instanceof Error ? rootOf(error.cause) : error
}
