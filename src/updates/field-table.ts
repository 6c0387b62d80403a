import type { TSchema } from '@sinclair/typebox'
import type { Selectable } from 'kysely'
import type { VersionedTable } from '../db/tables.js'

/* The words of a table of fields, from whose rows follows what is requested, stored, answered, audited, applied and exported. */

export type SqlType = 'text' | 'boolean' | 'integer' | 'double precision' | 'json' | 'timestamptz' | 'uuid'

/** The columns of a versioned table that hold content, with the types that reading them gives. */
export type ContentColumns<Table> = Omit<Selectable<Table>, 'id' | keyof VersionedTable>

/** Ids of one list. */
export const LIST_ITEMS_MAX = 1_000

/** A field that is a column of the resource's own row. */
export interface AnyColumnField {
  readonly column: SqlType
  /** Whether the column may hold null. */
  readonly nullable: boolean
  /** What a new resource has where nobody says anything. */
  readonly blank: unknown
  /** What a request may send, `Optional` where it may be absent. Without it only the operator changes the field. */
  readonly request?: TSchema
  /** The form in which a value that passed the schema is stored; undefined for one that is as if it were absent. */
  readonly canonical?: (value: never) => unknown
  /** How the snapshot shows it. Without it the snapshot does not. */
  readonly answer?: TSchema
  /** What the organisation document takes, where that is not what a request takes. */
  readonly document?: TSchema
}

/** A row of such a table for a column that is never null. */
export function column<const Type extends SqlType, const Blank, Rest>(column: Type, blank: Blank, rest: Rest) {
  return { column, nullable: false as const, blank, ...rest }
}

/** A row for a column that may be null, and is where nobody says anything. */
export function nullableColumn<const Type extends SqlType, Rest>(column: Type, rest: Rest) {
  return { column, nullable: true as const, blank: null, ...rest }
}

/** The same where `Value` is what the table's type says that the column holds: the compiler compares the two. */
interface ColumnField<Value> extends AnyColumnField {
  readonly nullable: null extends Value ? true : false
  readonly blank: Value
  readonly canonical?: (value: never) => Value | undefined
}

/** Of all rows a row for each column of a table, and none for a column that the table does not have. */
export type ColumnFields<Columns, Rows> = { readonly [C in keyof Columns]: ColumnField<Columns[C]> } & {
  readonly [R in Exclude<ColumnRow<Rows>, keyof Columns>]: never
}

type ColumnRow<Rows> = { [R in keyof Rows]: Rows[R] extends { column: SqlType } ? R : never }[keyof Rows]

/** The words of a text, each by its type. */
export function words<const Text extends string>(text: Text): Words<Text>[] {
  return text.split(' ') as Words<Text>[] // the same, as the compiler sees it
}

type Words<Text extends string> = Text extends `${infer Word} ${infer Rest}` ? Word | Words<Rest> : Text

/** Whether a record has this name. */
export function isIn<Name extends string>(record: Readonly<Record<Name, unknown>>, name: string): name is Name {
  return Object.hasOwn(record, name)
}

/** The entries of a record in this order; those that it does not name follow. */
export function inOrder<Name extends string, Value>(
  order: readonly NoInfer<Name>[],
  entries: Record<Name, Value>,
): [Name, Value][] {
  const place = (name: Name) => (order.includes(name) ? order.indexOf(name) : order.length)
  const named = Object.entries(entries) as [Name, Value][] // its own names
  return named.sort(([a], [b]) => place(a) - place(b))
}

/** What the hash of a content covers: fields that are not blank, with their names. A field added later changes no stored hash. */
export function auditedFields<Content extends object>(
  fields: readonly (keyof Content & string)[],
  content: Content,
  blank: Content,
): [field: string, value: unknown][] {
  return fields.filter(field => !sameValue(content[field], blank[field])).map(field => [field, content[field]])
}

/** Equality of stored values: scalars by identity, lists and records by their JSON, whose key order is fixed. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b || typeof a !== 'object' || typeof b !== 'object') return a === b
  const areLists = Array.isArray(a) && Array.isArray(b)
  if (areLists && (a.length === 0 || a.length !== b.length)) return a.length === b.length
  return JSON.stringify(a) === JSON.stringify(b)
}
