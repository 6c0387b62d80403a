import type { AliasableExpression, Expression, SelectQueryBuilder } from 'kysely'
import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { managesTool, type Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import { anyOf, hexOf, joined, jsonRows, lit, named, on, queries } from '../db/statements/queries.js'
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

/** The state of a tool as one statement read it, with the definition only as its hash. */
export interface ToolState extends ToolContent, VersionedState {
  secrets_generation: number
  headers: StoredHeader[]
  /** The right by which the viewer manages the tool; null without one. */
  managed_as: 'all' | 'owner' | 'group' | null
  definition_bytes: number
}

/** Expressions on the alias `t` of the enclosing query: a tool. */
const tool = on<{ t: 'tool' }>()
const { case: choose, fn, ref, selectFrom } = tool

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

/** The lookup of one tool's routes: reads the tool in the same statement as the caller. */
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

/** SQL: the approximate bytes of tool `t` with definition `d` in an answer, without reading the texts. */
export const snapshotBytes: Expression<number> = on<{ t: 'tool'; d: 'tool_definition' }>()(
  fn.coalesce(on<{ d: 'tool_definition' }>().ref('d.size_bytes'), lit(0)),
  '+',
  fn<number>('octet_length', ['t.description']),
)

/** SQL: the fields of the wire's ToolSnapshot of tool `t`, in order. `parts` are the fields that are not columns. */
export function snapshotFields(
  parts: Record<'definition' | 'oauth_config_name' | 'custom_headers', Expression<unknown>>,
): [string, Expression<unknown>][] {
  const expressions = { ...parts, display_name: fn.coalesce('t.display_name', 't.name') }
  return SNAPSHOT_FIELDS.map(([name]) => [name, isIn(expressions, name) ? expressions[name] : ref(`t.${name}`)])
}

/** SQL: a separator around definitions: a character that no JSON text contains. */
const MARK = fn<string>('chr', [lit(1)])

/** SQL: the definition of tool `t` for `withDefinitions`: its hash and, unless in `cached`, its text. */
export function markedDefinition(cached: Expression<string[]>): Expression<string> {
  const content = selectFrom('tool_definition as d').whereRef('d.hash', '=', 't.definition_hash')
  const text = choose()
    .when('t.definition_hash', 'is', null)
    .then(lit('null'))
    .when('t.definition_hash', '=', anyOf(cached as Expression<never[]>)) // the array has the type `bytea[]`
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

/** SQL: the text of a JSON object without blanks between fields. `textField` is JSON text already. */
export function jsonWithText(fields: readonly [string, Expression<unknown>][], textField: string): Expression<string> {
  const pieces = fields.flatMap(([name, value], i) => {
    const key = lit(`${i === 0 ? '{' : ','}"${name}":`)
    return [key, name === textField ? value : fn.coalesce(fn('to_json', [value]), lit('null'))]
  })
  return fn('concat', [...pieces, lit('}')])
}
