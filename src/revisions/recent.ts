import { type RawBuilder, sql } from 'kysely'
import type { ResourceKind } from '../db/tables.js'

/** A field that somebody else than the caller changed in the last fifteen minutes. */
export interface RecentChange {
  field: string
  by: string
  age_s: number
}

/** How far an overwrite notice looks back (DECISIONS section 8). */
const LOOK_BACK = sql.lit('15 minutes')

/** SQL: the fields of a resource row whose last change is young and somebody else's than the user's, as JSON. */
export function recentChanges(
  kind: ResourceKind,
  row: RawBuilder<unknown>,
  user: RawBuilder<unknown>,
): RawBuilder<RecentChange[]> {
  return sql`coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text(${row}.field_versions) last_change
    join audit a on a.resource_kind = ${sql.lit(kind)} and a.resource_id = ${row}.id
      and a.version_after = last_change.value::integer
    where a.at > clock_timestamp() - ${LOOK_BACK}::interval and a.actor_id is distinct from ${user}), '[]')`
}
