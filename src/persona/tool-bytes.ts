import { type RawBuilder, sql } from 'kysely'
import { snapshotBytes } from '../tool/snapshot.js'

/* What an agent's tools take in its answer, as SQL: from stored sizes, without reading the definitions. */

const TOOLS = sql`tool t left join tool_definition d on d.hash = t.definition_hash`

/** What a tool of an agent takes in its answer, and the hash of its definition in hex. */
export interface ToolSize {
  bytes: number
  definition: string | null
}

/** SQL: the members of a `ToolSize` in JSON. */
const sizePairs = sql`'bytes', ${snapshotBytes}, 'definition', encode(t.definition_hash, 'hex')`

/** SQL: the sizes of the tools of the agent `p`, in the order of their ids. */
export function storedToolSizes(most: RawBuilder<unknown>): RawBuilder<ToolSize[]> {
  return sql`coalesce((
      select json_agg(json_build_object(${sizePairs}) order by l.tool_id)
      from (select tool_id from persona_tool where persona_id = p.id order by tool_id${most}) l
      join (${TOOLS}) on t.id = l.tool_id), '[]')`
}

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
