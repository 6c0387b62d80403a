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
  jsonText,
  lit,
  materialized,
  memberText,
  named,
  on,
  queries,
  withParts,
} from '../db/statements/queries.js'
import { type Param, type SqlTypes, statement } from '../db/statements/statement.js'
import type { ToolTable } from '../db/tables.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import { AUDIT_TYPES, type AuditEntry, insertAudit, nextHash } from '../updates/audit.js'
import { changedColumns, nextVersion } from '../updates/statements.js'
import { COLUMNS } from './fields.js'
import { type ToolState, toolState } from './snapshot.js'

/** Expressions on the alias `t` of the enclosing query: a tool. */
const tool = on<{ t: 'tool' }>()
const { exists, not, or } = tool

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

/** Returns a row if the OAuth configuration exists and the viewer may link it. */
export const readOauthConfig = statement<ViewerParameters & { id: number }, { id: number; name: string }>(
  'oauth_config',
  { ...VIEWER_TYPES, id: 'integer' },
  param =>
    queries()
      .selectFrom('oauth_config as o')
      .select(['o.id', 'o.name'])
      .where('o.id', '=', param('id'))
      .where(isLinkable(viewerOf(param))),
)

/** SQL: the viewer may link the OAuth configuration `o`: its owner, and everybody with `manage:actions` (DECISIONS section 6). */
function isLinkable({ managesAll, user }: Viewer): Expression<SqlBool> {
  return or([managesAll, on<{ o: 'oauth_config' }>()('o.owner_id', '=', user)])
}

type WriteParameters = ViewerParameters &
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
}

/** Store a tool's columns, with or without its definition, and its audit row, if the row is not locked, and version and rights are those of the decision. */
export const writeTool = { columns: writeStatement(false), definition: writeStatement(true) }

function writeStatement(hasDefinition: boolean) {
  return statement<WriteParameters, { version: number }>(
    `tool_write${hasDefinition ? '(definition)' : ''}`,
    WRITE_TYPES,
    param => {
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
            .returning(['t.version', 't.audit_head as hash', 'locked.previous']),
        )
      const parts = {
        ...(hasDefinition && { stored_definitions: storeDefinitions(param) }),
        audited: insertAudit(param),
      }
      return withParts(changed, parts).selectFrom('changed').select('version').$castTo<{ version: number }>()
    },
    true,
  )
}

/** Removes a tool with its headers, and adds its audit row, if version and rights are those of the decision. */
export const removeTool = statement<ViewerParameters & AuditEntry, { version: number }>(
  'tool_remove',
  { ...VIEWER_TYPES, ...AUDIT_TYPES },
  param => {
    const viewer = viewerOf(param)
    return queries()
      .with('changed', db =>
        db
          .deleteFrom('tool as t')
          .where('t.id', '=', param('resource_id'))
          .where('t.version', '=', tool(param('version_after'), '-', lit(1)))
          .where(grantsStand(param))
          .where(or([tool(viewer.user, 'is', null), managesTool(viewer)]))
          .returning(({ ref }) => [
            't.id',
            't.audit_head as previous',
            nextHash(param, ref('t.audit_head')).as('hash'),
            named(param('version_after'), 'version'),
          ]),
      )
      .with('headers', db =>
        db.deleteFrom('tool_header as h').using('changed').whereRef('h.tool_id', '=', 'changed.id'),
      )
      .with('audited', () => insertAudit(param))
      .selectFrom('changed')
      .select('version')
  },
  true,
)

/** SQL: the tool `t` if it is unchanged since the decision. Locks it without waiting. */
function lockedTool(param: Param<WriteParameters>) {
  const viewer = viewerOf(param)
  const linked = on<{ t: 'tool' }>()
    .selectFrom('oauth_config as o')
    .where('o.id', '=', param('oauth_config_id'))
    .where(({ eb }) => or([eb('o.id', '=', eb.ref('t.oauth_config_id')), isLinkable(viewer)]))
  return queries()
    .selectFrom('tool as t')
    .select(['t.id', 't.audit_head as previous'])
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

/** Upserts the headers of a tool by position: one statement must not delete and insert the same key. */
export const writeHeaders = statement<{ id: number; headers: string }, object>(
  'tool_headers',
  { id: 'integer', headers: 'json' },
  param => {
    const header = on<{ g: { value: string } }>()
    const text = (name: keyof SentHeader) => memberText(header.ref('g.value'), lit(name))
    const kept = ['name', 'key_id', 'nonce', 'ciphertext', 'mask'] as const
    return queries<{ sent: SentHeader }>()
      .with('sent', () =>
        queries()
          .selectFrom(elementsOf(param('headers'), 'g'))
          .select(({ cast, eb }) => [
            named(param('id'), 'tool_id'),
            cast<number>(eb('g.place', '-', lit(1)), 'integer').as('position'),
            cast<number | null>(text('kept'), 'integer').as('kept'),
            ...(['name', 'mask', 'key_id', 'nonce', 'ciphertext'] as const).map(name => text(name).as(name)),
          ]),
      )
      .with('removed', db =>
        db
          .deleteFrom('tool_header as h')
          .where('h.tool_id', '=', param('id'))
          .where('h.position', '>=', tool.fn<number>('json_array_length', [param('headers')])),
      )
      .insertInto('tool_header')
      .columns(['tool_id', 'position', ...kept])
      .expression(
        queries<{ sent: SentHeader }>()
          .selectFrom('sent as g')
          .leftJoin('tool_header as kept', join =>
            join.onRef('kept.tool_id', '=', 'g.tool_id').onRef('kept.position', '=', 'g.kept'),
          )
          .select(({ fn, ref }) => [
            ...(['g.tool_id', 'g.position', 'g.name'] as const),
            fn.coalesce('g.key_id', 'kept.key_id').as('key_id'),
            fn.coalesce(bytesOf(ref('g.nonce'), 'base64'), 'kept.nonce').as('nonce'),
            fn.coalesce(bytesOf(ref('g.ciphertext'), 'base64'), 'kept.ciphertext').as('ciphertext'),
            bytesOf(ref('g.mask')).as('mask'),
          ]),
      )
      .onConflict(conflict =>
        conflict
          .columns(['tool_id', 'position'])
          .doUpdateSet(({ ref }) => Object.fromEntries(kept.map(name => [name, ref(`excluded.${name}`)]))),
      )
  },
  true,
)

interface SentHeader {
  tool_id: number
  position: number
  kept: number | null
  name: string
  mask: string
  key_id: string
  nonce: string
  ciphertext: string
}

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
