import { type RawBuilder, sql } from 'kysely'
import { managesTool, type Viewer } from '../auth/access.js'
import type { Caller } from '../auth/caller.js'
import { VIEWER_TYPES, type ViewerParameters, viewerOf, viewerOfRow, viewerStands } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { pageRows } from '../db/statements/page-rows.js'
import { type RowTypes, rowStatement } from '../db/statements/row-statement.js'
import { type Executor, isOnly, type Param, statement } from '../db/statements/statement.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import type { AuditEntry, RequestKey } from '../updates/audit.js'
import { AUDIT_TYPES, insertAudit } from '../updates/audit-rows.js'
import { keyIsFree } from '../updates/idempotency.js'
import type { Past } from '../updates/past.js'
import { changedColumns, jsonRow, nextVersion } from '../updates/statements.js'
import type { CachedDefinitions } from './definition-cache.js'
import { COLUMNS } from './fields.js'
import type { ToolSnapshot } from './schema.js'
import {
  markedDefinition,
  maskedHeaders,
  pastHeaders,
  pastTools,
  snapshotFields,
  type ToolState,
  toolState,
} from './snapshot.js'

/** The columns of a tool that an answer shows. `definition` is what `markedDefinition` says, null when it was sent. */
export type ToolRow = Omit<ToolSnapshot, 'definition'> & { version: number; definition: string | null }

/** Reads the state of one tool as a caller sees it. */
export const readState = statement<ViewerParameters & { id: number }, { state: ToolState }>('tool_state', param => {
  return sql`select ${toolState(viewerOf(param))} as state from tool t where t.id = ${param('id')}::integer`
})

type ReadParameters = ViewerParameters & CachedDefinitions & { id: number; version: number; managed: boolean }

/** Answers a tool if version and caller are still those decided on; masks of header values only where `managed`. */
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

/** SQL: the OAuth configuration `o` is linked by its owner, and with `manage:actions` (DECISIONS section 6). */
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

/** Which parts of a tool a write touches besides its row. A `shared` definition is stored already: see `isStored`. */
export interface WriteShape {
  definition: false | 'single' | 'shared'
  headers: boolean
  /** Whether only the version is answered. */
  minimal: boolean
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/** Stores decided updates and answers the new rows: none for a tool that is locked, moved, no longer manageable or encrypted again. */
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

/** A definition is stored once for each hash. A shared statement stores none, but takes the lock against pruning. */
function storeDefinitions(param: Param<WriteParameters>): RawBuilder<unknown> {
  return sql`stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode(${param('definition_hash')}, 'hex'), ${param('definition_text')}::json, ${param('definition_bytes')}
        from locked input
        where not ${isStored(param)}
        on conflict (hash) do nothing)`
}

/** SQL: the definition is stored. A batch refers only to such: storing one could wait for another that stores the same. */
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

/* Tools as they were, by themselves or in the answer of an agent. */

/** A tool, and what the fields that changed since were then. */
type PastTool = Pick<Past, 'id' | 'values'>

/** What was different then, as JSON text: of each tool by its id the columns and the headers as they are shown. */
export function pastRecords(pasts: readonly PastTool[]): string {
  return JSON.stringify(Object.fromEntries(pasts.map(({ id, values }) => [id, pastRecord(values)])))
}

function pastRecord({ definition, ...columns }: Past['values']): object {
  if (definition === undefined) return columns
  return { ...columns, definition_hash: definition === null ? null : `\\x${definition}` }
}

/** About how many bytes the tools took then, the hashes of their definitions, and the tools whose one is gone. */
export async function pastToolSizes(executor: Executor, pasts: readonly PastTool[]): Promise<PastSizes> {
  const ids = pasts.map(({ id }) => id)
  const [row] = await readPastSizes.run(executor, { ids, past: pastRecords(pasts) })
  if (row === undefined) throw new Error('the statement of sizes answered no row')
  return row
}

type PastParameters = { ids: number[]; past: string }

interface PastSizes {
  bytes: number
  definitions: string[]
  gone: number[]
}

const readPastSizes = statement<PastParameters, PastSizes>('past_tools_size', param => {
  const past = sql`${param('past')}::json -> stored.id::text`
  return sql`
    select coalesce(sum(coalesce(d.size_bytes, 0) + octet_length(t.description)), 0)::integer as bytes,
      coalesce(array_agg(distinct encode(d.hash, 'hex')) filter (where d.hash is not null), '{}') as definitions,
      coalesce(array_agg(t.id) filter (where t.definition_hash is not null and d.hash is null), '{}') as gone
    from tool stored cross join lateral json_populate_record(stored, coalesce(${past}, '{}')) t
    left join tool_definition d on d.hash = t.definition_hash
    where stored.id = any(${param('ids')}::integer[])`
})

type PastToolParameters = ViewerParameters & PastParameters & CachedDefinitions

/** One tool as it was; its version is that of now. */
export const readPastTool = statement<PastToolParameters, ToolRow>('past_tool', param => {
  const tools = pastTools(sql`${param('ids')}::integer[]`, sql`${param('past')}::json`, viewerOf(param))
  return sql`select ${answerColumns(markedDefinition(sql`${param('cached_definitions')}::bytea[]`), pastHeaders)} from ${tools}`
})

/* Lists of tools, a page at a time by id. Tools are not secret to a signed-in caller (DECISIONS section 6). */

interface Parameters {
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** A constant, so that the planner knows that a page is short. */
const MOST = sql.lit(PAGE_RECORDS_MAX + 1)

const OWNER = jsonRow(sql`select u.id, u.email from user_account u where u.id = t.user_id`)
const RECORD = sql`${jsonRow(sql`
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, ${OWNER} as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag`)}::text`

/** The statements of a page, and of one of a name: of all tools, and of those that a token is bound to. */
const PAGES = {
  all: [pageOf('all', false), pageOf('all', true)],
  bound: [pageOf('bound', false), pageOf('bound', true)],
} as const

/** Reads `rows` tools after an id that the token may see. */
export async function readToolPage(
  database: Database,
  { token }: Caller,
  { name }: AskedPage,
  after: number,
  rows: number,
): Promise<PageRow[]> {
  const [page, pageOfName] = PAGES[token.toolIds === null ? 'all' : 'bound']
  const parameters = { after, rows, name: name ?? '', ids: token.toolIds ?? [] }
  return await (name === undefined ? page : pageOfName).run(database.db, parameters)
}

function pageOf(scope: 'all' | 'bound', isNamed: boolean) {
  return statement<Parameters, PageRow>(`tool_page(${scope}${isNamed ? ' of a name' : ''})`, param => {
    const named = isNamed ? sql`and ${isOnly(sql`t.name`, sql`${param('name')}::text`)}` : sql``
    const bound = scope === 'bound' ? sql`and t.id = any(${param('ids')}::integer[])` : sql``
    const order = isNamed ? sql`t.name, t.id` : sql`t.id`
    const found = sql`
      select t.* from tool t where t.id > ${param('after')}::integer ${named} ${bound} order by ${order} limit ${MOST}`
    return pageRows(found, 't', RECORD, sql`${param('rows')}::integer`)
  })
}
