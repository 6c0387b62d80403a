import { type TSchema, Type } from '@sinclair/typebox'
import type { ToolTable } from '../db/tables.js'
import {
  type AnyColumnField,
  type ColumnFields,
  type ContentColumns,
  column,
  nullableColumn,
} from '../updates/field-table.js'
import { flag, freeForm, identifier, list, nullable, text } from '../validation/vocabulary.js'
import { Header } from './headers.js'

/* The fields of a tool, in the order of audit rows. Requests can change those with `request` (DECISIONS section 4). */

const optional = Type.Optional

/** A field that is stored outside the tool's own row. */
interface OtherField {
  readonly request: TSchema
  readonly answer: TSchema
}

/** The columns that are fields. `secrets_generation` is bookkeeping; the definition is stored by its hash. */
export type ToolColumns = Omit<ContentColumns<ToolTable>, 'secrets_generation' | 'definition_hash'>

export const FIELDS = {
  name: column('text', '', { request: optional(nullable(text({ minLength: 1, maxLength: 255 }))), answer: text() }),
  display_name: nullableColumn('text', { answer: text() }),
  description: column('text', '', { request: optional(nullable(text({ maxLength: 10_000 }))), answer: text() }),
  in_code_tool_id: nullableColumn('text', { answer: nullable(text()) }),
  definition: {
    request: optional(nullable(freeForm(), { description: 'An OpenAPI 3.x document.' })),
    answer: nullable(freeForm()),
  },
  custom_headers: {
    request: optional(
      nullable(list(Header, { maxItems: 50 }), { description: 'Replaces the whole list; `[]` removes all.' }),
    ),
    answer: nullable(list(Header), {
      description: 'Header names with masked values, for callers who may manage the tool; `null` for all others.',
    }),
  },
  passthrough_auth: column('boolean', false, { request: optional(nullable(flag())), answer: flag() }),
  mcp_server_id: nullableColumn('integer', { answer: optional(nullable(identifier())) }),
  user_id: nullableColumn('uuid', { answer: optional(nullable(text())) }),
  oauth_config_id: nullableColumn('integer', {
    request: optional(nullable(identifier(), { description: '`null` clears the link.' })),
    answer: optional(nullable(identifier())),
  }),
  enabled: column('boolean', true, { answer: optional(flag({ default: true })) }),
  chat_selectable: column('boolean', true, { answer: optional(flag({ default: true })) }),
  agent_creation_selectable: column('boolean', true, { answer: optional(flag({ default: true })) }),
  default_enabled: column('boolean', false, { answer: optional(flag({ default: false })) }),
} as const satisfies Record<keyof ToolColumns, AnyColumnField> & Record<'definition' | 'custom_headers', OtherField>

type Fields = typeof FIELDS

/** A type error here means that `FIELDS` and the table's columns differ in names or types. */
const columns: ColumnFields<ToolColumns, Fields> = FIELDS

export type RequestField = { [F in keyof Fields]: Fields[F] extends { request: unknown } ? F : never }[keyof Fields]

// `Object.entries` loses the literal names, which this cast restores.
export const COLUMNS = Object.entries(columns).filter(([, field]) => 'column' in field) as [
  keyof ToolColumns,
  AnyColumnField,
][]
export const REQUEST_FIELDS = Object.entries(FIELDS).filter(([, field]) => 'request' in field) as [
  RequestField,
  { request: TSchema },
][]

/** The content of a tool's own row, with the definition as the SHA-256 of its text, in hex. */
export type ToolContent = { -readonly [C in keyof ToolColumns]: ToolColumns[C] } & { definition_hash: string | null }

/** The field values of a new tool before any request sets them. */
export const BLANK_TOOL = {
  ...Object.fromEntries(COLUMNS.map(([name, { blank }]) => [name, blank])),
  definition_hash: null,
} as unknown as Readonly<ToolContent>
