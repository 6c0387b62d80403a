import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import { VIEWER_TYPES, type ViewerParameters, viewerOf, viewerOfRow, viewerStands } from '../auth/viewer.js'
import { type RowTypes, rowStatement } from '../db/statements/row-statement.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { AuditEntry, RequestKey } from '../updates/audit.js'
import { AUDIT_TYPES, insertAudit } from '../updates/audit-rows.js'
import { keyIsFree } from '../updates/idempotency.js'
import { changedColumns, nextVersion } from '../updates/statements.js'
import type { CachedDefinitions } from './definition-cache.js'
import { COLUMNS } from './fields.js'
import type { ToolSnapshot } from './schema.js'
import { markedDefinition, maskedHeaders, snapshotFields, type ToolState, toolState } from './snapshot.js'

/** The columns of a tool that an answer shows. `definition` is what `markedDefinition` says, null when it was sent. */
export type ToolRow = Omit<ToolSnapshot, 'definition'> & { version: number; definition: string | null }

/** Reads the state of one tool as a caller sees it. */
export const readState = statement<ViewerParameters & { id: number }, { state: ToolState }>('tool_state', param => {
  return sql`select ${toolState(viewerOf(param))} as state from tool t where t.id = ${param('id')}::integer`
})

type ReadParameters = ViewerParameters & CachedDefinitions & { id: number; version: number; managed: boolean }

/** Answers a tool if version and caller are still those decided on; where not `managed`, without masks of header values. */
export const readTool = storedTool('tool_row', param => {
  const masks = sql`case when ${param('managed')} then ${maskedHeaders} end`
  return answerColumns(markedDefinition(param('cached_definitions')), masks)
})

/** The same, and answers the version alone. */
export const readVersion = storedTool('tool_version', () => sql`t.version`)

function storedTool(name: string, columns: (param: Param<ReadParameters>) => RawBuilder<unknown>) {
  const own = { id: 'integer', version: 'integer', managed: 'boolean', cached_definitions: 'bytea[]' }
  return rowStatement<ReadParameters, ToolRow>(name, { ...VIEWER_TYPES, ...own }, param => {
    const viewer = viewerOfRow(param)
    return {
      query: sql`
    select input.position, ${columns(param)}
    from input join tool t on t.id = ${param('id')} and t.version = ${param('version')}
    where ${viewerStands(param)} and (not ${param('managed')} or ${viewer.user} is null or ${managesTool(viewer)})`,
    }
  })
}

/** Whether an OAuth configuration exists that the viewer may link. */
export const readOauthConfig = statement<ViewerParameters & { id: number }, { id: number }>('oauth_config', param => {
  return sql`select o.id from oauth_config o where o.id = ${param('id')}::integer and ${isLinkable(viewerOf(param))}`
})

/** SQL: the OAuth configuration `o` is linked by its owner, and by who manages all actions (DECISIONS section 6). */
function isLinkable({ managesAll, user }: Viewer): RawBuilder<boolean> {
  return sql`(${managesAll} or o.owner_id = ${user})`
}

/** A stored definition as JSON text, by its hash in hex. */
export const readDefinition = rowStatement<{ hash: string }, { definition: string }>(
  'tool_definition',
  { hash: 'text' },
  param => ({
    query: sql`
    select input.position, d.content::text as definition
    from input join tool_definition d on d.hash = decode(${param('hash')}, 'hex')`,
  }),
)

type WriteParameters = ViewerParameters &
  CachedDefinitions &
  AuditEntry &
  RequestKey & {
    id: number
    version: number
    secrets_generation: number
    changed_columns: string
    definition_hash: string | null
    oauth_config_id: number | null
    field_versions: string
    definition_text: string | null
    definition_bytes: number
    headers: string
    shown_headers: string
  }

const WRITE_TYPES: RowTypes<WriteParameters> = {
  ...VIEWER_TYPES,
  ...AUDIT_TYPES,
  id: 'integer',
  version: 'integer',
  secrets_generation: 'integer',
  changed_columns: 'jsonb',
  definition_hash: 'text',
  oauth_config_id: 'integer',
  field_versions: 'jsonb',
  definition_text: 'text',
  definition_bytes: 'integer',
  headers: 'json',
  shown_headers: 'json',
  cached_definitions: 'bytea[]',
}

