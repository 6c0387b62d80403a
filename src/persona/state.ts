import { type RawBuilder, sql } from 'kysely'
import { type PersonaAccess, personaAccess } from '../auth/access.js'
import { callerStatement, userOfCaller } from '../auth/authenticate.js'
import type { ShareLevel, StarterMessageRow } from '../db/tables.js'
import { type RecentChange, recentChanges } from '../updates/recent.js'

export interface UserShare {
  id: string
  level: ShareLevel
}

export interface GroupShare {
  id: number
  level: ShareLevel
}

/** Everything of an agent that an update can change, and what only the operator changes (the last four). */
export interface PersonaContent {
  name: string
  description: string
  document_set_ids: number[]
  num_chunks: number | null
  is_public: boolean
  recency_bias: string
  llm_filter_extraction: boolean
  llm_relevance_filter: boolean
  tool_ids: number[]
  system_prompt: string | null
  task_prompt: string | null
  datetime_aware: boolean
  llm_model_provider_override: string | null
  llm_model_version_override: string | null
  starter_messages: StarterMessageRow[] | null
  users: UserShare[]
  groups: GroupShare[]
  uploaded_image_id: string | null
  icon_name: string | null
  search_start_date: string | null
  label_ids: number[]
  is_default_persona: boolean
  display_priority: number | null
  user_file_ids: string[]
  replace_base_system_prompt: boolean
  is_visible: boolean
  builtin_persona: boolean
  deleted: boolean
  owner_id: string | null
}

/** An agent as one statement found it. Times are milliseconds of the database's clock, hashes are hex. */
export interface PersonaState extends PersonaContent {
  id: number
  version: number
  audit_head: string
  field_versions: Record<string, number>
  access: PersonaAccess
  recent: RecentChange[]
  read_at_ms: number
  /** When the state arrived here, on this process's own clock: makes the database's time of any later moment. */
  received_ms: number
}

/** The scalar columns of an agent, with the SQL type that each has. The order is that of the table. */
export const PERSONA_COLUMN_TYPES = {
  name: 'text',
  description: 'text',
  num_chunks: 'double precision',
  is_public: 'boolean',
  is_visible: 'boolean',
  recency_bias: 'text',
  llm_filter_extraction: 'boolean',
  llm_relevance_filter: 'boolean',
  llm_model_provider_override: 'text',
  llm_model_version_override: 'text',
  starter_messages: 'json',
  uploaded_image_id: 'text',
  icon_name: 'text',
  search_start_date: 'timestamptz',
  is_default_persona: 'boolean',
  display_priority: 'integer',
  replace_base_system_prompt: 'boolean',
  system_prompt: 'text',
  task_prompt: 'text',
  datetime_aware: 'boolean',
  builtin_persona: 'boolean',
  deleted: 'boolean',
  owner_id: 'uuid',
} as const

export type PersonaColumn = keyof typeof PERSONA_COLUMN_TYPES

/**
 * SQL: the agent `p` as JSON of the shape `PersonaState`, as the user sees it; no row of `p`, no JSON.
 * One expression, so that it can ride on the statement that authenticates the caller.
 */
export function personaState(user: RawBuilder<unknown>): RawBuilder<PersonaState> {
  const scalars = Object.entries(PERSONA_COLUMN_TYPES).map(([column, type]) => {
    const value =
      type === 'timestamptz'
        ? sql`to_char(p.${sql.ref(column)} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
        : sql`p.${sql.ref(column)}`
    return sql`${sql.lit(column)}, ${value}`
  })
  return sql`json_build_object(
    'id', p.id,
    'version', p.version,
    'audit_head', encode(p.audit_head, 'hex'),
    'field_versions', p.field_versions,
    ${sql.join(scalars)},
    'tool_ids', array(select tool_id from persona_tool where persona_id = p.id order by tool_id),
    'document_set_ids', array(select document_set_id from persona_document_set where persona_id = p.id order by 1),
    'label_ids', array(select label_id from persona_label where persona_id = p.id order by label_id),
    'user_file_ids', array(select user_file_id from persona_user_file where persona_id = p.id
                           order by user_file_id collate "C"),
    'users', coalesce((select json_agg(json_build_object('id', user_id, 'level', level) order by user_id)
                       from persona_user where persona_id = p.id), '[]'),
    'groups', coalesce((select json_agg(json_build_object('id', user_group_id, 'level', level) order by user_group_id)
                        from persona_group where persona_id = p.id), '[]'),
    'access', ${personaAccess(user)},
    'recent', ${recentChanges('persona', sql.ref('p'), user)},
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000)`
}

/** Authenticates callers and reads the agent that each request names, in one statement. */
export const callerAndPersona = callerStatement('caller_and_persona', id => {
  return sql`(select ${personaState(userOfCaller)} from persona p where p.id = ${id})`
})
