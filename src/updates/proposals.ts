import { type Expression, type SqlBool, sql, type Transaction } from 'kysely'
import type { ProposalState, ResourceKind, Tables } from '../db/tables.js'

/* The ends of proposals. Whoever ends one and changes its record locks the record first. */

interface End {
  state: Exclude<ProposalState, 'open'>
  /** Null for the operator. */
  by: string | null
  reason?: string | null
}

/** Ends the open proposals that match. Returns when. */
export async function endProposals(
  trx: Transaction<Tables>,
  { state, by, reason = null }: End,
  match: Expression<SqlBool>,
): Promise<{ closed_at: string | null }[]> {
  return await trx
    .updateTable('proposal')
    .set({ state, closed_by: by, closed_at: sql<string>`clock_timestamp()`, reason })
    .where('state', '=', 'open')
    .where(match)
    .returning('closed_at')
    .execute()
}

/** Closes the open proposals of a record that was deleted. */
export async function closeProposalsOf(
  trx: Transaction<Tables>,
  {
    resource_kind,
    resource_id,
    actor_id,
  }: { resource_kind: ResourceKind; resource_id: number; actor_id: string | null },
): Promise<void> {
  const ofRecord = sql<boolean>`resource_kind = ${resource_kind} and resource_id = ${resource_id}`
  await endProposals(trx, { state: 'closed', by: actor_id }, ofRecord)
}
