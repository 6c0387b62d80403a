import type { AliasableExpression, Expression, SelectQueryBuilder } from 'kysely'
import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { managesTool, type Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import {
  anyOf,
  elementsOf,
  hexOf,
  joined,
  jsonRows,
  lit,
  member,
  memberText,
  named,
  on,
  queries,
} from '../db/statements/queries.js'
import type { Tables, ToolTable } from '../db/tables.js'
import { isIn } from '../updates/field-table.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, versionedState } from '../updates/statements.js'
import { COLUMNS, type ToolContent } from './fields.js'
import { SNAPSHOT_FIELDS } from './schema.js'

/** A stored custom header without its secret. `fingerprint` is hex; its first digits are in the redaction. */
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

/** The tool `t` of the query around. */
const tool = on<{ t: 'tool' }>()
const { case: choose, cast, fn, ref, selectFrom } = tool

/** SQL: the tool `t` as JSON of the shape `ToolState`, as the viewer sees it. */
export function toolState(viewer: Viewer): AliasableExpression<ToolState> {
  const columns = COLUMNS.map(([name, { column }]) => [name, columnValue(ref(`t.${name}`), column)])
  const headers = selectFrom('tool_header as h')
    .select(({ ref }) => ['h.name', 'h.key_id', hexOf(ref('h.fingerprint')).as('fingerprint')])
    .whereRef('h.tool_id', '=', 't.id')
  const bytes = selectFrom('tool_definition as d').select('d.size_bytes').whereRef('d.hash', '=', 't.definition_hash')
  const as = (how: ToolState['managed_as']) => lit(how)
  const isOwner = tool('t.user_id', '=', viewer.user)
  const manager = choose()
    .when(viewer.managesAll)
    .then(as('all'))
    .when(isOwner)
    .then(as('owner'))
    .else(as('group'))
    .end()
  return versionedState<ToolState>('tool', 't', viewer.user, {
    ...Object.fromEntries(columns),
    definition_hash: hexOf(ref('t.definition_hash')),
    secrets_generation: ref('t.secrets_generation'),
    headers: jsonArrayFrom(headers.orderBy('h.position')),
    definition_bytes: fn.coalesce(bytes, lit(0)),
    managed_as: choose().when(managesTool(viewer)).then(manager).end(),
  })
}

/** What the route of one tool reads along with its caller, in one statement. */
export const TOOL_LOOKUP = {
  parameter: 'tool_id',
  statement: callerStatement('caller_and_tool', id =>
    queries().selectFrom('tool as t').select(toolState(viewerOfCaller).as('state')).where('t.id', '=', id),
  ),
}

/** SQL: the custom headers of the tool `t` as the wire shows them, each value redacted. */
export const redactedHeaders: Expression<unknown> = jsonRows(
  selectFrom('tool_header as h')
    .select(({ fn, ref }) => [
      'h.name as key',
      named(joined(lit('****#'), fn<string>('left', [hexOf(ref('h.fingerprint')), lit(12)])), 'value'),
    ])
    .whereRef('h.tool_id', '=', 't.id')
    .orderBy('h.position'),
)

/** SQL: about how many bytes the tool `t` with the definition `d` takes in an answer, without reading them. */
export const snapshotBytes: Expression<number> = on<{ t: 'tool'; d: 'tool_definition' }>()(
  fn.coalesce(on<{ d: 'tool_definition' }>().ref('d.size_bytes'), lit(0)),
  '+',
  fn<number>('octet_length', ['t.description']),
)

/** SQL: each field of the wire's ToolSnapshot of the tool `t`, in its order; `parts` are no columns of its row. */
export function snapshotFields(
  parts: Record<'definition' | 'oauth_config_name' | 'custom_headers', Expression<unknown>>,
): [string, Expression<unknown>][] {
  const expressions = { ...parts, display_name: fn.coalesce('t.display_name', 't.name') }
  return SNAPSHOT_FIELDS.map(([name]) => [name, isIn(expressions, name) ? expressions[name] : ref(`t.${name}`)])
}

/** SQL: a character that no JSON text holds. It is on each side of what is said of a definition. */
const MARK = fn<string>('chr', [lit(1)])

/** SQL: the definition of the tool `t` for `withDefinitions`: its hash and, unless that is `cached`, its text. */
export function markedDefinition(cached: Expression<string[]>): Expression<string> {
  const content = selectFrom('tool_definition as d').whereRef('d.hash', '=', 't.definition_hash')
  const text = choose()
    .when('t.definition_hash', 'is', null)
    .then(lit('null'))
    .when('t.definition_hash', '=', anyOf(cached as Expression<never[]>)) // `bytea[]`
    .then(lit(''))
    .else(content.select(({ cast }) => cast<string>('d.content', 'text').as('text')))
    .end()
  return joined(MARK, fn.coalesce(hexOf(ref('t.definition_hash')), lit('')), MARK, text, MARK)
}

/** SQL: the snapshots of the tools with these ids, by id, as a JSON array in text for `withDefinitions`. */
export function toolSnapshots(ids: Expression<number[]>, viewer: Viewer, cached: Expression<string[]>) {
  const headers = choose().when(managesTool(viewer, ids)).then(redactedHeaders).end()
  return snapshotsOf(queries().selectFrom('tool as t').where('t.id', '=', anyOf(ids)), headers, cached)
}

/** SQL: the same as they were, byte for byte: `past` is JSON of what was different then (`pastRecords`). */
export function pastToolSnapshots(
  ids: Expression<number[]>,
  past: Expression<string>,
  viewer: Viewer,
  cached: Expression<string[]>,
) {
  return snapshotsOf(pastTools(ids, past, viewer), pastHeaders, cached)
}

/** SQL: the name of the OAuth configuration of the tool `t`. */
export const oauthConfigName = selectFrom('oauth_config as o')
  .select('o.name')
  .whereRef('o.id', '=', 't.oauth_config_id')

function snapshotsOf(
  tools: SelectQueryBuilder<Tables & { t: ToolTable }, 't', unknown>,
  headers: Expression<unknown>,
  cached: Expression<string[]>,
): Expression<string> {
  const definition = markedDefinition(cached)
  const fields = snapshotFields({ definition, oauth_config_name: oauthConfigName, custom_headers: headers })
  const all = tools.select(({ fn }) =>
    fn
      .agg<string>('string_agg', [jsonWithText(fields, 'definition'), lit(',')])
      .orderBy('t.id')
      .as('all'),
  )
  return joined(lit('['), fn.coalesce(all, lit('')), lit(']'))
}

/** SQL: the tools `t` with these ids as they were, each `stored` now. Rights to see header names are those of now. */
export function pastTools(ids: Expression<number[]>, past: Expression<string>, viewer: Viewer) {
  const stored = queries()
    .selectFrom('tool as t')
    .select(({ table }) => [
      table('t').as('stored_row'),
      managesTool(viewer, ids).as('manageable'),
      member(past, cast<string>('t.id', 'text')).as('past'),
    ])
    .where('t.id', '=', anyOf(ids))
  return queries()
    .selectFrom(stored.as('stored'))
    .crossJoinLateral(({ fn }) =>
      fn<ToolTable>('json_populate_record', ['stored.stored_row', fn.coalesce('stored.past', lit('{}'))]).as('t'),
    )
}

/** SQL: the custom headers of one of `pastTools`. */
export const pastHeaders: Expression<unknown> = pastHeadersOf()

function pastHeadersOf(): Expression<unknown> {
  const { case: choose, ref } = on<{ stored: { manageable: boolean; past: string } }>()
  const then = member(ref('stored.past'), lit('custom_headers'))
  const header = on<{ h: { value: string } }>()
  const texts = (name: string) => memberText(header.ref('h.value'), lit(name)).as(name)
  const shown = jsonRows(
    queries()
      .selectFrom(elementsOf(then, 'h'))
      .select([texts('key'), texts('value')])
      .orderBy('h.place'),
  )
  const own = choose().when(then, 'is', null).then(redactedHeaders).else(shown).end()
  return choose().when(ref('stored.manageable')).then(own).end()
}

/** SQL: the text of a JSON object with these fields without blanks between; one of them is given as JSON text. */
export function jsonWithText(fields: readonly [string, Expression<unknown>][], textField: string): Expression<string> {
  const pieces = fields.flatMap(([name, value], i) => {
    const key = lit(`${i === 0 ? '{' : ','}"${name}":`)
    return [key, name === textField ? value : fn.coalesce(fn('to_json', [value]), lit('null'))]
  })
  return fn('concat', [...pieces, lit('}')])
}
