import { type Expression, type Kysely, type SqlBool, sql } from 'kysely'
import type { ProposalState, Tables } from '../db/tables.js'
import { SHOWN_BYTES_MAX } from './history.js'
import type { AuditEntry } from './resource.js'

/**
 * Ends the open proposals that `match` selects, removes their definitions and long values, and returns the number of ended proposals. Code that
 * also changes the agent or tool must lock it first. `by` is the user who ends the proposals; null for the operator.
 */
export async function endProposals(
  trx: Kysely<Tables>,
  end: { state: ProposalState; by: string | null; reason?: string },
  match: Expression<SqlBool>,
): Promise<number> {
  const { state, by: closed_by, reason = null } = end
  const update = trx
    .updateTable('proposal')
    .set({ state, closed_by, closed_at: sql<string>`clock_timestamp()`, reason })
    .set({ definition_hash: null, fields: sql`${KEPT}`, size_bytes: sql`octet_length(${KEPT}::text)` })
    .set({ closed_transaction_id: sql`pg_current_xact_id()`, closed_place: sql`nextval('change_place')` })
    .where('state', '=', 'open')
    .where(match)
  return Number((await update.executeTakeFirst()).numUpdatedRows)
}

/** SQL: the fields of a proposal, with null for the definition and for long values. */
const KEPT = sql`(
  select json_object_agg(key, case when key <> 'definition' and octet_length(value::text) <= ${sql.lit(SHOWN_BYTES_MAX)} then value end)
  from json_each(fields))`

/** If the change in `entry` deletes an agent or tool, closes its open proposals. */
export async function closeProposalsIfDeleted(trx: Kysely<Tables>, entry: AuditEntry): Promise<void> {
  const { resource_kind: kind, resource_id: id, actor_id: by, fields } = entry
  if (!fields.includes('deleted') && !fields.includes('removed')) return
  await endProposals(trx, { state: 'closed', by }, sql<boolean>`resource_kind = ${kind} and resource_id = ${id}`)
}
