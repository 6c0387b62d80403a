import { sql } from 'kysely'
import { type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { Past } from '../updates/past.js'
import type { CachedDefinitions } from './definition-cache.js'
import { markedDefinition, pastHeaders, pastTools } from './snapshot.js'
import { answerColumns, type ToolRow } from './statements.js'

/* Tools as they were, by themselves or in the answer of an agent. */

/** A tool, and what the fields that changed since were then. */
type PastTool = Pick<Past, 'id' | 'values'>

/** What was different then, as JSON text: of each tool by its id the columns of its row, and its headers as they are shown. */
export function pastRecords(pasts: readonly PastTool[]): string {
  return JSON.stringify(Object.fromEntries(pasts.map(({ id, values }) => [id, pastRecord(values)])))
}

function pastRecord({ definition, ...columns }: Past['values']): object {
  if (definition === undefined) return columns
  return { ...columns, definition_hash: definition === null ? null : `\\x${definition}` }
}

/** About how many bytes the tools took then, the hashes of their definitions in hex, and the tools of which it is no longer kept. */
export async function pastToolSizes(executor: Executor, pasts: readonly PastTool[]): Promise<PastSizes> {
  const ids = pasts.map(({ id }) => id)
  const [row] = await readPastSizes.run(executor, { ids, past: pastRecords(pasts) })
  if (row === undefined) throw new Error('the statement of sizes answered no row')
  return row
}

type PastParameters = { ids: number[]; past: string }

interface PastSizes {
  bytes: number
  definitions: string[]
  gone: number[]
}

const readPastSizes = statement<PastParameters, PastSizes>('past_tools_size', param => {
  const past = sql`${param('past')}::json -> stored.id::text`
  return sql`
    select coalesce(sum(coalesce(d.size_bytes, 0) + octet_length(t.description)), 0)::integer as bytes,
      coalesce(array_agg(distinct encode(d.hash, 'hex')) filter (where d.hash is not null), '{}') as definitions,
      coalesce(array_agg(t.id) filter (where t.definition_hash is not null and d.hash is null), '{}') as gone
    from tool stored cross join lateral json_populate_record(stored, coalesce(${past}, '{}')) t
    left join tool_definition d on d.hash = t.definition_hash
    where stored.id = any(${param('ids')}::integer[])`
})

type PastToolParameters = ViewerParameters & PastParameters & CachedDefinitions

/** One tool as it was; its version is that of now. */
export const readPastTool = statement<PastToolParameters, ToolRow>('past_tool', param => {
  const tools = pastTools(sql`${param('ids')}::integer[]`, sql`${param('past')}::json`, viewerOf(param))
  return sql`select ${answerColumns(markedDefinition(sql`${param('cached_definitions')}::bytea[]`), pastHeaders)} from ${tools}`
})
