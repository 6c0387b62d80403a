import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, versionedState } from '../updates/statements.js'
import { COLUMNS, type ToolContent } from './fields.js'

/** A stored custom header without its secret. `fingerprint` is hex; its first digits are the mask. */
export interface StoredHeader {
  name: string
  key_id: string
  fingerprint: string
}

/** A tool as one statement found it. The definition only by its hash. */
export interface ToolState extends ToolContent, VersionedState {
  secrets_generation: number
  headers: StoredHeader[]
  /** By what the viewer manages it; null where they do not. */
  managed_as: 'all' | 'owner' | 'group' | null
  /** The size of its definition. */
  definition_bytes: number
}

/** SQL: the tool `t` as JSON of the shape `ToolState`, as the viewer sees it. */
export function toolState(viewer: Viewer): RawBuilder<ToolState> {
  const columns = COLUMNS.map(([name, { column }]) => [name, columnValue('t', name, column)])
  return versionedState('tool', 't', viewer.user, {
    ...Object.fromEntries(columns),
    definition_hash: sql`encode(t.definition_hash, 'hex')`,
    secrets_generation: sql`t.secrets_generation`,
    headers: sql`coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]')`,
    definition_bytes: sql`coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0)`,
    managed_as: sql`case when ${managesTool(viewer)} then
      case when ${viewer.managesAll} then 'all' when t.user_id = ${viewer.user} then 'owner' else 'group' end end`,
  })
}

/** Authenticates callers and reads the tool that each request names, in one statement. */
export const callerAndTool = callerStatement('caller_and_tool', id => {
  return sql`(select ${toolState(viewerOfCaller)} from tool t where t.id = ${id})`
})
