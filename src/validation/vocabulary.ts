import { Kind, type SchemaOptions, type Static, type TSchema, Type } from '@sinclair/typebox'
import { INT4_MAX } from '../db/tables.js'

/* Builders of schemas: each is JSON Schema for the document, and a kind that `faults.ts` checks. Private settings are symbols. */

const Trimmed = Symbol('trimmed')
const Inner = Symbol('inner')

const INT4_MIN = -2_147_483_648

/** A schema of a custom TypeBox kind for values of this type. */
interface Own<Value> extends TSchema {
  static: Value
}

function own<Value>(kind: string, content: object): Own<Value> {
  return { ...content, [Kind]: kind } as unknown as Own<Value> // TypeBox's own way to make a kind: `static` is a type only
}

/** Lengths are in Unicode code points. `trimmed`: blanks at both ends do not count. */
type TextOptions = SchemaOptions & { minLength?: number; maxLength?: number; trimmed?: boolean }

/** Text that PostgreSQL can hold: no NUL, no lone surrogate. */
export function text({ trimmed = false, ...options }: TextOptions = {}) {
  return own<string>('Text', { ...options, type: 'string', [Trimmed]: trimmed })
}

export function enumeration<const Value extends string>(values: readonly Value[], options: SchemaOptions = {}) {
  return own<Value>('Enumeration', { ...options, type: 'string', enum: [...values] })
}

export function uuid(options: SchemaOptions = {}) {
  return own<string>('Uuid', { ...options, type: 'string', format: 'uuid' })
}

/** A date that `parseDateTime` accepts. */
export function dateTime(options: SchemaOptions = {}) {
  return own<string>('DateTime', { ...options, type: 'string', format: 'date-time' })
}

/** True if an `integer` column can hold the number. */
export function isInt4(value: number): boolean {
  return value >= INT4_MIN && value <= INT4_MAX
}

export function int32(options: SchemaOptions = {}) {
  return Type.Integer({ ...options, minimum: INT4_MIN, maximum: INT4_MAX })
}

/**
 * `identifier` is the id of another row. An id beyond the column is reported as `not_found`, like other unknown ids. A `list` longer than
 * `maxItems` is one fault, and its items are not checked.
 */
export { Array as list, Boolean as flag, Integer as identifier, Number as number } from '@sinclair/typebox'

/** A JSON object whose content is not checked: every property is kept as sent. */
export function freeForm(options: SchemaOptions = {}) {
  return own<Record<string, unknown>>('FreeForm', { ...options, type: 'object', additionalProperties: true })
}

/** The schema or `null`, as a type list, because a union reports one fault for each member. A named schema stays a reference. */
export function nullable<Schema extends TSchema>(schema: Schema, options: SchemaOptions = {}) {
  const { $id, ...inline } = schema
  const outside = $id === undefined ? { ...inline, type: [inline.type, 'null'] } : { anyOf: [schema, { type: 'null' }] }
  return own<Static<Schema> | null>('Nullable', { ...outside, ...options, [Inner]: schema })
}

export function innerSchema(schema: TSchema): TSchema {
  return (schema as unknown as { [Inner]: TSchema })[Inner] // the kind proves it
}

/** `{ $ref }` to a component, typed as what it refers to. For routes: the document then names it once. */
export function reference<Schema extends TSchema>(schema: Schema) {
  return Type.Unsafe<Static<Schema>>({ $ref: schema.$id })
}

/** Returns the first reason to refuse a text, or undefined. */
export function textProblem(schema: TSchema, value: string) {
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY } = schema
  if (value.includes('\0')) return 'string_nul'
  if (!value.isWellFormed()) return 'string_unicode'
  const judged = (schema as { [Trimmed]?: boolean })[Trimmed] ? value.trim() : value
  // A code point has one or two UTF-16 units, so most texts need no counting.
  if (judged.length < minLength * 2 && countCodePoints(judged) < minLength) return 'string_too_short'
  if (judged.length <= maxLength) return undefined
  return judged.length > maxLength * 2 || countCodePoints(judged) > maxLength ? 'string_too_long' : undefined
}

function countCodePoints(value: string): number {
  let count = 0
  for (const _ of value) count++
  return count
}

const UUID = /^(?:(?:urn:uuid:)?[\dA-Fa-f]{8}(?:-[\dA-Fa-f]{4}){3}-[\dA-Fa-f]{12}|[\dA-Fa-f]{32})$/

/** Returns the canonical form of a UUID. The published service takes it hyphenated, in braces, as bare digits and as a lower-case URN. */
export function canonicalUuid(text: string): string | undefined {
  const bare = text.replace(/^\{(.{36})\}$/, '$1')
  const digits = bare.replace(/^urn:uuid:|-/g, '').toLowerCase()
  return UUID.test(bare) ? digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-') : undefined
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const DATE_TIME =
  /^(\d{4}-\d\d-\d\d)(?:[Tt ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d+))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?$/

/**
 * Parses a date of RFC 3339, a date-time without an offset (as UTC), or a bare date. Returns UTC with microseconds; undefined outside the
 * years 1 to 9999.
 */
export function parseDateTime(text: string): string | undefined {
  const [, date = '', time = '00:00:00', fraction = '', offset = 'Z'] = DATE_TIME.exec(text) ?? []
  // `Date` reads 30 February as a day of March.
  const day = new Date(`${date}T00:00:00Z`)
  if (Number.isNaN(day.getTime()) || day.toISOString().slice(0, 10) !== date) return undefined
  const instant = new Date(`${date}T${time}${offset.toUpperCase()}`)
  const year = instant.getUTCFullYear()
  if (!(year >= 1 && year <= 9999)) return undefined
  return `${instant.toISOString().slice(0, 19)}.${fraction.slice(0, 6).padEnd(6, '0')}Z`
}
