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

/**
 * SQL: the fields of a resource row that somebody else than the user changed in the last fifteen minutes, as JSON. `offset 0`
 * keeps the look-up of each change by its version: joined freely, the planner reads the resource's whole history.
 */
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
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = ${sql.lit(kind)} and resource_id = ${row}.id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - ${LOOK_BACK}::interval and a.actor_id is distinct from ${user}), '[]')`
}
