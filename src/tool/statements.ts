import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import { type RowTypes, rowStatement } from '../db/statements/row-statement.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { AuditEntry } from '../updates/audit.js'
import { AUDIT_TYPES, insertAudit } from '../updates/statements.js'
import { maskedHeaders } from './snapshot.js'
import { type ToolState, toolState } from './state.js'

/** Who is looking, as parameters of a statement. */
export interface ToolViewerParameters {
  user: string | null
  manages_all: boolean
  managed_groups: number[]
}

/** The columns of a tool that an answer shows. `definition` is JSON text, null when it was sent or there is none. */
export interface ToolRow {
  version: number
  id: number
  name: string
  description: string
  definition: string | null
  display_name: string
  in_code_tool_id: string | null
  custom_headers: { key: string; value: string }[]
  passthrough_auth: boolean
  mcp_server_id: number | null
  user_id: string | null
  oauth_config_id: number | null
  oauth_config_name: string | null
  enabled: boolean
  chat_selectable: boolean
  agent_creation_selectable: boolean
  default_enabled: boolean
}

/** Reads the state of one tool as a caller sees it. */
export const readState = statement<ToolViewerParameters & { id: number }, { state: ToolState }>('tool_state', param => {
  return sql`select ${toolState(viewerOf(param))} as state from tool t where t.id = ${param('id')}::integer`
})

/** Locks one tool's row against other writers until the transaction ends. */
export const lockRow = statement<{ id: number }, { id: number }>('tool_lock', param => {
  return sql`select id from tool where id = ${param('id')}::integer for no key update`
})

/** Answers each stored tool, if it is still the version that the request was decided on. */
export const readRow = rowStatement<{ id: number; version: number }, ToolRow>(
  'tool_row',
  { id: 'integer', version: 'integer' },
  param => ({
    query: sql`
    select input.position, ${answerColumns(sql`d.content::text`, maskedHeaders)}
    from input join tool t on t.id = ${param('id')} and t.version = ${param('version')}
    left join tool_definition d on d.hash = t.definition_hash`,
  }),
)

/** Whether an OAuth configuration exists. */
export const readOauthConfig = statement<{ id: number }, { id: number }>('oauth_config', param => {
  return sql`select id from oauth_config where id = ${param('id')}::integer`
})

type WriteParameters = ToolViewerParameters &
  AuditEntry & {
    id: number
    version: number
    secrets_generation: number
    name: string
    display_name: string | null
    description: string
    definition_hash: string | null
    passthrough_auth: boolean
    oauth_config_id: number | null
    field_versions: string
    definition_text: string | null
    definition_bytes: number
    headers: string
    shown_headers: string
  }

const WRITE_TYPES: RowTypes<WriteParameters> = {
  ...AUDIT_TYPES,
  user: 'uuid',
  manages_all: 'boolean',
  managed_groups: 'integer[]',
  id: 'integer',
  version: 'integer',
  secrets_generation: 'integer',
  name: 'text',
  display_name: 'text',
  description: 'text',
  definition_hash: 'text',
  passthrough_auth: 'boolean',
  oauth_config_id: 'integer',
  field_versions: 'jsonb',
  definition_text: { single: 'json' },
  definition_bytes: 'integer',
  headers: 'json',
  shown_headers: 'json',
}

