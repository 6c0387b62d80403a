import type { AliasableExpression, Expression } from 'kysely'
import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { type ManagedAs, managedAs, type Viewer } from '../auth/access.js'
import { anyOf, hexOf, lit, named, on, queries } from '../db/statements/queries.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, readsOf, versionedState } from '../updates/statements.js'
import { COLUMNS, type ToolContent } from './fields.js'
import { shownHeaders } from './headers.js'
import { ToolSnapshot } from './schema.js'

/** A stored custom header without its secret. `mask` is in hex. Answers show its first digits. */
export interface StoredHeader {
  name: string
  mask: string
}

/** A tool as answers show it, with the hash of its definition. */
export interface ShownTool extends ToolContent {
  id: number
  oauth_config_name: string | null
  /** Null if the viewer does not manage the tool. */
  headers: StoredHeader[] | null
  definition_bytes: number
  /** The text of the definition, if it was already read or is not stored yet. */
  definition_text?: string
}

/** The state of a tool, read by one statement. */
export interface ToolState extends ShownTool, VersionedState {
  name: string
  headers: StoredHeader[]
  /** The right by which the viewer manages the tool; null if they do not manage it. */
  managed_as: ManagedAs | null
}

const tool = on<{ t: 'tool' }>()
const { case: choose, fn, ref, selectFrom } = tool

const HEADERS = jsonArrayFrom(
  selectFrom('tool_header as h')
    .select(({ ref }) => ['h.name', hexOf(ref('h.mask')).as('mask')])
    .whereRef('h.tool_id', '=', 't.id')
    .orderBy('h.position'),
)
const DEFINITION_BYTES = selectFrom('tool_definition as d')
  .select('d.size_bytes')
  .whereRef('d.hash', '=', 't.definition_hash')
const OAUTH_CONFIG_NAME = selectFrom('oauth_config as o').select('o.name').whereRef('o.id', '=', 't.oauth_config_id')

/** SQL: the members of a `ShownTool` except its id and headers. */
const CONTENT = {
  ...Object.fromEntries(COLUMNS.map(([name, { column }]) => [name, columnValue(ref(`t.${name}`), column)])),
  definition_hash: hexOf(ref('t.definition_hash')),
  definition_bytes: fn.coalesce(DEFINITION_BYTES, lit(0)),
  oauth_config_name: OAUTH_CONFIG_NAME,
}

/** SQL: the tool `t` as a `ToolState` for the viewer. */
export function toolState(viewer: Viewer): AliasableExpression<ToolState> {
  return versionedState<ToolState>('t', {
    ...CONTENT,
    headers: HEADERS,
    managed_as: managedAs(viewer),
  })
}

/** The statements that read the state of one tool. */
export const TOOL_READS = readsOf<ToolState>('tool', (viewer, id) =>
  queries().selectFrom('tool as t').select(toolState(viewer).as('state')).where('t.id', '=', id),
)

/** SQL: the tools with these ids, as rows of `ShownTool`. */
export function shownTools(ids: Expression<number[]>, viewer: Viewer) {
  const headers = choose().when(managedAs(viewer), 'is not', null).then(HEADERS).end()
  const columns: Record<string, Expression<unknown>> = { id: ref('t.id'), ...CONTENT, headers }
  return queries()
    .selectFrom('tool as t')
    .select(Object.entries(columns).map(([name, value]) => named(value, name)))
    .where('t.id', '=', anyOf(ids))
    .orderBy('t.id')
    .$castTo<ShownTool>()
}

const NAMES = Object.keys(ToolSnapshot.properties)
const [BEFORE, AFTER] = [NAMES.slice(0, NAMES.indexOf('definition')), NAMES.slice(NAMES.indexOf('definition') + 1)]

/** Renders a `ToolSnapshot`. Inserts the JSON text of the definition unchanged. */
export function renderTool(
  shown: Omit<ShownTool, 'headers'> & { headers: Pick<StoredHeader, 'name' | 'mask'>[] | null },
  definition: string,
  custom_headers = shown.headers && shownHeaders(shown.headers),
): string {
  const values = { custom_headers, ...shown, display_name: shown.display_name ?? shown.name }
  return `{${members(values, BEFORE)},"definition":${definition},${members(values, AFTER)}}`
}

/** Returns the size of a tool in an answer, in bytes. */
export function bytesShown(tool: ShownTool): number {
  return tool.definition_bytes + Buffer.byteLength(renderTool(tool, ''))
}

/** Returns these members as JSON without the braces. The names must not need escapes. */
export function members(values: Readonly<Record<string, unknown>>, names: readonly string[]): string {
  return names.map(name => `"${name}":${JSON.stringify(values[name])}`).join()
}
