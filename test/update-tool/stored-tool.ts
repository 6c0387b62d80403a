import { sql } from 'kysely'
import type { WorldApp } from '../app.js'

/** A tool as the tables hold it: the definition as text, headers by name and sealed bytes. */
export interface StoredTool {
  [column: string]: unknown
  version: number
  definition: string | null
  headers: { name: string; ciphertext: string }[]
}

/** Reads a tool from the tables, past all code of the service. */
export async function storedTool({ database }: Pick<WorldApp, 'database'>, id: number): Promise<StoredTool> {
  const { rows } = await sql<{ tool: StoredTool }>`
    select to_jsonb(t) - array['created_at', 'field_versions', 'audit_head', 'audit_count', 'audit_anchor',
        'audit_anchor_version', 'definition_hash', 'secrets_generation'] || jsonb_build_object(
      'definition', (select d.content::text from tool_definition d where d.hash = t.definition_hash),
      'headers', (select coalesce(jsonb_agg(jsonb_build_object('name', h.name, 'ciphertext', encode(h.ciphertext, 'hex'))
                                            order by h.position), '[]')
                  from tool_header h where h.tool_id = t.id)) as tool
    from tool t where t.id = ${id}`.execute(database.db)
  const [row] = rows
  if (row === undefined) throw new Error(`there is no tool ${id}`)
  return row.tool
}
