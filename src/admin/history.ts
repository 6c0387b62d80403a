import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { Refusal } from './refusal.js'

/**
 * The versions of an agent or tool that are still listed, newest first, and from which on (`kept_from`) contents are kept: it can be
 * rolled back to these. Throws `Refusal` when there is none of this id.
 */
export async function readHistory(db: Kysely<Database>, kind: ResourceKind, id: number, limit?: number) {
  // A tool that was removed and came back was made anew: what it was before is listed, but is not content of this one.
  const { rows } = await sql<{ current: number; kept_from: number }>`
    select r.version as current, greatest(
      coalesce(max(a.version_after) filter (where a.difference is null), r.audit_anchor_version, 1),
      max(a.version_after) filter (where 'removed' = any(a.fields)) + 1, 1) as kept_from
    from ${sql.table(kind)} r
    left join audit a on a.resource_kind = ${kind} and a.resource_id = r.id and a.version_after <= r.version
    where r.id = ${id}::integer group by r.id`.execute(db)
  const [resource] = rows
  if (resource === undefined) throw new Refusal(`there is no ${kind === 'persona' ? 'agent' : 'tool'} ${id}`)
  const { rows: versions } = await sql<Version>`
    select version_after as version, at, actor, request_id, fields, difference from audit
    where resource_kind = ${kind} and resource_id = ${id}::integer and version_after <= ${resource.current}::integer
    order by version desc limit ${limit ?? null}::bigint`.execute(db)
  return { kind, id, ...resource, versions }
}

interface Version {
  version: number
  at: string
  actor: string
  request_id: string
  fields: string[]
  /** What the fields were and became; null where it is no longer kept. */
  difference: Record<string, { from: unknown; to: unknown }> | null
}
