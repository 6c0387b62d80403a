import { type RawBuilder, sql } from 'kysely'
import { type PersonaAccess, personaAccess } from '../auth/access.js'
import { callerStatement, userOfCaller } from '../auth/authenticate.js'
import { snapshotBytes } from '../tool/snapshot.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, versionedState } from '../updates/statements.js'
import { COLUMNS, linkOf, type PersonaColumn, type PersonaContent, RELATIONS, type Relation } from './fields.js'

/** An agent as one statement found it, and what the caller may do with it by ownership and shares. */
export interface PersonaState extends PersonaContent, VersionedState {
  access: PersonaAccess
  /** Of each of `tool_ids`. */
  tool_sizes: ToolSize[]
}

/** The columns whose texts may be large, and how many bytes they are. */
const LARGE_COLUMNS: Partial<Record<PersonaColumn, RawBuilder<number>>> = {
  system_prompt: sql`octet_length(p.system_prompt)`,
  task_prompt: sql`octet_length(p.task_prompt)`,
  starter_messages: sql`octet_length(p.starter_messages::text)`,
}

/** All of them together. The states of up to 32 requests travel together, and a byte may become six in JSON. */
const PREFETCHED_TEXT_BYTES_MAX = sql.lit(16 * 1024)

/** SQL: the agent `p` as a `PersonaState`, as the user sees it. Not whole: without large texts (`large.bytes`). */
export function personaState(user: RawBuilder<unknown>, isWhole = true): RawBuilder<PersonaState> {
  const columns = COLUMNS.map(([name, { column }]) => {
    const value = columnValue('p', name, column)
    const isLeftOut = !isWhole && LARGE_COLUMNS[name] !== undefined
    return [name, isLeftOut ? sql`case when large.bytes <= ${PREFETCHED_TEXT_BYTES_MAX} then ${value} end` : value]
  })
  const relations = RELATIONS.map(([name, { link }]) => [name, link.isShare ? storedShares(name) : storedIds(name)])
  return versionedState('persona', 'p', user, {
    ...Object.fromEntries([...columns, ...relations]),
    ...(isWhole
      ? {}
      : { left_out_bytes: sql`case when large.bytes > ${PREFETCHED_TEXT_BYTES_MAX} then large.bytes else 0 end` }),
    access: personaAccess(user),
    tool_sizes: storedToolSizes,
  })
}

/** SQL: the ids that a relation of the agent `p` holds, in their order; texts in that of their bytes. */
export function storedIds(relation: Relation): RawBuilder<unknown> {
  const { table, column, idType } = linkOf(relation)
  const order = idType === 'text' ? sql` collate "C"` : sql``
  return sql`array(select ${sql.raw(column)} from ${sql.raw(table)} where persona_id = p.id order by ${sql.raw(column)}${order})`
}

function storedShares(relation: Relation): RawBuilder<unknown> {
  const { table, column } = linkOf(relation)
  return sql`coalesce((select json_agg(json_build_object('id', share.id, 'level', share.level) order by share.id)
                       from (select ${sql.raw(column)} as id, level from ${sql.raw(table)} where persona_id = p.id) share), '[]')`
}

/* What an agent's tools take in its answer: from stored sizes, without reading the definitions. */

const TOOLS = sql`tool t left join tool_definition d on d.hash = t.definition_hash`

/** What a tool of an agent takes in its answer, and the hash of its definition in hex. */
export interface ToolSize {
  bytes: number
  definition: string | null
}

const sizePairs = sql`'bytes', ${snapshotBytes}, 'definition', encode(t.definition_hash, 'hex')`

/** SQL: the sizes of the tools of the agent `p`, in the order of their ids. */
const storedToolSizes: RawBuilder<ToolSize[]> = sql`coalesce((
      select json_agg(json_build_object(${sizePairs}) order by l.tool_id)
      from persona_tool l join (${TOOLS}) on t.id = l.tool_id where l.persona_id = p.id), '[]')`

/** SQL: whether these tools take no more bytes. */
export function takeAtMost(ids: RawBuilder<unknown>, bytes: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`(select coalesce(sum(${snapshotBytes}), 0) from ${TOOLS} where t.id = any(${ids})) <= ${bytes}`
}

/** SQL: the JSON of each of these tools, which `pairs` names, with its `ToolSize`. */
export function toolsWithBytes(ids: RawBuilder<unknown>, pairs: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`coalesce((
      select json_agg(json_build_object(${pairs}, ${sizePairs}))
      from ${TOOLS} where t.id = any(${ids})), '[]')`
}

/** What the route of one agent reads along with its caller, in one statement. */
export const PERSONA_LOOKUP = {
  parameter: 'persona_id',
  statement: callerStatement('caller_and_persona', id => {
    const bytes = Object.values(LARGE_COLUMNS).map(bytes => sql`coalesce(${bytes}, 0)`)
    return sql`(select ${personaState(userOfCaller, false)}
    from persona p cross join lateral (select ${sql.join(bytes, sql` + `)} as bytes offset 0) large where p.id = ${id})`
  }),
}
