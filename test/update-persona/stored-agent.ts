import { sql } from 'kysely'
import type { WorldApp } from '../app.js'
import { REQUIRED_AGENT_FIELDS } from '../fixtures/agent-fields.js'
import { BOB } from '../fixtures/users.js'

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

/** The update that changes nothing: the twelve required fields as they are stored. */
export function unchanged(stored: StoredAgent): Record<string, unknown> {
  return Object.fromEntries(REQUIRED_AGENT_FIELDS.map(name => [name, stored[name]]))
}

/** The agent through the contract: a dry run of the empty mask. */
export async function readAgent({ call }: WorldApp, token: string, id: number) {
  const answer = await call('PATCH', `/persona/${id}?update_mask=&dry_run=true`, { token, body: {} })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return answer.json()
}

/** The agent of the recorded cases that has everything, Alice's. */
export const FULL_AGENT_ID = 11

/** Gives Bob, who only views that agent, the level of an editor: the shares that the rows of the fields begin from. */
export async function makeBobEditor({ database }: Pick<WorldApp, 'database'>): Promise<void> {
  await database.db
    .updateTable('persona_user')
    .set({ level: 'editor' })
    .where('persona_id', '=', FULL_AGENT_ID)
    .where('user_id', '=', BOB)
    .execute()
}
