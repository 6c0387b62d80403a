import { sql } from 'kysely'
import { CommitUnknown } from '../db/connection/database-error.js'
import { repeated } from '../db/connection/repeat.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { Unavailable } from '../errors.js'
import type { AuditEntry } from './audit.js'

/** The last write that an update tried: its audit row, by which it is found again, and the plan behind it. */
export interface Attempt<Plan> {
  entry?: AuditEntry
  plan?: Plan
}

/**
 * Carries out an update so that its end is known. `update` is repeated where nothing can have been committed, and notes in
 * the attempt what it is about to write. When a commit stays unconfirmed, the audit row of that write says whether it was
 * applied: then `reread` answers it, from the present state.
 *
 * Errors: those of `update`; `Unavailable` with `not_applied` or `unknown`.
 */
export async function withOutcome<Plan, Result>(
  database: ServiceDatabase,
  update: (attempt: Attempt<Plan>) => Promise<Result>,
  reread: (plan: Plan) => Promise<Result | undefined>,
): Promise<Result> {
  const attempt: Attempt<Plan> = {}
  try {
    return await repeated(() => update(attempt))
  } catch (error) {
    if (!(error instanceof CommitUnknown)) throw error
    return await settled(database, error, attempt, reread)
  }
}

async function settled<Plan, Result>(
  database: ServiceDatabase,
  doubt: CommitUnknown,
  { entry, plan }: Attempt<Plan>,
  reread: (plan: Plan) => Promise<Result | undefined>,
): Promise<Result> {
  if (entry === undefined || plan === undefined) throw outcomeUnknown(doubt)
  const outcome = await database.settle(doubt, auditRow.bind(entry))
  if (outcome === 'unknown') throw outcomeUnknown(doubt)
  if (outcome === 'not_applied') {
    const message = 'The connection to the database was lost and the update was not applied. Try again.'
    throw new Unavailable('database_unreachable', message, 'not_applied', { cause: doubt })
  }
  const result = await repeated(() => reread(plan)).catch(() => undefined)
  if (result === undefined) throw outcomeUnknown(doubt)
  return result
}

function outcomeUnknown(doubt: CommitUnknown): Unavailable {
  const message =
    'The connection to the database was lost, and whether the update was applied is not known. ' +
    'Repeating it with the same If-Match is safe.'
  return new Unavailable('database_unreachable', message, 'unknown', { cause: doubt })
}

/** Answers a row if this very audit row was stored; its hash covers the moment and everything before it. */
const auditRow = statement<AuditEntry, { found: number }>('audit_row', param => {
  return sql`select 1 as found from audit
    where resource_kind = ${param('resource_kind')}::text and resource_id = ${param('resource_id')}::integer
      and version_after = ${param('version_after')}::integer and hash = decode(${param('hash')}::text, 'hex')`
})
