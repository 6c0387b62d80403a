import type { TSchema } from '@sinclair/typebox'
import type { Selectable } from 'kysely'
import type { VersionedTable } from '../db/tables.js'

/* Types and functions for a table of fields. From its rows follow the schemas, statements, audit rows and documents of a resource. */

export type SqlType = 'text' | 'boolean' | 'integer' | 'double precision' | 'json' | 'timestamptz' | 'uuid'

/** The content columns of a versioned table, with the types in which they are read. */
export type ContentColumns<Table> = Omit<Selectable<Table>, 'id' | keyof VersionedTable>

export const LIST_ITEMS_MAX = 1_000

/** A field that is a column of the resource's own row. */
export interface AnyColumnField {
  readonly column: SqlType
  readonly nullable: boolean
  /** The value of a new resource if the request names none. */
  readonly blank: unknown
  /** Schema of the value in a request, `Optional` if it may be absent. Without it only the operator changes the field. */
  readonly request?: TSchema
  /** Makes the stored form of a value that passed the schema; undefined if the value counts as absent. */
  readonly canonical?: (value: never) => unknown
  /** Schema of the value in a snapshot. Without it snapshots leave the field out. */
  readonly answer?: TSchema
  /** Schema of the value in a read of one resource, if snapshots leave the field out. */
  readonly read?: TSchema
  /** Schema of the value in an organisation document, if it differs from `request`. */
  readonly document?: TSchema
}

/** A field whose column is never null. */
export function column<const Type extends SqlType, const Blank, Rest>(column: Type, blank: Blank, rest: Rest) {
  return { column, nullable: false as const, blank, ...rest }
}

/** A field whose column may be null, and is null by default. */
export function nullableColumn<const Type extends SqlType, Rest>(column: Type, rest: Rest) {
  return { column, nullable: true as const, blank: null, ...rest }
}

/** An `AnyColumnField` whose blank and stored values must have the type `Value` of the table's column. */
interface ColumnField<Value> extends AnyColumnField {
  readonly nullable: null extends Value ? true : false
  readonly blank: Value
  readonly canonical?: (value: never) => Value | undefined
}

/** Requires a field for each column of a table, and forbids fields for other columns. */
export type ColumnFields<Columns, Rows> = { readonly [C in keyof Columns]: ColumnField<Columns[C]> } & {
  readonly [R in Exclude<ColumnRow<Rows>, keyof Columns>]: never
}

type ColumnRow<Rows> = { [R in keyof Rows]: Rows[R] extends { column: SqlType } ? R : never }[keyof Rows]

/** Splits a text into its words, typed as literals. */
export function words<const Text extends string>(text: Text): Words<Text>[] {
  return text.split(' ') as Words<Text>[] // the runtime twin of `Words`
}

type Words<Text extends string> = Text extends `${infer Word} ${infer Rest}` ? Word | Words<Rest> : Text

/** Equality of stored values. Lists and records are compared by their JSON text, whose key order is fixed. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b || typeof a !== 'object' || typeof b !== 'object') return a === b
  const areLists = Array.isArray(a) && Array.isArray(b)
  if (areLists && (a.length === 0 || a.length !== b.length)) return a.length === b.length
  return JSON.stringify(a) === JSON.stringify(b)
}
