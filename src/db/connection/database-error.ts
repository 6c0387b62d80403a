import pg from 'pg'
import type { DatabaseServer } from './database-server.js'

/** SQLSTATE codes that are looked for by themselves. Source of all: PostgreSQL documentation, appendix A. */
export const SQLSTATE = {
  foreignKeyViolation: '23503',
  insufficientPrivilege: '42501',
  lockNotAvailable: '55P03',
  queryCanceled: '57014',
} as const

/** The kinds of database errors, with the codes that tell them by themselves. */
const CODES = {
  // The timeouts of an idle transaction, of a transaction, of an idle session.
  connection_lost: ['25P03', '25P04', '57P05'],
  serialization: ['40001', '40P01'],
  lock_timeout: [SQLSTATE.lockNotAvailable],
  statement_timeout: [SQLSTATE.queryCanceled],
  read_only: ['25006'],
  disk_full: ['53100'],
  too_many_connections: ['53300'],
  // By an administrator, by a crash, not up yet, the database dropped.
  shutting_down: ['57P01', '57P02', '57P03', '57P04'],
  // A prepared statement that the server does not know, or knows already: the session is not the one it was made in.
  cached_plan: ['26000', '42P05'],
  no_table: ['42P01'],
  out_of_resources: [],
  constraint: [],
  // A wait of the program itself, and its closed pool.
  waited: [],
  closed: [],
  other: [],
} as const satisfies Record<string, readonly string[]>

export type DatabaseErrorKind = keyof typeof CODES

/** What can go wrong between the service and its database in addition to the errors that the server reports (`DatabaseError` of pg). */
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

/** The connection failed or was lost, and it is certain that nothing of the statement or transaction was applied. */
export class ConnectionLost extends DatabaseFault {
  constructor(options?: ErrorOptions) {
    super('connection_lost', 'the connection to the database was lost; nothing was applied', options)
  }
}

/**
 * The connection was lost when the transaction, or a writing statement outside one, may already have been committed.
 * Also thrown when the server committed but gave up waiting for its synchronous standby. Must never be repeated blindly;
 * `Database.settle` finds out what became of it.
 */
export class CommitUnknown extends DatabaseFault {
  constructor(
    /** The name under which the server lists the connection. */
    readonly session: string,
    /** Where the commit was sent to; undefined when that server was never asked what it is. */
    readonly server: DatabaseServer | undefined,
    options?: ErrorOptions,
  ) {
    super('connection_lost', 'the commit was not confirmed; whether it was applied is unknown', options)
  }
}

/** A wait ended in vain, for a connection or for a turn. Nothing was sent. */
export class WaitedInVain extends DatabaseFault {
  /** `awaited`: what it waited for, in words for the client; `setting`: the one that ended the wait. */
  constructor(
    readonly awaited: string,
    readonly waitMs: number,
    readonly setting: string,
    options?: ErrorOptions,
  ) {
    super('waited', `waited ${waitMs} ms in vain for ${awaited}`, options)
  }
}

/** All connections of the pool are taken and none came free in time. */
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

/** The server accepts connections but no writes: a standby, or a primary being demoted. Nothing was sent. */
export class ServerReadOnly extends DatabaseFault {
  constructor() {
    super('read_only', 'the database server accepts no writes')
  }
}

/** The server is not one that the service can work with: another engine, too old, of another encoding. Says what it is. */
export class ServerUnfit extends DatabaseFault {
  constructor(message: string) {
    super('connection_lost', message)
  }
}

export interface DatabaseErrorClass {
  kind: DatabaseErrorKind
  /** The name of the violated constraint, where the server gave one. */
  constraint?: string
  /**
   * Nothing was applied, and the same transaction may succeed when repeated on another connection. False for timeouts and a
   * full disk: the time for waiting is spent. False for an unknown commit and a closed pool.
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

/** Tells what kind of database error this is, by class and SQLSTATE. Anything else is `other`. Never throws. */
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

/** Of a FATAL these classes say why the connection ends: no room for it, the server stops, it may not write. */
const SAID_AT_AN_END = /^(?:25|53|57)/

function kindByCode({ code = '', routine, severity }: pg.DatabaseError): DatabaseErrorKind {
  // Whatever it is about, as a login that is refused: it ends the connection.
  if (isFatal(severity) && !SAID_AT_AN_END.test(code)) return 'connection_lost'
  const kind = KIND_OF_CODE.get(code)
  if (kind) return kind
  // 0A000 stands for many things; only the plan cache's own routine says "cached plan must not change result type".
  if (code === '0A000' && routine === 'RevalidateCachedQuery') return 'cached_plan'
  if (code.startsWith('23')) return 'constraint'
  if (code.startsWith('08')) return 'connection_lost'
  // Out of memory, descriptors or locks; the operating system failed a read or write.
  if (code.startsWith('53') || code.startsWith('58')) return 'out_of_resources'
  return 'other'
}

/**
 * Whether this may be a pooler speaking in the server's name (08P01, 08006, 58000, 57P01) or the end of the connection (FATAL): what
 * was sent may have been applied all the same.
 */
export function maySpeakForServer({ code = '', severity }: pg.DatabaseError): boolean {
  return isFatal(severity) || /^(?:08|57P0|58000)/.test(code)
}

function isFatal(severity: string | undefined): boolean {
  return severity === 'FATAL' || severity === 'PANIC'
}

/**
 * Whether it is the server that lets nobody in, or cannot be reached: then its words tell an operator what to do. Those
 * about a statement may quote what is stored.
 */
export function isAboutConnecting(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08|28|3D|53|57)/.test(error.code ?? '')
  return kindOf(error) !== 'other'
}

/** The message of the innermost cause of an error: what to tell an operator. It may quote what the server was sent. */
export function rootCause(error: unknown): string {
  if (error instanceof Error && error.cause instanceof Error) return rootCause(error.cause)
  if (error instanceof AggregateError) return error.errors.map(rootCause).join('; ')
  return error instanceof Error ? error.message : String(error)
}
