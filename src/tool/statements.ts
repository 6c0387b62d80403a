import type { Expression, SqlBool } from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import { managesTool, type Viewer } from '../auth/access.js'
import type { Caller } from '../auth/caller.js'
import { grantsStand, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { pageRows } from '../db/statements/page-rows.js'
import {
  anyOf,
  bytesOf,
  elementsOf,
  isOnly,
  jsonRows,
  jsonText,
  lit,
  materialized,
  member,
  memberText,
  named,
  on,
  queries,
  withParts,
} from '../db/statements/queries.js'
import { type Param, type SqlTypes, statement } from '../db/statements/statement.js'
import type { ToolTable } from '../db/tables.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import type { AuditEntry } from '../updates/audit.js'
import { AUDIT_TYPES, changedRow, insertAudit } from '../updates/audit-rows.js'
import { changedColumns, nextVersion } from '../updates/statements.js'
import type { CachedDefinitions } from './definition-cache.js'
import { COLUMNS } from './fields.js'
import type { ToolSnapshot } from './schema.js'
import {
  markedDefinition,
  oauthConfigName,
  redactedHeaders,
  snapshotFields,
  type ToolState,
  toolState,
} from './snapshot.js'

/** Expressions on the alias `t` of the enclosing query: a tool. */
const tool = on<{ t: 'tool' }>()
const { case: choose, exists, not, or } = tool

/** The columns of a tool in an answer. `definition` is the text of `markedDefinition`, or null if the request sent it. */
export type ToolRow = Omit<ToolSnapshot, 'definition'> & { version: number; definition: string | null }

/** Reads the state of one tool with the viewer's rights. */
export const readState = statement<ViewerParameters & { id: number }, { state: ToolState }>(
  'tool_state',
  { ...VIEWER_TYPES, id: 'integer' },
  param =>
    queries()
      .selectFrom('tool as t')
      .select(toolState(viewerOf(param)).as('state'))
      .where('t.id', '=', param('id')),
)

type ReadParameters = ViewerParameters & CachedDefinitions & { id: number; version: number; managed: boolean }

const READ_TYPES = {
  ...VIEWER_TYPES,
  ...{ id: 'integer', version: 'integer', managed: 'boolean', cached_definitions: 'bytea[]' },
} satisfies SqlTypes<ReadParameters>

/** Reads a tool if its version and the caller's rights are unchanged since the decision; header names only if `managed`. */
export const readTool = statement<ReadParameters, ToolRow>('tool_row', READ_TYPES, param => {
  const headers = choose().when(param('managed')).then(redactedHeaders).end()
  const columns = answerColumns(markedDefinition(param('cached_definitions')), headers)
  return storedTool(param).select(columns).$castTo<ToolRow>()
})

/** Like `readTool`, but returns only the version. */
export const readVersion = statement<ReadParameters, ToolRow>('tool_version', READ_TYPES, param =>
  storedTool(param).select('t.version').$castTo<ToolRow>(),
)

/** SQL: the tool `t` if its version and the viewer's rights are unchanged since the decision. */
function storedTool(param: Param<ReadParameters>) {
  const viewer = viewerOf(param)
  const isManager = or([not(param('managed')), tool(viewer.user, 'is', null), managesTool(viewer)])
  return queries()
    .selectFrom('tool as t')
    .where('t.id', '=', param('id'))
    .where('t.version', '=', param('version'))
    .where(grantsStand(param))
    .where(isManager)
}

/** Returns a row if the OAuth configuration exists and the viewer may link it. */
export const readOauthConfig = statement<ViewerParameters & { id: number }, { id: number }>(
  'oauth_config',
  { ...VIEWER_TYPES, id: 'integer' },
  param =>
    queries()
      .selectFrom('oauth_config as o')
      .select('o.id')
      .where('o.id', '=', param('id'))
      .where(isLinkable(viewerOf(param))),
)

/** SQL: the viewer may link the OAuth configuration `o`: its owner, and everybody with `manage:actions` (DECISIONS section 6). */
function isLinkable({ managesAll, user }: Viewer): Expression<SqlBool> {
  return or([managesAll, on<{ o: 'oauth_config' }>()('o.owner_id', '=', user)])
}

/** Reads a stored definition as JSON text, by its hash in hex. */
export const readDefinition = statement<{ hash: string }, { definition: string }>(
  'tool_definition',
  { hash: 'text' },
  param =>
    queries()
      .selectFrom('tool_definition as d')
      .select(({ cast }) => cast<string>('d.content', 'text').as('definition'))
      .where('d.hash', '=', bytesOf(param('hash'))),
)

type WriteParameters = ViewerParameters &
  CachedDefinitions &
  AuditEntry & {
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

const WRITE_TYPES: SqlTypes<WriteParameters> = {
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

/** The parts of a tool that a write stores besides its row. */
interface WriteShape {
  definition: boolean
  headers: boolean
  /** True to return only the version. */
  minimal: boolean
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/** Stores decided updates and returns the new rows. Returns none if the tool is locked, changed, no longer manageable or re-encrypted. */
export function writeStatement(shape: WriteShape) {
  const parts = [shape.definition && 'definition', shape.headers && 'headers']
  const key = `${parts.map(part => part || '').join('+')}${shape.minimal ? ' minimal' : ''}`
  const existing = writeStatements.get(key)
  if (existing) return existing
  const compiled = compileWrite(shape, key)
  writeStatements.set(key, compiled)
  return compiled
}

function compileWrite(shape: WriteShape, key: string) {
  return statement<WriteParameters, ToolRow>(
    `tool_write(${key})`,
    WRITE_TYPES,
    param => {
      // The caller adds a definition from the request itself.
      const definition = shape.definition ? lit(null) : markedDefinition(param('cached_definitions'))
      const answer = shape.minimal
        ? [tool.ref('t.version').as('version')]
        : answerColumns(definition, param('shown_headers'))
      const changed = queries()
        .with(materialized('locked'), () => lockedTool(param))
        .with('changed', db =>
          db
            .updateTable('tool as t')
            .from('locked')
            .set({
              ...changedColumns('t', COLUMNS, param('changed_columns')),
              definition_hash: bytesOf(param('definition_hash')),
              ...nextVersion('t', param),
            })
            .whereRef('t.id', '=', 'locked.id')
            .returning(answer),
        )
      const parts = {
        ...(shape.definition && { stored_definitions: storeDefinitions(param) }),
        ...(shape.headers && replaceHeaders(param)),
        audited: insertAudit('tool', param),
      }
      return withParts(changed, parts).selectFrom('changed').selectAll().$castTo<ToolRow>()
    },
    true,
  )
}

/** SQL: the tool `t` if it is unchanged since the decision. Locks it without waiting. */
function lockedTool(param: Param<WriteParameters>) {
  const viewer = viewerOf(param)
  const linked = on<{ t: 'tool' }>()
    .selectFrom('oauth_config as o')
    .where('o.id', '=', param('oauth_config_id'))
    .where(({ eb }) => or([eb('o.id', '=', eb.ref('t.oauth_config_id')), isLinkable(viewer)]))
  return queries()
    .selectFrom('tool as t')
    .select('t.id')
    .where('t.id', '=', param('id'))
    .where('t.version', '=', param('version'))
    .where('t.secrets_generation', '=', param('secrets_generation'))
    .where(grantsStand(param))
    .where(or([tool(viewer.user, 'is', null), managesTool(viewer)]))
    .where(or([tool(param('oauth_config_id'), 'is', null), exists(linked)]))
    .forNoKeyUpdate('t')
    .skipLocked()
}

/** Stores a definition once for each hash. */
function storeDefinitions(param: Param<WriteParameters>) {
  const given = queries<{ locked: object }>()
    .selectFrom('locked')
    .select(({ cast }) => [
      bytesOf(param('definition_hash')).as('hash'),
      cast<string>(param('definition_text'), 'json').as('content'),
      named(param('definition_bytes'), 'size_bytes'),
    ])
    .where(not(exists(storedDefinition(param))))
  return queries()
    .insertInto('tool_definition')
    .columns(['hash', 'content', 'size_bytes'])
    .expression(given)
    .onConflict(conflict => conflict.column('hash').doNothing())
}

/** SQL: the stored definition. */
function storedDefinition(param: Param<WriteParameters>) {
  return queries()
    .selectFrom('tool_definition as d')
    .where('d.hash', '=', bytesOf(param('definition_hash')))
}

/** Upserts headers by position: one statement must not delete and insert the same key. */
function replaceHeaders(param: Param<WriteParameters>) {
  const header = on<{ g: { value: string } }>()
  const text = (name: keyof SentHeader) => memberText(header.ref('g.value'), lit(name))
  const sent = changedRow()
    .crossJoin(elementsOf(param('headers'), 'g'))
    .select(({ cast, eb }) => [
      named(param('id'), 'tool_id'),
      cast<number>(eb('g.place', '-', lit(1)), 'integer').as('position'),
      cast<number | null>(text('kept'), 'integer').as('kept'),
      ...(['name', 'fingerprint', 'key_id', 'nonce', 'ciphertext'] as const).map(name => text(name).as(name)),
    ])
  const put = queries<{ new_headers: SentHeader }>()
    .selectFrom('new_headers as g')
    .leftJoin('tool_header as kept', join =>
      join.onRef('kept.tool_id', '=', 'g.tool_id').onRef('kept.position', '=', 'g.kept'),
    )
    .select(({ fn, ref }) => [
      ...(['g.tool_id', 'g.position', 'g.name'] as const),
      fn.coalesce('g.key_id', 'kept.key_id').as('key_id'),
      fn.coalesce(bytesOf(ref('g.nonce'), 'base64'), 'kept.nonce').as('nonce'),
      fn.coalesce(bytesOf(ref('g.ciphertext'), 'base64'), 'kept.ciphertext').as('ciphertext'),
      bytesOf(ref('g.fingerprint')).as('fingerprint'),
    ])
  const kept = ['name', 'key_id', 'nonce', 'ciphertext', 'fingerprint'] as const
  const removed = queries<{ changed: { version: number } }>()
    .deleteFrom('tool_header as h')
    .using('changed')
    .where('h.tool_id', '=', param('id'))
    .where('h.position', '>=', tool.fn<number>('json_array_length', [param('headers')]))
  const putting = queries()
    .insertInto('tool_header')
    .columns(['tool_id', 'position', ...kept])
    .expression(put)
    .onConflict(conflict =>
      conflict
        .columns(['tool_id', 'position'])
        .doUpdateSet(({ ref }) => Object.fromEntries(kept.map(name => [name, ref(`excluded.${name}`)]))),
    )
  return { new_headers: sent, removed_headers: removed, put_headers: putting }
}

interface SentHeader {
  tool_id: number
  position: number
  kept: number | null
  name: string
  fingerprint: string
  key_id: string
  nonce: string
  ciphertext: string
}

/** SQL: the columns of a `ToolRow` for tool `t`. */
export function answerColumns(definition: Expression<unknown>, customHeaders: Expression<unknown>) {
  const fields = snapshotFields({ definition, oauth_config_name: oauthConfigName, custom_headers: customHeaders })
  return [tool.ref('t.version').as('version'), ...fields.map(([name, value]) => named(value, name))]
}

type PastToolParameters = ViewerParameters & CachedDefinitions & { id: number; past: string }

/** Reads a tool with the earlier values of `past`, which is JSON. `version` in the row is the current one. */
export const readPastTool = statement<PastToolParameters, ToolRow>(
  'past_tool',
  { ...VIEWER_TYPES, id: 'integer', past: 'json', cached_definitions: 'bytea[]' },
  param => {
    const then = member(param('past'), lit('custom_headers'))
    const header = on<{ h: { value: string } }>()
    const texts = (name: string) => memberText(header.ref('h.value'), lit(name)).as(name)
    const shown = jsonRows(
      queries()
        .selectFrom(elementsOf(then, 'h'))
        .select([texts('key'), texts('value')])
        .orderBy('h.place'),
    )
    const headers = choose().when(then, 'is', null).then(redactedHeaders).else(shown).end()
    const stored = queries()
      .selectFrom('tool as t')
      .select(({ table }) => [table('t').as('row'), managesTool(viewerOf(param)).as('manageable')])
      .where('t.id', '=', param('id'))
    const manageable = on<{ stored: { manageable: boolean } }>().ref('stored.manageable')
    return queries()
      .selectFrom(stored.as('stored'))
      .crossJoinLateral(({ fn }) => fn<ToolTable>('json_populate_record', ['stored.row', param('past')]).as('t'))
      .select(
        answerColumns(markedDefinition(param('cached_definitions')), choose().when(manageable).then(headers).end()),
      )
      .$castTo<ToolRow>()
  },
)

/** Reads the bytes of a stored definition, by its hash in hex. */
export const readDefinitionBytes = statement<{ hash: string }, { bytes: number }>(
  'definition_bytes',
  { hash: 'text' },
  param =>
    queries()
      .selectFrom('tool_definition as d')
      .select('d.size_bytes as bytes')
      .where('d.hash', '=', bytesOf(param('hash'))),
)

/* Lists of tools, a page at a time by id. Tools are not secret to a signed-in caller (DECISIONS section 6). */

interface Parameters {
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** A constant, not a parameter, so that the planner knows that a page is short. */
const MOST = lit(PAGE_RECORDS_MAX + 1)

const OWNER = tool.selectFrom('user_account as u').select(['u.id', 'u.email']).whereRef('u.id', '=', 't.user_id')
const TAG = tool.fn<string>('format', [lit('"tool-%s-%s"'), 't.id', 't.version'])
const RECORD = jsonText(
  queries().selectNoFrom([
    ...columnsAs(['id', 'name']),
    tool.fn.coalesce('t.display_name', 't.name').as('display_name'),
    tool.ref('t.description').as('description'),
    jsonObjectFrom(OWNER).as('owner'),
    ...columnsAs(['in_code_tool_id', 'mcp_server_id', 'enabled', 'passthrough_auth']),
    TAG.as('etag'),
  ]),
)

function columnsAs(names: readonly (keyof ToolTable)[]) {
  return names.map(name => tool.ref(`t.${name}`).as(name))
}

/** The statements of a page, and of a page filtered by name: of all tools, or of those that a token is bound to. */
const PAGES = {
  all: [pageOf('all', false), pageOf('all', true)],
  bound: [pageOf('bound', false), pageOf('bound', true)],
} as const

/** Reads up to `rows` tools that the token may see, after an id. */
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
  const name = `tool_page(${scope}${isNamed ? ' of a name' : ''})`
  const types = { after: 'integer', rows: 'integer', name: 'text', ids: 'integer[]' }
  return statement<Parameters, PageRow>(name, types, param => {
    const found = queries()
      .selectFrom('tool as t')
      .selectAll('t')
      .where('t.id', '>', param('after'))
      .$if(isNamed, query => query.where(isOnly(tool.ref('t.name'), param('name'))).orderBy('t.name'))
      .$if(scope === 'bound', query => query.where('t.id', '=', anyOf(param('ids'))))
    return pageRows(found.orderBy('t.id').limit(MOST), 't', RECORD, param('rows'))
  })
}
