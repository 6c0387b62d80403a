import { CommitUnknown, classifyDatabaseError, type DatabaseErrorKind } from '../db/connection/database-error.js'
import { queries } from '../db/statements/queries.js'
import { TRY_AGAIN, Unavailable, type UnavailableReason } from '../errors.js'
import type { AuditEntry, Job, ResourceTypes, Stored, Written } from './resource.js'

const NOT_REACHED = ['database_unreachable', `The database cannot be reached. ${TRY_AGAIN}`] as const

/** The reason and the message of the 503 for each kind of database error. An error of a kind that is not listed is answered with 500. */
const ANSWERS: { readonly [K in DatabaseErrorKind]?: readonly [UnavailableReason, sentence: string] } = {
  connection_lost: NOT_REACHED,
  cached_plan: NOT_REACHED,
  read_only: ['database_unreachable', `The database accepts no changes at present. ${TRY_AGAIN}`],
  out_of_resources: ['database_unreachable', `The database is out of memory or has a faulty disk. ${TRY_AGAIN}`],
  disk_full: ['database_full', 'The database has no space left for changes. The operator must free space.'],
  too_many_connections: ['overloaded', `The database has no free connection. ${TRY_AGAIN}`],
  serialization: ['overloaded', `Another transaction changed the same rows. ${TRY_AGAIN}`],
  lock_timeout: ['overloaded', `Another transaction held a lock for too long. ${TRY_AGAIN}`],
  waited: ['overloaded', `No connection to the database became free in time. ${TRY_AGAIN}`],
  statement_timeout: ['overloaded', `The database took too long to answer. ${TRY_AGAIN}`],
  no_table: ['schema_behind', 'The database lacks tables. The operator must restore or migrate the database.'],
  migrating: ['migrating', `Another process is migrating the database. ${TRY_AGAIN}`],
  closed: ['draining', `This process is shutting down. ${TRY_AGAIN}`],
}

/**
 * Returns the 503 for a database error; undefined for other errors. The outcome is `unknown` for a `CommitUnknown`, and otherwise `not_applied`. Code
 * that has already committed a change must replace the outcome with `applied`.
 */
export function unavailableFor(error: unknown): Unavailable | undefined {
  const answer = ANSWERS[classifyDatabaseError(error).kind]
  if (answer === undefined) return undefined
  return new Unavailable(...answer, error instanceof CommitUnknown ? 'unknown' : 'not_applied', { cause: error })
}

/** Looks for the audit row of an unconfirmed write. Returns the answer to the request if the row is stored. Otherwise throws `Unavailable`. */
export async function settle<T extends ResourceTypes>(
  job: Job<T>,
  doubt: CommitUnknown,
  written: Written<T> | undefined,
): Promise<Stored<T>> {
  if (written !== undefined && (await job.database.hasStored(auditRow(written.entry)))) return written.answer
  const { act, remedy = waysToRepeat(job) } = job.resource
  return unknownOutcome(`the ${act} was applied`, remedy)(doubt)
}

/**
 * Returns a function that throws `Unavailable` for a `CommitUnknown`, and rethrows any other error. `stored` completes the sentence "It is not known
 * whether …". `remedy` tells the client how to find out the outcome or how to repeat the request.
 */
export const unknownOutcome = (stored: string, remedy: string) => (cause: unknown) => {
  if (!(cause instanceof CommitUnknown)) throw cause
  const message = `The connection to the database was lost. It is not known whether ${stored}. ${remedy}`
  throw new Unavailable('database_unreachable', message, 'unknown', { cause })
}

export const SAME_KEY = 'Repeat the request with the same Idempotency-Key. The service applies the request only once.'

function auditRow({ resource_kind: kind, resource_id, version_after, request_id }: AuditEntry) {
  const rows = queries().selectFrom('audit').select('version_after').where('resource_kind', '=', kind)
  const ofResource = rows.where('resource_id', '=', resource_id).where('version_after', '=', version_after)
  return ofResource.where('request_id', '=', request_id).compile()
}

/** Returns a sentence that tells the client how to repeat a request whose outcome is unknown. */
function waysToRepeat<T extends ResourceTypes>({ resource: { act }, request: { key, precondition } }: Job<T>): string {
  if (key !== null) return SAME_KEY
  if (act === 'creation')
    return 'Before you repeat the request, look for the record in the list, so that you do not create it twice. In future, send an Idempotency-Key.'
  if (act === 'deletion') return 'Repeat the request. A 404 means that the deletion was applied.'
  if (precondition.kind !== 'tags')
    return 'Read the record before you repeat the request, because repeating it could overwrite later changes by other users.'
  return 'Repeat the request with the same If-Match. A 200 or 204 means that the change is stored. A 412 lists the fields that have changed since.'
}
