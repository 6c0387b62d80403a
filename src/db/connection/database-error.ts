import pg from 'pg'
import { TRY_AGAIN, type UnavailableReason } from '../../errors.js'

/** SQLSTATE codes that the program compares by name (PostgreSQL documentation, appendix A). */
export const SQLSTATE = {
  foreignKeyViolation: '23503',
  insufficientPrivilege: '42501',
  lockNotAvailable: '55P03',
  queryCanceled: '57014',
} as const

/** What a kind of database error means. */
export interface Kind {
  /** SQLSTATE codes, or classes of them. */
  codes: readonly string[]
  /** True if nothing was applied, and a retry on another connection may succeed. */
  transient?: boolean
  /** The answer of the request. Without it the error is a fault of this program. */
  reason?: UnavailableReason
  sentence?: string
  /** The setting of the timeout. */
  setting?: string
}

const UNREACHABLE = {
  reason: 'database_unreachable',
  sentence: `The database cannot be reached. ${TRY_AGAIN}`,
} as const

/** The kinds of database errors. A FATAL error is `connection_lost`, unless the server lacks resources (class 53). */
export const KINDS = {
  connection_lost: { codes: ['08', '57P', '25P03', '25P04'], transient: true, ...UNREACHABLE },
  serialization: {
    codes: ['40001', '40P01'],
    transient: true,
    reason: 'overloaded',
    sentence: `Another transaction changed the same at the same moment. ${TRY_AGAIN}`,
  },
  lock_timeout: {
    codes: [SQLSTATE.lockNotAvailable],
    reason: 'overloaded',
    sentence: `This request waited in vain for a lock that another transaction in the database has. ${TRY_AGAIN}`,
    setting: 'LOCK_TIMEOUT_MS',
  },
  statement_timeout: {
    codes: [SQLSTATE.queryCanceled],
    reason: 'overloaded',
    sentence: `The database took too long over this request. ${TRY_AGAIN}`,
    setting: 'STATEMENT_TIMEOUT_MS',
  },
  read_only: {
    codes: ['25006'],
    transient: true,
    reason: 'database_unreachable',
    sentence: `The database accepts no changes at present. ${TRY_AGAIN}`,
  },
  disk_full: {
    codes: ['53100'],
    reason: 'database_full',
    sentence: 'The database has no space left for changes. The operator has to make some.',
  },
  too_many_connections: {
    codes: ['53300'],
    transient: true,
    reason: 'overloaded',
    sentence: `No connection to the database became free in time. ${TRY_AGAIN}`,
  },
  // Out of memory, descriptors or locks, or an I/O error of the operating system.
  out_of_resources: {
    codes: ['53', '58'],
    reason: 'database_unreachable',
    sentence: `The database lacks memory or cannot read or write its files. ${TRY_AGAIN}`,
  },
  // The server does not know a prepared statement, or knows it already: the session is not the one that prepared it.
  cached_plan: { codes: ['26000', '42P05'], transient: true, ...UNREACHABLE },
  no_table: {
    codes: ['42P01'],
    reason: 'schema_behind',
    sentence: 'The database lacks tables that this program needs. The operator has to restore or migrate it.',
  },
  // Thrown by the program: a wait that timed out, and a closed pool.
  waited: { codes: [], reason: 'overloaded' },
  closed: { codes: [], reason: 'draining', sentence: `This process is shutting down. ${TRY_AGAIN}` },
  constraint: { codes: ['23'] },
  other: { codes: [] },
} as const satisfies Record<string, Kind>

export type DatabaseErrorKind = keyof typeof KINDS

const KIND_OF_CODE = new Map(
  Object.entries<Kind>(KINDS).flatMap(([kind, { codes }]) => codes.map(code => [code, kind as DatabaseErrorKind])),
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
 * without `Database.settle`. `isUnreplicated`: the server committed and stopped waiting for its synchronous standby.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(
    options?: ErrorOptions,
    readonly isUnreplicated = false,
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

/** The service cannot use this server: another engine, too old, or another encoding. The message has the reason. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

/** Classifies a database error by class and SQLSTATE; other errors are `other`. An unknown commit is not transient. Never throws. */
export function classifyDatabaseError(error: unknown): {
  kind: DatabaseErrorKind
  transient: boolean
  /** The violated constraint, if the server named one. */
  constraint?: string
} {
  const kind = kindOf(error)
  const { transient = false }: Kind = KINDS[kind]
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  const isKnown = !(error instanceof CommitUnknown)
  return { kind, transient: transient && isKnown, ...(constraint !== undefined && { constraint }) }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof DatabaseFault) return error.kind
  if (!(error instanceof pg.DatabaseError)) return 'other'
  const { code = '', routine } = error
  // 0A000 has many meanings. Only this routine reports "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (isFatal(error) && !code.startsWith('53')) return 'connection_lost'
  return [code, code.slice(0, 3), code.slice(0, 2)].map(part => KIND_OF_CODE.get(part)).find(kind => kind) ?? 'other'
}

/** True if the connection is lost by this error, which a pooler may send in the server's name: the statement may have been applied. */
export function isLostBy(error: pg.DatabaseError): boolean {
  return isFatal(error) || /^(?:08|57P)/.test(error.code ?? '')
}

function isFatal({ severity }: pg.DatabaseError): boolean {
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
