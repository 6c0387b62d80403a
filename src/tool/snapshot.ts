import { type ManagedAs, managedAs, type Viewer } from '../auth/viewer.js'
import { named, queries } from '../db/statements/queries.js'
import type { VersionedState } from '../updates/resource.js'
import { readsOf } from '../updates/statements.js'
import type { ToolContent } from './fields.js'
import { shownHeaders } from './headers.js'
import { ToolSnapshot } from './schema.js'

/** A stored custom header without its secret. `mask` is in hex. Answers show the first digits of the mask. */
export interface StoredHeader {
  name: string
  mask: string
}

export interface ToolState extends ToolContent, VersionedState {
  oauth_config_name: string | null
  headers: StoredHeader[]
  definition_bytes: number
  /** The text of the definition. Absent if the definition is stored and was not read yet. */
  definition_text?: string
  /** Why the viewer may manage the tool. Null if the viewer cannot manage it. Answers then do not show the tool's headers. */
  managed_as: ManagedAs | null
}

/** SQL: the tools `t` as rows of `ToolState` for the viewer. */
export function toolStates(viewer: Viewer) {
  const tools = queries()
    .selectFrom('shown_tool as t')
    .selectAll('t')
    .select(named(managedAs(viewer), 'managed_as'))
  return tools.$castTo<ToolState>()
}

/** The statements that read the state of one tool. */
export const TOOL_READS = readsOf<ToolState>('tool', (viewer, id) => toolStates(viewer).where('t.id', '=', id))

const NAMES = Object.keys(ToolSnapshot.properties)
const [BEFORE, AFTER] = [NAMES.slice(0, NAMES.indexOf('definition')), NAMES.slice(NAMES.indexOf('definition') + 1)]

/** Renders a `ToolSnapshot`. Inserts the JSON text of the definition unchanged. */
export function renderTool(tool: ToolState, definition: string): string {
  const custom_headers = tool.managed_as === null ? null : shownHeaders(tool.headers)
  const values = { custom_headers, ...tool, display_name: tool.display_name ?? tool.name }
  return `{${members(values, BEFORE)},"definition":${definition},${members(values, AFTER)}}`
}

/** Returns the size of a tool in an answer, in bytes. */
export function bytesShown(tool: ToolState): number {
  return tool.definition_bytes + Buffer.byteLength(renderTool(tool, ''))
}

/** Returns the properties `names` as JSON text without the braces. */
export function members(values: Readonly<Record<string, unknown>>, names: readonly string[]): string {
  const picked: Record<string, unknown> = {}
  for (const name of names) picked[name] = values[name]
  return JSON.stringify(picked).slice(1, -1)
}
