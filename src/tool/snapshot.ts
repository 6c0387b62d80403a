import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, jsonRows, versionedState } from '../updates/statements.js'
import { COLUMNS, type ToolContent } from './fields.js'
import { SNAPSHOT_FIELDS } from './schema.js'

/** A stored custom header without its secret. `fingerprint` is hex; its first digits are the mask. */
export interface StoredHeader {
  name: string
  key_id: string
  fingerprint: string
}

/** A tool as one statement found it. The definition only by its hash. */
export interface ToolState extends ToolContent, VersionedState {
  secrets_generation: number
  headers: StoredHeader[]
  /** By what the viewer manages it; null where they do not. */
  managed_as: 'all' | 'owner' | 'group' | null
  /** The size of its definition. */
  definition_bytes: number
}

/** SQL: the tool `t` as JSON of the shape `ToolState`, as the viewer sees it. */
export function toolState(viewer: Viewer): RawBuilder<ToolState> {
  const columns = COLUMNS.map(([name, { column }]) => [name, columnValue('t', name, column)])
  return versionedState('tool', 't', viewer.user, {
    ...Object.fromEntries(columns),
    definition_hash: sql`encode(t.definition_hash, 'hex')`,
    secrets_generation: sql`t.secrets_generation`,
    headers: sql`coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]')`,
    definition_bytes: sql`coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0)`,
    managed_as: sql`case when ${managesTool(viewer)} then
      case when ${viewer.managesAll} then 'all' when t.user_id = ${viewer.user} then 'owner' else 'group' end end`,
  })
}

/** What the route of one tool reads along with its caller, in one statement. */
export const TOOL_LOOKUP = {
  parameter: 'tool_id',
  statement: callerStatement('caller_and_tool', id => {
    return sql`(select ${toolState(viewerOfCaller)} from tool t where t.id = ${id})`
  }),
}

/** SQL: the custom headers of the tool `t` as the wire shows them, each value its mask. */
export const maskedHeaders: RawBuilder<unknown> = jsonRows(sql`
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position`)

/** SQL: about how many bytes the tool `t` with the definition `d` takes in an answer, without reading them. */
export const snapshotBytes: RawBuilder<number> = sql`coalesce(d.size_bytes, 0) + octet_length(t.description)`

/** SQL: each field of the wire's ToolSnapshot of the tool `t` with its expression, in its order; these are no columns of its row. */
export function snapshotFields(
  parts: Record<'definition' | 'oauth_config_name' | 'custom_headers', RawBuilder<unknown>>,
): [string, RawBuilder<unknown>][] {
  const expressions: Record<string, RawBuilder<unknown>> = {
    ...parts,
    display_name: sql`coalesce(t.display_name, t.name)`,
  }
  return SNAPSHOT_FIELDS.map(([name]) => [name, expressions[name] ?? sql.raw(`t.${name}`)])
}

/** SQL: a character that no JSON text holds. It stands on each side of what is said of a definition. */
const MARK = sql`chr(1)`

/** SQL: the definition of the tool `t` for `withDefinitions`: its hash and, unless that is `cached`, its text. */
export function markedDefinition(cached: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`${MARK} || coalesce(encode(t.definition_hash, 'hex'), '') || ${MARK} ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any(${cached}) then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || ${MARK}`
}

/** SQL: the snapshots of the tools with these ids, by id, as a JSON array in text for `withDefinitions`. */
export function toolSnapshots(
  ids: RawBuilder<unknown>,
  viewer: Viewer,
  cached: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const headers = sql`case when ${managesTool(viewer, ids)} then ${maskedHeaders} end`
  const tools = sql`tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any(${ids})`
  return snapshotsOf(tools, headers, cached)
}

/** SQL: the same as they were, byte for byte: `past` is JSON of what was different then (`pastRecords`). */
export function pastToolSnapshots(
  ids: RawBuilder<unknown>,
  past: RawBuilder<unknown>,
  viewer: Viewer,
  cached: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const tools = sql`${pastTools(ids, past, viewer)} left join oauth_config o on o.id = t.oauth_config_id`
  return snapshotsOf(tools, pastHeaders, cached)
}

function snapshotsOf(tools: RawBuilder<unknown>, headers: RawBuilder<unknown>, cached: RawBuilder<unknown>) {
  const definition = markedDefinition(cached)
  const fields = snapshotFields({ definition, oauth_config_name: sql`o.name`, custom_headers: headers })
  return sql`'[' || coalesce((
    select string_agg(${jsonWithText(fields, 'definition')}, ',' order by t.id)
    from ${tools}), '') || ']'`
}

/** SQL: the tools `t` with these ids as they were. Rights to see masks are those of now. */
export function pastTools(ids: RawBuilder<unknown>, past: RawBuilder<unknown>, viewer: Viewer): RawBuilder<unknown> {
  return sql`(
      select t as stored_row, ${managesTool(viewer, ids)} as manageable, ${past} -> t.id::text as past
      from tool t where t.id = any(${ids})) stored
    cross join lateral json_populate_record(stored.stored_row, coalesce(stored.past, '{}')) t`
}

/** SQL: the custom headers of one of `pastTools`. */
export const pastHeaders: RawBuilder<unknown> = sql`case when stored.manageable then case
  when stored.past -> 'custom_headers' is null then ${maskedHeaders}
  else ${jsonRows(sql`
    select h.value ->> 'key' as key, h.value ->> 'value' as value
    from json_array_elements(stored.past -> 'custom_headers') with ordinality h (value, place) order by h.place`)} end end`

/** SQL: the text of a JSON object with these fields without blanks between; one of them is given as JSON text. */
export function jsonWithText(fields: readonly [string, RawBuilder<unknown>][], textField: string): RawBuilder<unknown> {
  const pieces = fields.map(([name, expression], i) => {
    const key = sql.lit(`${i === 0 ? '{' : ','}"${name}":`)
    return sql`${key}, ${name === textField ? expression : sql`coalesce(to_json(${expression}), 'null')`}`
  })
  return sql`concat(
    ${sql.join(pieces, sql`,\n    `)}, '}')`
}
