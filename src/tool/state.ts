import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import { type RecentChange, recentChanges } from '../updates/recent.js'

/** A stored custom header without its secret. `fingerprint` is hex; its first digits are the mask. */
export interface StoredHeader {
  name: string
  key_id: string
  fingerprint: string
}

/** A tool as one statement found it. Hashes are hex, times are milliseconds of the database's clock. */
export interface ToolState {
  id: number
  version: number
  audit_head: string
  field_versions: Record<string, number>
  name: string
  display_name: string | null
  description: string
  in_code_tool_id: string | null
  definition_hash: string | null
  passthrough_auth: boolean
  mcp_server_id: number | null
  user_id: string | null
  oauth_config_id: number | null
  enabled: boolean
  chat_selectable: boolean
  agent_creation_selectable: boolean
  default_enabled: boolean
  secrets_generation: number
  headers: StoredHeader[]
  manageable: boolean
  recent: RecentChange[]
  read_at_ms: number
  received_ms: number
}

/** SQL: the tool `t` as JSON of the shape `ToolState`, as the viewer sees it. The definition only by its hash. */
export function toolState(viewer: Viewer): RawBuilder<ToolState> {
  return sql`json_build_object(
    'id', t.id,
    'version', t.version,
    'audit_head', encode(t.audit_head, 'hex'),
    'field_versions', t.field_versions,
    'name', t.name,
    'display_name', t.display_name,
    'description', t.description,
    'in_code_tool_id', t.in_code_tool_id,
    'definition_hash', encode(t.definition_hash, 'hex'),
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled,
    'secrets_generation', t.secrets_generation,
    'headers', coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]'),
    'manageable', ${managesTool(viewer)},
    'recent', ${recentChanges('tool', sql.ref('t'), viewer.user)},
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000)`
}

/** Authenticates callers and reads the tool that each request names, in one statement. */
export const callerAndTool = callerStatement('caller_and_tool', id => {
  return sql`(select ${toolState(viewerOfCaller)} from tool t where t.id = ${id})`
})
