import pg from 'pg'
import type { DatabaseServer } from './database-server.js'

/** SQLSTATE codes that the program compares by name (PostgreSQL documentation, appendix A). */
export const SQLSTATE = {
  foreignKeyViolation: '23503',
  insufficientPrivilege: '42501',
  lockNotAvailable: '55P03',
  queryCanceled: '57014',
} as const

/** The kinds of database errors, with the codes that identify them. */
const CODES = {
  // Timeouts of an idle transaction, of a transaction, and of an idle session.
  connection_lost: ['25P03', '25P04', '57P05'],
  serialization: ['40001', '40P01'],
  lock_timeout: [SQLSTATE.lockNotAvailable],
  statement_timeout: [SQLSTATE.queryCanceled],
  read_only: ['25006'],
  disk_full: ['53100'],
  too_many_connections: ['53300'],
  // Ended by an administrator, after a crash, during a start, or because the database was dropped.
  shutting_down: ['57P01', '57P02', '57P03', '57P04'],
  // The server does not know a prepared statement, or knows it already: the session is not the one that prepared it.
  cached_plan: ['26000', '42P05'],
  no_table: ['42P01'],
  out_of_resources: [],
  constraint: [],
  // Thrown by the program: a wait that timed out, and a closed pool.
  waited: [],
  closed: [],
  other: [],
} as const satisfies Record<string, readonly string[]>

export type DatabaseErrorKind = keyof typeof CODES

/** Errors between the service and its database, in addition to those that the server reports (`DatabaseError` of pg). */
export abstract class DatabaseFault extends Error {
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
 * The connection was lost after a commit, or a write outside a transaction, may have been applied. Also thrown if the server committed but
 * stopped waiting for its synchronous standby. Do not repeat the work without `Database.settle`, which finds out the outcome.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(
    /** The `application_name` of the lost connection. */
    readonly session: string,
    /** The server of the lost connection; undefined if it was not identified. */
    readonly server: DatabaseServer | undefined,
    options?: ErrorOptions,
  ) {
    super('connection_lost', 'the commit was not confirmed; whether it was applied is unknown', options)
  }
}

/** Waiting for a connection or a turn timed out. Nothing was sent. */
export class WaitedInVain extends DatabaseFault {
  /** `awaited`: what it waited for, in words for the client. `setting`: the setting with the timeout. */
  constructor(
    readonly awaited: string,
    readonly waitMs: number,
    readonly setting: string,
    options?: ErrorOptions,
  ) {
    super('waited', `waited ${waitMs} ms in vain for ${awaited}`, options)
  }
}

/** No connection of the pool became free in time. */
export class PoolExhausted extends WaitedInVain {
  constructor(waitMs: number, options?: ErrorOptions) {
    super('a connection to the database', waitMs, 'DATABASE_CONNECT_TIMEOUT_MS', options)
  }
}

/** The pool is closed or closing. Nothing was sent. */
export class DatabaseClosed extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('closed', 'the connections to the database are closed', options)
  }
}

/** The server accepts no writes: a standby, or a primary that is being demoted. Nothing was sent. */
export class ServerReadOnly extends DatabaseFault {
  constructor() {
    super('read_only', 'the database server accepts no writes')
  }
}

/** The service cannot use this server: another engine, too old, or another encoding. The message has the reason. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

export interface DatabaseErrorClass {
  kind: DatabaseErrorKind
  /** The violated constraint, if the server named one. */
  constraint?: string
  /**
   * True if nothing was applied and a retry on another connection may succeed. False for an unknown commit and a closed pool. Also false
   * for timeouts and a full disk, because the client has waited long enough.
   */
  transient: boolean
}

const KIND_OF_CODE = new Map<string, DatabaseErrorKind>(
  Object.entries(CODES).flatMap(([kind, codes]) => codes.map(code => [code, kind as DatabaseErrorKind])),
)

const TRANSIENT: ReadonlySet<DatabaseErrorKind> = new Set([
  'connection_lost',
  'serialization',
  'read_only',
  'too_many_connections',
  'shutting_down',
  'cached_plan',
])

/** Classifies a database error by class and SQLSTATE; other errors are `other`. Never throws. */
export function classifyDatabaseError(error: unknown): DatabaseErrorClass {
  const kind = kindOf(error)
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  const transient = TRANSIENT.has(kind) && !(error instanceof CommitUnknown)
  return { kind, transient, ...(constraint !== undefined && { constraint }) }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof DatabaseFault) return error.kind
  return error instanceof pg.DatabaseError ? kindByCode(error) : 'other'
}

/** Codes that give the reason why a FATAL error ends the connection: no resources, or the server stops. */
const SAID_AT_AN_END = /^(?:25|53|57)/

function kindByCode({ code = '', routine, severity }: pg.DatabaseError): DatabaseErrorKind {
  // Any other FATAL error, such as a refused login, ends the connection.
  if (isFatal(severity) && !SAID_AT_AN_END.test(code)) return 'connection_lost'
  const kind = KIND_OF_CODE.get(code)
  if (kind) return kind
  // 0A000 has many meanings. Only this routine reports "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (code.startsWith('23')) return 'constraint'
  if (code.startsWith('08')) return 'connection_lost'
  // Out of memory, descriptors or locks, or an I/O error of the operating system.
  if (code.startsWith('53') || code.startsWith('58')) return 'out_of_resources'
  return 'other'
}

/**
 * True if a pooler may have sent the error in the server's name (08P01, 08006, 58000, 57P01), or if it ends the connection (FATAL). The
 * statement may have been applied nevertheless.
 */
export function maySpeakForServer({ code = '', severity }: pg.DatabaseError): boolean {
  return isFatal(severity) || /^(?:08|57P0|58000)/.test(code)
}

function isFatal(severity: string | undefined): boolean {
  return severity === 'FATAL' || severity === 'PANIC'
}

/** True if the server is unreachable or refuses the connection. Such messages help an operator; messages about a statement may quote stored data. */
export function isAboutConnecting(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08|28|3D|53|57)/.test(error.code ?? '')
  return kindOf(error) !== 'other'
}

/** The message of the innermost cause, for an operator. It may quote data that was sent to the server. */
export function rootCause(error: unknown): string {
  if (error instanceof Error && error.cause instanceof Error) return rootCause(error.cause)
  if (error instanceof AggregateError) return error.errors.map(rootCause).join('; ')
  return error instanceof Error ? error.message : String(error)
}
