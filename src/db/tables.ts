import type { ColumnType, Generated, Selectable } from 'kysely'

/** The largest value of an `integer` column. */
export const INT4_MAX = 2_147_483_647

/** A timestamp. It is read as ISO 8601 in UTC with microseconds, and written as any text that PostgreSQL accepts. */
type Timestamp = ColumnType<string, string, string>
type CreatedAt = ColumnType<string, string | undefined, never>

/** A `json` column. It is read as a parsed value and written as JSON text. Unlike `jsonb`, it keeps the order of keys. */
type JsonText<T> = ColumnType<T, string, string>

export type Permission = 'basic' | 'manage:actions' | 'admin'

/** A scope of a token. `read` and `runtime` forbid all writes; `propose` forbids all writes except proposals. */
export type Scope = Permission | 'read' | 'runtime' | 'propose'
export type UserKind = 'person' | 'service_account'
export type ShareLevel = 'viewer' | 'editor'
export type ResourceKind = 'persona' | 'tool'

/** `by`: the user's id; null for the operator. `at`: ms since 1970. `fields` excludes fields that changed again later. */
export interface RecentChange {
  by: string | null
  at: number
  fields: string[]
}

/** The columns that agents and tools share. */
export interface VersionedTable {
  created_at: CreatedAt
  version: Generated<number>
  /** The last change, and the changes in the fifteen minutes before the last change. */
  recent_changes: ColumnType<RecentChange[], string | undefined, string>
  /** The hash of the newest audit row; zeros if there is no audit row. */
  audit_head: Generated<Buffer>
  /** The hash of the newest pruned audit row; zeros if none has been pruned. */
  audit_anchor: Generated<Buffer>
}

export interface ToolTable extends VersionedTable {
  id: Generated<number>
  name: string
  display_name: string | null
  description: Generated<string>
  in_code_tool_id: string | null
  definition_hash: Buffer | null
  passthrough_auth: Generated<boolean>
  mcp_server_id: number | null
  user_id: string | null
  oauth_config_id: number | null
  enabled: Generated<boolean>
  chat_selectable: Generated<boolean>
  agent_creation_selectable: Generated<boolean>
  default_enabled: Generated<boolean>
}

export interface PersonaTable extends VersionedTable {
  id: Generated<number>
  name: string
  description: string
  num_chunks: number | null
  is_public: Generated<boolean>
  is_visible: Generated<boolean>
  recency_bias: string
  llm_filter_extraction: boolean
  llm_relevance_filter: boolean
  llm_model_provider_override: string | null
  llm_model_version_override: string | null
  starter_messages: JsonText<{ name: string; message: string }[]> | null
  uploaded_image_id: string | null
  icon_name: string | null
  search_start_date: Timestamp | null
  is_default_persona: Generated<boolean>
  display_priority: number | null
  replace_base_system_prompt: Generated<boolean>
  system_prompt: string | null
  task_prompt: string | null
  datetime_aware: Generated<boolean>
  builtin_persona: Generated<boolean>
  deleted: Generated<boolean>
  owner_id: string | null
}

export interface AuditTable {
  resource_kind: ResourceKind
  resource_id: number
  version_before: number
  version_after: number
  at: Timestamp
  actor_id: string | null
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  fields: string[]
  difference: JsonText<Record<string, { from: unknown; to: unknown }>> | null
  difference_bytes: number
  difference_hash: Buffer
  /** The hash of the replaced definition. The definition is kept as long as an audit row has its hash. */
  definition_before: Buffer | null
  /** `previous_hash` and `hash` are null in rows that versions before 3.0 wrote. */
  previous_hash: Buffer | null
  hash: Buffer | null
  /** Who could no longer see the agent after the change: users, groups, or everyone. */
  taken_from: JsonText<object> | null
}

export type ProposalState = 'open' | 'approved' | 'rejected' | 'withdrawn' | 'closed'

interface NamedTable {
  id: Generated<number>
  name: string
}

/** A view of the tokens, each with its user and rights (DECISIONS sections 6 and 7). */
export interface CallerView {
  hash: Buffer
  token_id: number
  user_id: string
  email: string
  kind: UserKind
  /** False if the token is revoked or the user is inactive. */
  valid: boolean
  expired: boolean
  /** ISO 8601 in UTC with whole seconds. */
  expires_at: string | null
  /** True if no use was recorded within the last minute. */
  use_is_stale: boolean
  scopes: Scope[] | null
  persona_ids: number[] | null
  tool_ids: number[] | null
  requires_if_match: boolean
  /** The position in `PERMISSIONS`, counted from 1. */
  permission: number
  managed_groups: number[]
  /** All rights as one string, to detect changed rights. */
  grants: string
}

