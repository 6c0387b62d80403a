import pg from 'pg'
import { TRY_AGAIN, type UnavailableReason } from '../../errors.js'

/** SQLSTATE codes that the program compares by name (PostgreSQL documentation, appendix A). */
export const SQLSTATE = { foreignKeyViolation: '23503', insufficientPrivilege: '42501' } as const

/** SQLSTATE codes or classes; the answer of the request, without which the error is a fault of this program. */
export type Kind = readonly [
  codes: string,
  reason?: UnavailableReason,
  sentence?: string,
  /** Nothing was applied, and a retry on another connection may succeed. */
  transient?: 'transient',
]

const NOT_REACHED = `The database cannot be reached. ${TRY_AGAIN}`

/** The kinds of database errors. A FATAL error is `connection_lost`, unless the server lacks resources (class 53). */
export const KINDS = {
  connection_lost: ['08 57P 25P03 25P04', 'database_unreachable', NOT_REACHED, 'transient'],
  // The server does not know a prepared statement, or knows it already: the session is not the one that prepared it.
  cached_plan: ['26000 42P05', 'database_unreachable', NOT_REACHED, 'transient'],
  read_only: ['25006', 'database_unreachable', `The database accepts no changes at present. ${TRY_AGAIN}`, 'transient'],
  out_of_resources: ['53 58', 'database_unreachable', `The database lacks memory or has a faulty disk. ${TRY_AGAIN}`],
  disk_full: ['53100', 'database_full', 'The database has no space left for changes. The operator has to make some.'],
  too_many_connections: ['53300', 'overloaded', `The database has no free connection. ${TRY_AGAIN}`, 'transient'],
  serialization: ['40001 40P01', 'overloaded', `Another transaction changed the same rows. ${TRY_AGAIN}`, 'transient'],
  lock_timeout: ['55P03', 'overloaded', `Another transaction held a lock for too long. ${TRY_AGAIN}`],
  statement_timeout: ['57014', 'overloaded', `The database took too long. ${TRY_AGAIN}`],
  no_table: ['42P01', 'schema_behind', 'The database lacks tables. The operator has to restore or migrate it.'],
  // Thrown by the program: a wait that timed out, and a closed pool.
  waited: ['', 'overloaded'],
  closed: ['', 'draining', `This process is shutting down. ${TRY_AGAIN}`],
  constraint: ['23'],
  other: [''],
} as const satisfies Record<string, Kind>

export type DatabaseErrorKind = keyof typeof KINDS

const KIND_OF_CODE = new Map(
  Object.entries(KINDS).flatMap(([kind, [codes]]) => codes.split(' ').map(code => [code, kind as DatabaseErrorKind])),
)

/** An error between the service and its database that the server does not report (`DatabaseError` of pg). */
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

/** The connection failed or was lost, and certainly nothing was applied. */
export class ConnectionLost extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the connection to the database was lost; nothing was applied', options)
  }
}

/**
 * The connection was lost after a commit, or a write outside a transaction, was sent: it may have been applied. Do not repeat the work
 * without `Database.settle`.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the commit was not confirmed; whether it was applied is unknown', options)
  }
}

/** Waiting for a connection or a turn timed out. Nothing was sent. */
export class WaitedInVain extends DatabaseFault {
  /** `awaited`: what it waited for, in words for the client. */
  constructor(
    readonly awaited: string,
    readonly waitMs: number,
    options?: ErrorOptions,
  ) {
    super('waited', `waited ${waitMs} ms for ${awaited}, without success`, options)
  }
}

/** The service cannot use this server. The message has the reason and the remedy. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

/** Classifies a database error by class and SQLSTATE; other errors are `other`. An unknown commit is not transient. Never throws. */
export function classifyDatabaseError(error: unknown) {
  const kind = kindOf(error)
  const [, , , transient]: Kind = KINDS[kind]
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  return { kind, transient: transient === 'transient' && !(error instanceof CommitUnknown), constraint }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof DatabaseFault) return error.kind
  if (!(error instanceof pg.DatabaseError)) return 'other'
  const { code = '', severity = '', routine } = error
  // 0A000 has many meanings. Only this routine reports "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (/FATAL|PANIC/.test(severity) && !code.startsWith('53')) return 'connection_lost'
  return [code, code.slice(0, 3), code.slice(0, 2)].map(part => KIND_OF_CODE.get(part)).find(kind => kind) ?? 'other'
}

/** True if the connection is lost by this error, which a pooler may send in the server's name: the statement may have been applied. */
export function isLostBy(error: pg.DatabaseError): boolean {
  return /FATAL|PANIC/.test(error.severity ?? '') || kindOf(error) === 'connection_lost'
}

/** True if the server is unreachable or refuses the connection. Such messages help an operator; messages about a statement may quote stored data. */
export function isAboutConnecting(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08|28|3D|53|57)/.test(error.code ?? '')
  return kindOf(error) !== 'other'
}

/** The innermost cause of an error. Its message, for an operator, may quote data that was sent to the server. */
export function rootOf(error: unknown): Error {
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0])
  if (!(error instanceof Error)) return new Error(String(error))
  return error.cause instanceof Error ? rootOf(error.cause) : error
}

export function rootCause(error: unknown): string {
  return rootOf(error).message
}
