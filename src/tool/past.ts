import { sql } from 'kysely'
import { type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { VersionGone } from '../errors.js'
import type { Past } from '../updates/past.js'
import { pastHeaders, pastTools } from './snapshot.js'
import { answerColumns, type ToolRow } from './statements.js'

/* Tools as they were, by themselves or in the answer of an agent. */

/** What was different then, as JSON text: of each tool by its id the columns of its row, and its headers as they are shown. */
export function pastRecords(pasts: readonly Past[]): string {
  return JSON.stringify(Object.fromEntries(pasts.map(({ id, values }) => [id, pastRecord(values)])))
}

function pastRecord({ definition, ...columns }: Past['values']): object {
  if (definition === undefined) return columns
  return { ...columns, definition_hash: definition === null ? null : `\\x${definition}` }
}

/** About how many bytes the tools took then. Throws `VersionGone` where the definition of one is no longer kept. */
export async function pastToolBytes(executor: Executor, pasts: readonly Past[]): Promise<number> {
  const ids = pasts.map(({ id }) => id)
  const [row] = await readPastSize.run(executor, { ids, past: pastRecords(pasts) })
  const gone = row?.gone ?? null
  if (gone !== null) throw new VersionGone('pruned', `The definition that tool ${gone} had then is no longer kept.`)
  return row?.bytes ?? 0
}

type PastParameters = { ids: number[]; past: string }

const readPastSize = statement<PastParameters, { bytes: number; gone: number | null }>('past_tools_size', param => {
  const past = sql`${param('past')}::json -> stored.id::text`
  return sql`
    select coalesce(sum(coalesce(d.size_bytes, 0) + octet_length(t.description)), 0)::integer as bytes,
      min(t.id) filter (where t.definition_hash is not null and d.hash is null) as gone
    from tool stored cross join lateral json_populate_record(stored, coalesce(${past}, '{}')) t
    left join tool_definition d on d.hash = t.definition_hash
    where stored.id = any(${param('ids')}::integer[])`
})

/** One tool as it was; its version is that of now. */
export const readPastTool = statement<ViewerParameters & PastParameters, ToolRow>('past_tool', param => {
  const tools = pastTools(sql`${param('ids')}::integer[]`, sql`${param('past')}::json`, viewerOf(param))
  return sql`select ${answerColumns(sql`d.content::text`, pastHeaders)} from ${tools}`
})
