import type { Kysely } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import type { FieldChange } from '../errors.js'

/**
 * Which fields changed after version `since`, by whom and when (the last change of each), for a stale precondition.
 * Null when the audit rows do not reach back that far, or when the version is not one of this resource's past.
 */
export async function changesSince(
  db: Kysely<Database>,
  kind: ResourceKind,
  id: number,
  since: number | undefined,
  current: number,
): Promise<FieldChange[] | null> {
  if (since === undefined || since >= current) return null
  const rows = await db
    .selectFrom('audit')
    .select(['version_before', 'fields', 'actor', 'at'])
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(CHANGES_READ_AT_MOST)
    .execute()
  if (rows[0]?.version_before !== since || rows.length === CHANGES_READ_AT_MOST) return null
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.actor, at: row.at })
  return [...last.values()]
}

/** Beyond so many changes since a version, what changed is no longer worth listing. */
const CHANGES_READ_AT_MOST = 1000
