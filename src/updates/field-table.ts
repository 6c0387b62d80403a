import type { TSchema } from '@sinclair/typebox'
import type { Selectable } from 'kysely'
import type { VersionedTable } from '../db/tables.js'

/* Types and functions for field tables, which describe the fields of a resource. Schemas, statements and audit rows derive from these tables. */

export type SqlType = 'text' | 'boolean' | 'integer' | 'double precision' | 'json' | 'timestamptz' | 'uuid'

/** The columns of a database table, without its id and the columns of `VersionedTable`. */
export type ContentColumns<Table> = Omit<Selectable<Table>, 'id' | keyof VersionedTable>

export const LIST_ITEMS_MAX = 1_000

/** A field that is stored in a column of the resource's own row. */
export interface AnyColumnField {
  readonly column: SqlType
  readonly nullable: boolean
  readonly blank: unknown
  /** The schema of the value in a request. If undefined, an update cannot set the field. */
  readonly request?: TSchema
  /** Converts a valid value to its stored form. Returns undefined to treat the field as absent. */
  readonly canonical?: (value: never) => unknown
  /** The schema of the value in a snapshot. If undefined, snapshots omit the field. */
  readonly answer?: TSchema
  /** The schema of the value when one resource is read. Only for fields that snapshots omit. */
  readonly read?: TSchema
  /** The schema of the value in an organisation document. Default: `request`. */
  readonly document?: TSchema
}

export function column<const Type extends SqlType, const Blank, Rest>(column: Type, blank: Blank, rest: Rest) {
  return { column, nullable: false as const, blank, ...rest }
}

export function nullableColumn<const Type extends SqlType, Rest>(column: Type, rest: Rest) {
  return { column, nullable: true as const, blank: null, ...rest }
}

interface ColumnField<Value> extends AnyColumnField {
  readonly nullable: null extends Value ? true : false
  readonly blank: Value
  readonly canonical?: (value: never) => Value | undefined
}

/** Requires exactly one field for each column of a database table. */
export type ColumnFields<Columns, Rows> = { readonly [C in keyof Columns]: ColumnField<Columns[C]> } & {
  readonly [R in Exclude<ColumnRow<Rows>, keyof Columns>]: never
}

type ColumnRow<Rows> = { [R in keyof Rows]: Rows[R] extends { column: SqlType } ? R : never }[keyof Rows]

/** Splits a string into words and returns them with literal types. */
export function words<const Text extends string>(text: Text): Words<Text>[] {
  return text.split(' ') as Words<Text>[] // `Words` splits the type in the same way
}

type Words<Text extends string> = Text extends `${infer Word} ${infer Rest}` ? Word | Words<Rest> : Text

/** Compares stored values. Compares objects as JSON text, because their keys have a fixed order. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b || typeof a !== 'object' || typeof b !== 'object') return a === b
  const areLists = Array.isArray(a) && Array.isArray(b)
  if (areLists && (a.length === 0 || a.length !== b.length)) return a.length === b.length
  return JSON.stringify(a) === JSON.stringify(b)
}
