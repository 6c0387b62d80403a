import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'

/** SQL: the custom headers of the tool `t` as the wire shows them, each value its mask. */
export const maskedHeaders: RawBuilder<unknown> = sql`coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]')`

/**
 * SQL: the wire's ToolSnapshot of the tool `t`, fields in the order of the interface document.
 * `definition` is a json expression, `oauthConfigName` a text expression.
 */
export function toolSnapshot(
  definition: RawBuilder<unknown>,
  oauthConfigName: RawBuilder<unknown>,
  customHeaders: RawBuilder<unknown>,
): RawBuilder<unknown> {
  return sql`json_build_object(
    'id', t.id,
    'name', t.name,
    'description', t.description,
    'definition', ${definition},
    'display_name', coalesce(t.display_name, t.name),
    'in_code_tool_id', t.in_code_tool_id,
    'custom_headers', ${customHeaders},
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'oauth_config_name', ${oauthConfigName},
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled)`
}

/** SQL: the snapshots of the tools with these ids as a JSON array in the order of the ids, secrets as masks or null. */
export function toolSnapshots(ids: RawBuilder<unknown>, viewer: Viewer): RawBuilder<unknown> {
  const headers = sql`case when ${managesTool(viewer)} then ${maskedHeaders} end`
  return sql`coalesce((
    select json_agg(${toolSnapshot(sql`d.content`, sql`o.name`, headers)} order by t.id)
    from tool t
    left join tool_definition d on d.hash = t.definition_hash
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any(${ids})), '[]')`
}
