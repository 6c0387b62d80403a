import pg from 'pg'
import {
  CommitUnknown,
  ConnectionLost,
  DatabaseClosed,
  PoolExhausted,
  QueueExhausted,
  ServerReadOnly,
  ServerUnfit,
} from './database-error.js'

/** SQLSTATE codes that are looked for by themselves. Source of all: PostgreSQL documentation, appendix A. */
export const SQLSTATE = {
  foreignKeyViolation: '23503',
  insufficientPrivilege: '42501',
  lockNotAvailable: '55P03',
  queryCanceled: '57014',
} as const

/** The kinds of database errors, with the codes that say so by themselves. */
const CODES = {
  // The timeouts of an idle transaction, of a transaction, of an idle session.
  connection_lost: ['25P03', '25P04', '57P05'],
  serialization: ['40001', '40P01'],
  lock_timeout: [SQLSTATE.lockNotAvailable],
  statement_timeout: [SQLSTATE.queryCanceled],
  read_only: ['25006'],
  disk_full: ['53100'],
  out_of_resources: [],
  too_many_connections: ['53300'],
  // By an administrator, by a crash, not up yet, the database dropped.
  shutting_down: ['57P01', '57P02', '57P03', '57P04'],
  constraint: [],
  // A prepared statement that the server does not know, or knows already: the session is not the one it was made in.
  cached_plan: ['26000', '42P05'],
  no_table: ['42P01'],
  other: [],
} as const satisfies Record<string, readonly string[]>

export type DatabaseErrorKind = keyof typeof CODES

export interface DatabaseErrorClass {
  kind: DatabaseErrorKind
  /** The name of the violated constraint, where the server gave one. */
  constraint?: string
  /**
   * Nothing was applied, and the same transaction may succeed when repeated on another connection. False for timeouts and a
   * full disk: the time for waiting is spent. False for an unknown commit.
   */
  transient: boolean
}

const KINDS = Object.keys(CODES) as DatabaseErrorKind[] // the keys of this very record

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
  if (error instanceof CommitUnknown) return { kind: 'connection_lost', transient: false }
  const kind = kindOf(error)
  const constraint = error instanceof pg.DatabaseError ? error.constraint : undefined
  return { kind, transient: TRANSIENT.has(kind), ...(constraint !== undefined && { constraint }) }
}

function kindOf(error: unknown): DatabaseErrorKind {
  if (error instanceof pg.DatabaseError) return kindByCode(error)
  if (error instanceof ConnectionLost) return 'connection_lost'
  if (error instanceof PoolExhausted) return 'too_many_connections'
  if (error instanceof QueueExhausted) return 'lock_timeout'
  if (error instanceof DatabaseClosed) return 'shutting_down'
  if (error instanceof ServerReadOnly) return 'read_only'
  if (error instanceof ServerUnfit) return 'connection_lost'
  return 'other'
}

/** Of a FATAL these classes say why the connection ends: no room for it, the server stops, it may not write. */
const SAID_AT_AN_END = /^(?:25|53|57)/

function kindByCode({ code = '', routine, severity }: pg.DatabaseError): DatabaseErrorKind {
  // Whatever it is about, as a login that is refused: it ends the connection.
  if (isFatal(severity) && !SAID_AT_AN_END.test(code)) return 'connection_lost'
  const kind = KINDS.find(kind => CODES[kind].some(known => known === code))
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
