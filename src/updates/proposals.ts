import { type Expression, type Kysely, type SqlBool, sql } from 'kysely'
import { isAdmin } from '../auth/caller.js'
import type { ProposalState, ResourceKind, Tables } from '../db/tables.js'
import { Refused } from '../errors.js'
import type { AuditEntry, Change } from './audit.js'
import type { UpdateRequest } from './resource.js'

/** Ends the matching open proposals and returns their number. The transaction must have locked their record. `by` is null for the operator. */
export async function endProposals(
  trx: Kysely<Tables>,
  end: { state: ProposalState; by: string | null; reason?: string },
  match: Expression<SqlBool>,
): Promise<number> {
  const { state, by: closed_by, reason = null } = end
  const update = trx
    .updateTable('proposal')
    .set({ state, closed_by, closed_at: sql<string>`clock_timestamp()`, reason })
    .set({ closed_transaction_id: sql`pg_current_xact_id()`, closed_place: sql`nextval('change_place')` })
    .where('state', '=', 'open')
    .where(match)
  return Number((await update.executeTakeFirst()).numUpdatedRows)
}

/** Throws `Refused` if this record can be changed only by a proposal. */
export function requireDirect(
  kind: ResourceKind,
  { requireApproval, caller }: Pick<UpdateRequest, 'requireApproval' | 'caller'>,
  changes: readonly Change[],
): void {
  const isCovered = requireApproval === 'all' || (requireApproval === 'tools' && kind === 'tool')
  if (!isCovered || isAdmin(caller) || changes.length === 0) return
  throw new Refused('APPROVAL_REQUIRED', 'Only administrators may change this directly: propose it (propose=true).')
}

/** Closes the open proposals of a record if the change deletes it. */
export async function closeProposals(trx: Kysely<Tables>, entry: AuditEntry): Promise<void> {
  const { resource_kind: kind, resource_id: id, actor_id: by, fields } = entry
  if (!fields.includes('deleted') && !fields.includes('removed')) return
  await endProposals(trx, { state: 'closed', by }, sql<boolean>`resource_kind = ${kind} and resource_id = ${id}`)
}
