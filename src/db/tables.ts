import type { ColumnType, Generated, GeneratedAlways } from 'kysely'

/** A timestamp: read as ISO 8601 text in UTC with microseconds, written as any text that PostgreSQL reads. */
type Timestamp = ColumnType<string, string, string>
type CreatedAt = ColumnType<string, string | undefined, never>

/** A `json` column: read parsed, written as JSON text, so that keys keep their order. */
type JsonText<T> = ColumnType<T, string, string>

export type Permission = 'basic' | 'manage:actions' | 'admin'
export type UserKind = 'person' | 'service_account'
export type ShareLevel = 'viewer' | 'editor'
export type ResourceKind = 'persona' | 'tool'

export interface UserAccountTable {
  id: Generated<string>
  email: string
  kind: UserKind
  active: Generated<boolean>
  permissions: Generated<Permission[]>
  created_at: CreatedAt
}

export interface CcPairTable {
  id: Generated<number>
  name: string | null
  source: string
  access_type: 'public' | 'private' | 'sync'
}

/** What moves with each effective change of an agent or a tool, together with one audit row. */
export interface VersionedTable {
  created_at: CreatedAt
  version: Generated<number>
  field_versions: ColumnType<Record<string, number>, string | undefined, string>
  audit_head: Generated<Buffer>
  audit_count: Generated<number>
  audit_anchor: Generated<Buffer>
  audit_anchor_version: Generated<number>
  audit_anchor_at: Timestamp | null
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
  secrets_generation: Generated<number>
}

export interface ToolHeaderTable {
  tool_id: number
  position: number
  name: string
  key_id: string
  nonce: Buffer
  ciphertext: Buffer
  fingerprint: Buffer
}

export interface StarterMessageRow {
  name: string
  message: string
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
  starter_messages: JsonText<StarterMessageRow[]> | null
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

export interface TokenTable {
  id: Generated<number>
  hash: Buffer
  user_id: string
  scopes: Permission[] | null
  persona_ids: number[] | null
  tool_ids: number[] | null
  requires_if_match: Generated<boolean>
  created_at: CreatedAt
  expires_at: Timestamp | null
  revoked_at: Timestamp | null
  last_used_at: Timestamp | null
}

export interface AuditTable {
  resource_kind: ResourceKind
  resource_id: number
  version_before: number
  version_after: number
  at: Timestamp
  actor_id: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  /** Makes `identity_hash` unguessable; gone, with the clear text, once the person is erased. */
  salt: string | null
  /** The commitment to actor and client address that `hash` covers in their place; null in rows of versions before 1.2. */
  identity_hash: Buffer | null
  fields: string[]
  difference: JsonText<Record<string, { from: unknown; to: unknown }>> | null
  difference_bytes: number
  difference_hash: Buffer
  /** The definition that the change replaced, which keeps that text alive. */
  definition_before: Buffer | null
  /** The hash of the whole content after the change; null where nothing is left, and in rows of versions before 1.2. */
  content_hash: Buffer | null
  previous_hash: Buffer
  hash: Buffer
  idempotency_key: Buffer | null
  request_fingerprint: Buffer | null
}

export interface AccessEventTable {
  kind: string
  subject: string
  number: number
  at: Timestamp
  action: string
  actor: string
  request_id: string
  client_address: string
  command: string | null
  salt: string | null
  identity_hash: Buffer
  person: string | null
  person_salt: string | null
  person_hash: Buffer | null
  detail: JsonText<unknown>
  previous_hash: Buffer
  hash: Buffer
}

export interface DeploymentKeyTable {
  one: GeneratedAlways<boolean>
  key_id: string
  nonce: Buffer
  ciphertext: Buffer
}

/** Tables of which only the schema says what columns they have: statements name them, and apply writes them by the document. */
type PlainTable =
  | 'user_group'
  | 'user_group_member'
  | 'label'
  | 'oauth_config'
  | 'mcp_server'
  | 'federated_connector'
  | 'document_set'
  | `document_set_${'user' | 'group' | 'cc_pair' | 'federated_connector'}`
  | 'user_file'
  | 'tool_definition'
  | `persona_${'tool' | 'document_set' | 'label' | 'user_file' | 'user' | 'group'}`
  | 'access_chain'
  | 'audit_upgrade_head'
  | 'unchanged_update'

export interface Tables extends Record<PlainTable, Record<string, unknown>> {
  user_account: UserAccountTable
  cc_pair: CcPairTable
  tool: ToolTable
  tool_header: ToolHeaderTable
  persona: PersonaTable
  token: TokenTable
  audit: AuditTable
  access_event: AccessEventTable
  deployment_key: DeploymentKeyTable
}
