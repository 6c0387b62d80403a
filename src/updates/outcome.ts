import { sql } from 'kysely'
import type { CommitUnknown } from '../db/connection/database-error.js'
import type { Outcome } from '../db/connection/settle.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'
import type { AuditEntry } from './audit.js'
import type { UpdateRequest } from './resource.js'

/** What became of the write with this audit row, whose commit was not confirmed. */
export async function outcomeOf(
  database: ServiceDatabase,
  doubt: CommitUnknown,
  entry: AuditEntry | undefined,
): Promise<Outcome> {
  return entry === undefined ? 'unknown' : await database.settle(doubt, auditRow.bind(entry))
}

/** What the answer says when the connection was lost at the commit. */
export function lost(outcome: Outcome, doubt: CommitUnknown, { merges, key }: UpdateRequest): Unavailable {
  const repeating =
    merges && key.idempotency_key === null
      ? 'A merge that is repeated is a new one: read the resource first, and send an Idempotency-Key with the next.'
      : 'Repeating it with the same If-Match is safe, and only the answer 200 or 412 to it settles this; a 412 names in ' +
        'applied_etag the version in which it was stored, if it was.'
  const rest = {
    applied: 'The update was applied, and its answer could not be read. Read the resource before the next update.',
    not_applied: `The update was not applied. ${TRY_AGAIN}`,
    unknown: `Whether the update was applied is not known. ${repeating}`,
  }
  const message = `The connection to the database was lost. ${rest[outcome]}`
  return new Unavailable('database_unreachable', message, outcome, { cause: doubt })
}

/** Answers a row if this very audit row was stored; its hash covers the moment and everything before it. */
const auditRow = statement<AuditEntry, { found: number }>('audit_row', param => {
  return sql`select 1 as found from audit
    where resource_kind = ${param('resource_kind')}::text and resource_id = ${param('resource_id')}::integer
      and version_after = ${param('version_after')}::integer and hash = decode(${param('hash')}::text, 'hex')`
})