type DocumentSetLink<Ends> = { document_set_id: number } & Ends
type PersonaLink<Ends> = { persona_id: number } & Ends

export interface Tables {
  user_account: {
    id: Generated<string>
    email: string
    kind: UserKind
    active: Generated<boolean>
    permissions: Generated<Permission[]>
    created_at: CreatedAt
  }
  user_group: NamedTable & { permissions: Generated<Permission[]> }
  user_group_member: { user_id: string; user_group_id: number; is_manager: Generated<boolean> }
  cc_pair: { id: Generated<number>; name: string | null; source: string; access_type: 'public' | 'private' | 'sync' }
  label: NamedTable
  oauth_config: NamedTable & { owner_id: string | null }
  mcp_server: NamedTable & { owner_id: string | null }
  federated_connector: NamedTable & { source: string }
  document_set: NamedTable & {
    description: string | null
    is_public: Generated<boolean>
    is_up_to_date: Generated<boolean>
  }
  document_set_user: DocumentSetLink<{ user_id: string }>
  document_set_group: DocumentSetLink<{ user_group_id: number }>
  document_set_cc_pair: DocumentSetLink<{ cc_pair_id: number }>
  document_set_federated_connector: DocumentSetLink<{ federated_connector_id: number; entities: JsonText<unknown> }>
  user_file: { id: string; name: string; owner_id: string }
  tool: ToolTable
  shown_tool: Selectable<ToolTable>
  shown_document_set: { id: number }
  tool_header: {
    tool_id: number
    position: number
    name: string
    key_id: string
    nonce: Buffer
    ciphertext: Buffer
    mask: Buffer
  }
  sealed_header: { tool_id: number; position: number } & Record<
    'name' | 'mask' | 'key_id' | 'nonce' | 'ciphertext',
    string
  >
  tool_definition: {
    hash: Buffer
    content: JsonText<unknown>
    size_bytes: number
    created_at: CreatedAt
    function_names: Generated<readonly string[]>
  }
  persona: PersonaTable
  /** A view. Only the columns that statements use are declared. */
  shown_persona: Selectable<PersonaTable> & Record<'tool_ids' | 'document_set_ids' | 'label_ids', number[]>
  persona_tool: PersonaLink<{ tool_id: number; attached_by: string | null }>
  persona_document_set: PersonaLink<{ document_set_id: number }>
  persona_label: PersonaLink<{ label_id: number }>
  persona_user_file: PersonaLink<{ user_file_id: string }>
  persona_user: PersonaLink<{ user_id: string; level: Generated<ShareLevel> }>
  persona_group: PersonaLink<{ user_group_id: number; level: Generated<ShareLevel> }>
  token: {
    id: Generated<number>
    hash: Buffer
    user_id: string
    scopes: Scope[] | null
    persona_ids: number[] | null
    tool_ids: number[] | null
    requires_if_match: Generated<boolean>
    created_at: CreatedAt
    expires_at: Timestamp | null
    revoked_at: Timestamp | null
    last_used_at: Timestamp | null
  }
  caller: CallerView
  audit: AuditTable
  new_audit: AuditTable // a view of `audit` for inserts
  /** `author`: the user's email, or the user's id if the account no longer exists; `agentctl` for the operator. */
  audit_entry: AuditTable & { action: 'created' | 'updated' | 'deleted' | 'restored' | 'applied'; author: string }
  access_event: {
    id: Generated<number>
    kind: string
    subject: string
    at: Timestamp
    action: string
    /** The user who read the secrets; null for the operator. */
    actor_id: string | null
    token_id: number | null
    request_id: string
    client_address: string
    command: string | null
    detail: JsonText<unknown>
  }
  request_key: {
    key: Buffer
    fingerprint: Buffer | null
    key_id: string | null
    resource_id: number | null
    version: number | null
    at: Generated<string>
  }
  proposal: {
    id: Generated<number>
    resource_kind: ResourceKind
    resource_id: number
    base_version: number
    author_id: string
    message: string
    /** The requested values. A hash replaces a definition, and masks replace the values of a tool's headers. */
    fields: JsonText<Record<string, unknown>>
    definition_hash: Buffer | null
    size_bytes: number
    created_at: CreatedAt
    /** `closed`: the agent or tool was deleted. */
    state: Generated<ProposalState>
    closed_at: Timestamp | null
    closed_by: string | null
    reason: string | null
    /** The positions in the feed of changes at which the proposal was opened and closed. */
    opened_transaction_id: Generated<string | null>
    opened_place: Generated<string>
    closed_transaction_id: string | null
    closed_place: string | null
  }
  schema_requirement: { migration: string; oldest_program: string }
}