/** Which parts of a tool a write touches besides its row. */
export interface WriteShape {
  definition: boolean
  headers: boolean
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/**
 * The statement that stores decided updates and answers the new rows, in one round trip and its own transaction.
 * Like the agents': no answer and no change for a tool that is locked, moved or no longer manageable, whose secrets were
 * encrypted again meanwhile, or whose linked OAuth configuration does not exist.
 */
export function writeStatement(shape: WriteShape) {
  const key = `${shape.definition ? 'definition' : ''}+${shape.headers ? 'headers' : ''}`
  const known = writeStatements.get(key)
  if (known) return known
  const compiled = compileWrite(shape, key)
  writeStatements.set(key, compiled)
  return compiled
}

/** The rows that were written, with the values of each. */
const WRITTEN = sql`changed t join locked using (id) join input using (position)`

function compileWrite(shape: WriteShape, key: string) {
  const build = (param: Param<WriteParameters>) => {
    const viewer = {
      user: param('user'),
      managesAll: param('manages_all'),
      managedGroups: param('managed_groups'),
    }
    const locked = sql`locked as materialized (
        select t.id, input.position
        from input join tool t on t.id = ${param('id')} and t.version = ${param('version')}
        where t.secrets_generation = ${param('secrets_generation')}
          and (${viewer.user} is null or ${managesTool(viewer)})
          and (${param('oauth_config_id')} is null or exists (
            select from oauth_config where id = ${param('oauth_config_id')}))
        for no key update of t skip locked
      )`
    const parts = [
      locked,
      ...(shape.definition ? [storeDefinitions(param)] : []),
      changeRows(param),
      ...(shape.headers ? replaceHeaders(param) : []),
      insertAudit(WRITTEN, param),
    ]
    const definition = shape.definition ? sql`null::text` : sql`d.content::text`
    const stored = shape.definition ? sql`` : sql`left join tool_definition d on d.hash = t.definition_hash`
    const query = sql`
      select input.position, ${answerColumns(definition, param('shown_headers'))}
      from ${WRITTEN} ${stored}`
    return { parts, query }
  }
  return rowStatement<WriteParameters, ToolRow>(`tool_write(${key})`, WRITE_TYPES, build, 'id')
}

/** A definition is stored once for each hash; the json type keeps its text, and so the order of its keys. */
function storeDefinitions(param: Param<WriteParameters>): RawBuilder<unknown> {
  return sql`stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode(${param('definition_hash')}, 'hex'), ${param('definition_text')}, ${param('definition_bytes')}
        from locked join input using (position)
        on conflict (hash) do nothing)`
}

function changeRows(param: Param<WriteParameters>): RawBuilder<unknown> {
  return sql`changed as (
        update tool t set
          name = ${param('name')},
          display_name = ${param('display_name')},
          description = ${param('description')},
          definition_hash = decode(${param('definition_hash')}, 'hex'),
          passthrough_auth = ${param('passthrough_auth')},
          oauth_config_id = ${param('oauth_config_id')},
          version = t.version + 1,
          field_versions = t.field_versions || ${param('field_versions')},
          audit_head = decode(${param('hash')}, 'hex'),
          audit_count = t.audit_count + 1
        from locked join input using (position) where t.id = locked.id
        returning t.*)`
}

/** Positions are put in place rather than deleted and inserted: one statement must not do both to one key. */
function replaceHeaders(param: Param<WriteParameters>): RawBuilder<unknown>[] {
  return [
    sql`new_headers as (
        select t.id as tool_id, (g.position - 1)::integer as position, g.value ->> 'name' as name,
          g.value ->> 'fingerprint' as fingerprint, (g.value ->> 'kept')::integer as kept, g.value ->> 'key_id' as key_id,
          g.value ->> 'nonce' as nonce, g.value ->> 'ciphertext' as ciphertext
        from ${WRITTEN} cross join json_array_elements(${param('headers')}) with ordinality g (value, position))`,
    sql`removed_headers as (
        delete from tool_header h using ${WRITTEN}
        where h.tool_id = t.id and h.position >= json_array_length(${param('headers')}))`,
    sql`put_headers as (
        insert into tool_header (tool_id, position, name, key_id, nonce, ciphertext, fingerprint)
        select g.tool_id, g.position, g.name, coalesce(g.key_id, kept.key_id),
          coalesce(decode(g.nonce, 'base64'), kept.nonce), coalesce(decode(g.ciphertext, 'base64'), kept.ciphertext),
          decode(g.fingerprint, 'hex')
        from new_headers g
        left join tool_header kept on kept.tool_id = g.tool_id and kept.position = g.kept
        on conflict (tool_id, position) do update set name = excluded.name, key_id = excluded.key_id,
          nonce = excluded.nonce, ciphertext = excluded.ciphertext, fingerprint = excluded.fingerprint)`,
  ]
}

function answerColumns(definition: RawBuilder<unknown>, customHeaders: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`t.version, t.id, t.name, t.description, ${definition} as definition,
      coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id, ${customHeaders} as custom_headers,
      t.passthrough_auth, t.mcp_server_id, t.user_id, t.oauth_config_id,
      (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name,
      t.enabled, t.chat_selectable, t.agent_creation_selectable, t.default_enabled`
}

function viewerOf(param: Param<ToolViewerParameters>): Viewer {
  return {
    user: sql`${param('user')}::uuid`,
    managesAll: sql`${param('manages_all')}::boolean`,
    managedGroups: sql`${param('managed_groups')}::integer[]`,
  }
}
