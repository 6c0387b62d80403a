import { TRY_AGAIN, Unavailable, type UnavailableReason } from '../errors.js'
import {
  CommitUnknown,
  classifyDatabaseError,
  type DatabaseErrorKind,
  WaitedInVain,
} from './connection/database-error.js'

/** The reason and the sentence of the answer, by kind of error. */
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
  closed: ['draining', `This process is shutting down. ${TRY_AGAIN}`],
  too_many_connections: ['overloaded', `No connection to the database became free in time. ${TRY_AGAIN}`],
}

const UNREACHABLE = ['database_unreachable', `The database cannot be reached. ${TRY_AGAIN}`] as const

/** The setting of the timeout. */
const SETTINGS: Partial<Record<DatabaseErrorKind, string>> = {
  lock_timeout: 'LOCK_TIMEOUT_MS',
  statement_timeout: 'STATEMENT_TIMEOUT_MS',
}

/**
 * Translates a database failure into what the client may conclude from it, without the database's own text; undefined for other errors.
 * Only here is it decided whether a failed transaction was applied: with any error but `CommitUnknown` it was not. After a first write, a
 * later error must not be passed through.
 */
export function unavailableFor(error: unknown): Unavailable | undefined {
  const { kind } = classifyDatabaseError(error)
  if (kind === 'other' || kind === 'constraint') return undefined
  const options = { cause: error, setting: SETTINGS[kind] }
  if (error instanceof WaitedInVain) {
    const sentence = `This request waited ${error.waitMs / 1_000} s, the longest that is allowed, for ${error.awaited}, in vain.`
    return new Unavailable('overloaded', `${sentence} ${TRY_AGAIN}`, 'not_applied', {
      ...options,
      setting: error.setting,
    })
  }
  const [reason, sentence] = UNAVAILABLE[kind] ?? UNREACHABLE
  return new Unavailable(reason, sentence, error instanceof CommitUnknown ? 'unknown' : 'not_applied', options)
}
