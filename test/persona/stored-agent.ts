import { sql } from 'kysely'
import type { WorldApp } from '../app.js'

export interface Share {
  id: string | number
  level: string
}

/** An agent as the tables hold it, under the names of the update's fields; dates in UTC with microseconds. */
export interface StoredAgent {
  [field: string]: unknown
  version: number
}

/** Reads an agent from the tables, past all code of the service. */
export async function storedAgent({ database }: Pick<WorldApp, 'database'>, id: number): Promise<StoredAgent> {
  const { rows } = await sql<{ agent: StoredAgent }>`
    select to_jsonb(p) - array['created_at', 'field_versions', 'audit_head', 'audit_count', 'audit_anchor',
        'audit_anchor_version'] || jsonb_build_object(
      'search_start_date', to_char(p.search_start_date at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
      'document_set_ids', (select coalesce(jsonb_agg(document_set_id order by document_set_id), '[]') from persona_document_set
                           where persona_id = p.id),
      'tool_ids', (select coalesce(jsonb_agg(tool_id order by tool_id), '[]') from persona_tool where persona_id = p.id),
      'label_ids', (select coalesce(jsonb_agg(label_id order by label_id), '[]') from persona_label where persona_id = p.id),
      'user_file_ids', (select coalesce(jsonb_agg(user_file_id order by user_file_id), '[]') from persona_user_file
                        where persona_id = p.id),
      'users', (select coalesce(jsonb_agg(jsonb_build_object('id', user_id, 'level', level) order by user_id), '[]')
                from persona_user where persona_id = p.id),
      'groups', (select coalesce(jsonb_agg(jsonb_build_object('id', user_group_id, 'level', level)
                                           order by user_group_id), '[]')
                 from persona_group where persona_id = p.id)) as agent
    from persona p where p.id = ${id}`.execute(database.db)
  const [row] = rows
  if (row === undefined) throw new Error(`there is no agent ${id}`)
  return row.agent
}

const REQUIRED = [
  'name',
  'description',
  'document_set_ids',
  'num_chunks',
  'is_public',
  'recency_bias',
  'llm_filter_extraction',
  'llm_relevance_filter',
  'tool_ids',
  'system_prompt',
  'task_prompt',
  'datetime_aware',
]

/** The update that changes nothing: the twelve required fields as they are stored. */
export function unchanged(stored: StoredAgent): Record<string, unknown> {
  return Object.fromEntries(REQUIRED.map(name => [name, stored[name]]))
}

/** The agent through the contract: a dry run of the empty mask. */
export async function readAgent({ call }: WorldApp, token: string, id: number) {
  const answer = await call('PATCH', `/persona/${id}?update_mask=&dry_run=true`, { token, body: {} })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return answer.json()
}

export const ALICE = 'a0000000-0000-4000-8000-000000000004'
export const BOB = 'a0000000-0000-4000-8000-000000000005'
export const CAROL = 'a0000000-0000-4000-8000-000000000010'
export const ADMIN = 'a0000000-0000-4000-8000-000000000001'
