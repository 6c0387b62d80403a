import type { ToolTable } from '../db/tables.js'
import {
  type AnyColumnField,
  type ColumnFields,
  type ContentColumns,
  column,
  nullableColumn,
} from '../updates/field-table.js'

/** The columns that are fields. The definition is excluded, because its column contains a hash. */
type ToolColumns = Omit<ContentColumns<ToolTable>, 'definition_hash'>
export type ToolColumn = keyof ToolColumns

/** The fields of a tool, in the order in which an audit row lists them. The definition and the headers are in other tables. */
export const FIELDS = {
  name: column('text', '', {}),
  display_name: nullableColumn('text', {}),
  description: column('text', '', {}),
  in_code_tool_id: nullableColumn('text', {}),
  definition: {},
  custom_headers: {},
  passthrough_auth: column('boolean', false, {}),
  mcp_server_id: nullableColumn('integer', {}),
  user_id: nullableColumn('uuid', {}),
  oauth_config_id: nullableColumn('integer', {}),
  enabled: column('boolean', true, {}),
  chat_selectable: column('boolean', true, {}),
  agent_creation_selectable: column('boolean', true, {}),
  default_enabled: column('boolean', false, {}),
} as const satisfies Record<keyof ToolColumns, AnyColumnField> & Record<'definition' | 'custom_headers', object>

/** A type error here means that the fields and the table's columns differ. */
const columns: ColumnFields<ToolColumns, typeof FIELDS> = FIELDS

// The cast restores the literal names that `Object.entries` loses.
export const COLUMNS = Object.entries(columns).filter(([, field]) => 'column' in field) as [
  ToolColumn,
  AnyColumnField,
][]

/** The fields of a tool that are stored in its own row. `definition_hash` is the SHA-256 of the definition's text in hex. */
export type ToolContent = { -readonly [C in keyof ToolColumns]: ToolColumns[C] } & { definition_hash: string | null }

/** The initial values of a new tool. */
export const BLANK_TOOL = {
  ...Object.fromEntries(COLUMNS.map(([name, { blank }]) => [name, blank])),
  definition_hash: null,
} as unknown as Readonly<ToolContent>