/** Which parts of a tool a write touches besides its row. A `shared` definition is one that is stored already: see `isStored`. */
export interface WriteShape {
  definition: false | 'single' | 'shared'
  headers: boolean
  /** Whether only the version is answered. */
  minimal: boolean
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/**
 * The statement that stores decided updates and answers the new rows, like the agents' one: nothing for a tool that is locked, moved or
 * no longer manageable, whose secrets were encrypted again meanwhile, or whose OAuth configuration may not be linked.
 */
export function writeStatement(shape: WriteShape) {
  const parts = [shape.definition && `${shape.definition} definition`, shape.headers && 'headers']
  const key = `${parts.map(part => part || '').join('+')}${shape.minimal ? ' minimal' : ''}`
  const existing = writeStatements.get(key)
  if (existing) return existing
  const compiled = compileWrite(shape, key)
  writeStatements.set(key, compiled)
  return compiled
}

/** The rows that were written, with the values of each. */
const WRITTEN = sql`changed join locked input using (position)`

function compileWrite(shape: WriteShape, key: string) {
  const build = (param: Param<WriteParameters>) => {
    const viewer = viewerOfRow(param)
    const locked = sql`locked as materialized (
        select input.*
        from input join tool t on t.id = ${param('id')} and t.version = ${param('version')}
        where t.secrets_generation = ${param('secrets_generation')} and ${keyIsFree(param('idempotency_key'))}
          and ${viewerStands(param)} and (${viewer.user} is null or ${managesTool(viewer)})
          and (${param('oauth_config_id')} is null or exists (
            select from oauth_config o where o.id = ${param('oauth_config_id')}
              and (o.id = t.oauth_config_id or ${isLinkable(viewer)})))${shape.definition === 'shared' ? sql` and ${isStored(param)}` : sql``}
        for no key update of t skip locked
      )`
    // One that is sent is put into the answer here.
    const definition = shape.definition ? sql`null::text` : markedDefinition(param('cached_definitions'))
    const parts = [
      locked,
      ...(shape.definition ? [storeDefinitions(param)] : []),
      changeRows(param, shape.minimal ? sql`t.version` : answerColumns(definition, param('shown_headers'))),
      ...(shape.headers ? replaceHeaders(param) : []),
      insertAudit('tool', WRITTEN, param),
    ]
    return { parts, query: sql`select * from changed` }
  }
  // One that may be large travels by itself, without the copies that a list costs.
  const types = shape.definition === 'single' ? { ...WRITE_TYPES, definition_text: { single: 'text' } } : WRITE_TYPES
  return rowStatement<WriteParameters, ToolRow>(`tool_write(${key})`, types, build, 'id')
}

/** A definition is stored once for each hash. A shared statement stores none, but takes the lock that keeps pruning away. */
function storeDefinitions(param: Param<WriteParameters>): RawBuilder<unknown> {
  return sql`stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode(${param('definition_hash')}, 'hex'), ${param('definition_text')}::json, ${param('definition_bytes')}
        from locked input
        where not ${isStored(param)}
        on conflict (hash) do nothing)`
}

/** SQL: the definition is stored. In a batch only such a one is referred to: to store it could wait for whoever stores the same. */
function isStored(param: Param<WriteParameters>): RawBuilder<boolean> {
  return sql`exists (select from tool_definition where hash = decode(${param('definition_hash')}, 'hex'))`
}

function changeRows(param: Param<WriteParameters>, answer: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`changed as (
        update tool t set
          ${changedColumns('t', COLUMNS, param('changed_columns'))},
          definition_hash = decode(${param('definition_hash')}, 'hex'),
          ${nextVersion('t', param)}
        from locked input where t.id = ${param('id')}
        returning input.position, ${answer})`
}

/** Positions are put in place rather than deleted and inserted: one statement must not do both to one key. */
function replaceHeaders(param: Param<WriteParameters>): RawBuilder<unknown>[] {
  return [
    sql`new_headers as (
        select ${param('id')} as tool_id, (g.position - 1)::integer as position, g.value ->> 'name' as name,
          g.value ->> 'fingerprint' as fingerprint, (g.value ->> 'kept')::integer as kept, g.value ->> 'key_id' as key_id,
          g.value ->> 'nonce' as nonce, g.value ->> 'ciphertext' as ciphertext
        from ${WRITTEN} cross join json_array_elements(${param('headers')}) with ordinality g (value, position))`,
    sql`removed_headers as (
        delete from tool_header h using ${WRITTEN}
        where h.tool_id = ${param('id')} and h.position >= json_array_length(${param('headers')}))`,
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

/** SQL: the columns of a `ToolRow` of the tool `t`. */
export function answerColumns(
  definition: RawBuilder<unknown>,
  customHeaders: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const oauth_config_name = sql`(select o.name from oauth_config o where o.id = t.oauth_config_id)`
  const fields = snapshotFields({ definition, oauth_config_name, custom_headers: customHeaders })
  return sql`t.version, ${sql.join(fields.map(([name, expression]) => sql`${expression} as ${sql.raw(name)}`))}`
}
