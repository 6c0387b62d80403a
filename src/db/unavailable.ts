import { TRY_AGAIN, Unavailable, type UnavailableReason } from '../errors.js'
import { CommitUnknown, DatabaseClosed, PoolExhausted, QueueExhausted } from './connection/database-error.js'
import { classifyDatabaseError, type DatabaseErrorKind } from './connection/sqlstate.js'

/** By kind, the reason that the answer names, and its sentence. */
const UNAVAILABLE: Partial<Record<DatabaseErrorKind, readonly [UnavailableReason, sentence: string]>> = {
  no_table: [
    'schema_behind',
    'The database lacks tables that this program needs. The operator has to restore or migrate it.',
  ],
  read_only: ['database_unreachable', `The database accepts no changes at present. ${TRY_AGAIN}`],
  disk_full: ['database_full', 'The database has no space left for changes. The operator has to make some.'],
  out_of_resources: [
    'database_unreachable',
    `The database lacks memory or cannot read or write its files. ${TRY_AGAIN}`,
  ],
  lock_timeout: [
    'overloaded',
    `This request waited in vain for a lock that another transaction in the database has. ${TRY_AGAIN}`,
  ],
  serialization: ['overloaded', `Another transaction changed the same at the same moment. ${TRY_AGAIN}`],
  statement_timeout: ['overloaded', `The database took too long over this request. ${TRY_AGAIN}`],
  too_many_connections: ['overloaded', `No connection to the database became free in time. ${TRY_AGAIN}`],
}

/**
 * A failure of the database as what the client may conclude from it, never in the database's own words; undefined for what
 * is not a failure of the database. The one place that says of a failed statement whether its transaction was applied:
 * every error but `CommitUnknown` means that it was not. After a first write, a later error must not be passed through.
 */
export function unavailableFor(error: unknown): Unavailable | undefined {
  const { kind } = classifyDatabaseError(error)
  const because = { cause: error }
  if (kind === 'other' || kind === 'constraint') return undefined
  if (error instanceof DatabaseClosed) {
    return new Unavailable('draining', `This process is shutting down. ${TRY_AGAIN}`, 'not_applied', because)
  }
  const unreachable = ['database_unreachable', `The database cannot be reached. ${TRY_AGAIN}`] as const
  const [reason, sentence] = UNAVAILABLE[kind] ?? unreachable
  const outcome = error instanceof CommitUnknown ? 'unknown' : 'not_applied'
  const options = { ...because, setting: settingOf(error, kind) }
  return new Unavailable(reason, waitedInVain(error) ?? sentence, outcome, options)
}

/** The setting that ended the wait. */
function settingOf(error: unknown, kind: DatabaseErrorKind): string | undefined {
  if (error instanceof QueueExhausted) return error.setting
  if (error instanceof PoolExhausted) return 'DATABASE_CONNECT_TIMEOUT_MS'
  if (kind === 'lock_timeout') return 'LOCK_TIMEOUT_MS'
  return kind === 'statement_timeout' ? 'STATEMENT_TIMEOUT_MS' : undefined
}

/** Of a wait that had its limit here; undefined for every other error. */
function waitedInVain(error: unknown): string | undefined {
  const awaited = error instanceof QueueExhausted ? error.awaited : 'a connection to the database'
  if (!(error instanceof QueueExhausted || error instanceof PoolExhausted)) return undefined
  const waited = `as long as one may, ${error.waitMs / 1_000} s`
  return `This request waited ${waited}, and in vain for ${awaited}. ${TRY_AGAIN}`
}
