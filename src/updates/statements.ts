import { type RawBuilder, sql } from 'kysely'
import type { Param } from '../db/statements/statement.js'
import type { ResourceKind } from '../db/tables.js'
import type { AuditEntry, Change } from './audit.js'
import type { AnyColumnField, SqlType } from './field-table.js'
import type { RecentChange, VersionedState } from './resource.js'

/** SQL: the row `alias` as JSON of the shape `VersionedState`, as the user sees it, with the members that its kind adds. */
export function versionedState<State extends VersionedState>(
  kind: ResourceKind,
  alias: string,
  user: RawBuilder<unknown>,
  members: Record<string, RawBuilder<unknown>>,
): RawBuilder<State> {
  const row = sql.raw(alias)
  const own = {
    id: sql`${row}.id`,
    version: sql`${row}.version`,
    audit_head: sql`encode(${row}.audit_head, 'hex')`,
    field_versions: sql`${row}.field_versions`,
    made_at: instant(madeAt(kind, row)),
    recent: recentChanges(kind, sql.ref(alias), user),
    read_at_ms: sql`extract(epoch from clock_timestamp()) * 1000`,
  }
  const columns = Object.entries({ ...own, ...members }).map(([name, value]) => sql`${value} as ${sql.id(name)}`)
  return sql`(select row_to_json(state) from (select
    ${sql.join(columns, sql`,\n    `)}) state)`
}

/** SQL: when the stored version of the row was made, as its audit row or the anchor of the pruned ones says; null where neither does. */
function madeAt(kind: ResourceKind, row: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`greatest(${row}.audit_anchor_at, (
      select a.at from audit a
      where a.resource_kind = ${sql.lit(kind)} and a.resource_id = ${row}.id and a.version_after = ${row}.version))`
}

/** SQL: the rows of a query as a JSON array of objects, in its order, without the blanks of `json_agg`. */
export function jsonRows(query: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`array_to_json(array(select json_row from (${query}) json_row))`
}

/** SQL: the row of a query as a JSON object, likewise; null where there is none. */
export function jsonRow(query: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(select row_to_json(json_row) from (${query}) json_row)`
}

/** SQL: an instant as RFC 3339 in UTC with microseconds. */
export function instant(value: RawBuilder<unknown>): RawBuilder<string> {
  return sql`to_char(${value} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

/** SQL: a column of the row `alias` as state and audit rows show it: timestamps as UTC text with microseconds. */
export function columnValue(alias: string, column: string, type: SqlType): RawBuilder<unknown> {
  const value = sql`${sql.raw(alias)}.${sql.ref(column)}`
  return type === 'timestamptz' ? instant(value) : value
}

/** SQL: what every write sets on the row of a versioned table, beside its content. */
export function nextVersion(alias: string, param: Param<AuditEntry & { field_versions: string }>): RawBuilder<unknown> {
  const row = sql.raw(alias)
  return sql`version = ${row}.version + 1,
          field_versions = ${row}.field_versions || ${param('field_versions')},
          audit_head = decode(${param('hash')}, 'hex'),
          audit_count = ${row}.audit_count + 1`
}

/** The version in which each changed field changes last, for `nextVersion`, as JSON text. Of what is new nothing was changed yet. */
export function fieldVersions(
  { version, isNew }: Pick<VersionedState, 'version' | 'isNew'>,
  changes: readonly Change[],
): string {
  if (isNew) return '{}'
  return JSON.stringify(Object.fromEntries(changes.map(({ field }) => [field, version + 1])))
}

/** SQL: `column = its new value where the JSON names it, else itself`: a fixed text for every set of columns. */
export function changedColumns(
  alias: string,
  columns: readonly (readonly [string, AnyColumnField])[],
  changed: RawBuilder<unknown>,
): RawBuilder<unknown> {
  return sql.join(
    columns.map(([name, { column: type }]) => {
      const key = sql.lit(name)
      const value =
        type === 'json'
          ? sql`nullif(${changed} -> ${key}, 'null')::json`
          : sql`(${changed} ->> ${key})::${sql.raw(type)}`
      const own = sql.ref(name)
      return sql`${own} = case when ${changed} ? ${key} then ${value} else ${sql.raw(alias)}.${own} end`
    }),
  )
}

/** The new values of the changed columns, for `changedColumns`, as JSON text. */
export function changedValues(
  columns: readonly (readonly [string, AnyColumnField])[],
  changes: readonly Change[],
): string {
  const values = changes
    .filter(({ field }) => columns.some(([name]) => name === field))
    .map(({ field, to }) => [field, to])
  return JSON.stringify(Object.fromEntries(values))
}

/** How far an overwrite notice looks back (DECISIONS section 8). */
const LOOK_BACK = sql.lit('15 minutes')

/**
 * SQL: the fields of a resource row that somebody else than the user changed in the last fifteen minutes, as JSON. `offset 0`
 * keeps the look-up of each change by its version: joined freely, the planner reads the resource's whole history.
 */
function recentChanges(
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
