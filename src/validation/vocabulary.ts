import { Kind, type SchemaOptions, type Static, type TSchema, Type } from '@sinclair/typebox'
import { INT4_MAX } from '../db/tables.js'

/*
 * Builders of schemas. Each schema is JSON Schema for the OpenAPI document. Its kind tells `faults.ts` which check to use. Settings that must not
 * appear in the document have symbols as keys.
 */

const Trimmed = Symbol('trimmed')
const Inner = Symbol('inner')

const INT4_MIN = -2_147_483_648

/** A schema of our own TypeBox kind for values of the type `Value`. */
interface Own<Value> extends TSchema {
  static: Value
}

function own<Value>(kind: string, content: object): Own<Value> {
  return { ...content, [Kind]: kind } as unknown as Own<Value> // `Kind` is the key that TypeBox uses; `static` exists only in the type
}

/** Lengths are numbers of Unicode code points. `trimmed`: blanks at both ends do not count. */
type TextOptions = SchemaOptions & { minLength?: number; maxLength?: number; trimmed?: boolean }

/** Text without NUL and lone surrogates, which PostgreSQL cannot store. */
export function text({ trimmed = false, ...options }: TextOptions = {}) {
  return own<string>('Text', { ...options, type: 'string', [Trimmed]: trimmed })
}

export function enumeration<const Value extends string>(values: readonly Value[], options: SchemaOptions = {}) {
  return own<Value>('Enumeration', { ...options, type: 'string', enum: [...values] })
}

export function uuid(options: SchemaOptions = {}) {
  return own<string>('Uuid', { ...options, type: 'string', format: 'uuid' })
}

/** A date, with or without a time, that `parseDateTime` accepts. */
export function dateTime(options: SchemaOptions = {}) {
  return own<string>('DateTime', { ...options, type: 'string', format: 'date-time' })
}

/** True if the number fits into an `integer` column. */
export function isInt4(value: number): boolean {
  return value >= INT4_MIN && value <= INT4_MAX
}

export function int32(options: SchemaOptions = {}) {
  return Type.Integer({ ...options, minimum: INT4_MIN, maximum: INT4_MAX })
}

/**
 * `identifier` is the id of a referenced row. An id outside the column's range is reported as `not_found`. If a `list` has more than `maxItems`
 * items, its items are not checked.
 */
export { Array as list, Boolean as flag, Integer as identifier, Number as number } from '@sinclair/typebox'

/** A JSON object with any content. */
export function freeForm(options: SchemaOptions = {}) {
  return own<Record<string, unknown>>('FreeForm', { ...options, type: 'object', additionalProperties: true })
}

/** A schema that also accepts `null`. It has its own kind, because a union would report a fault for each type. A named schema is in an `anyOf`. */
export function nullable<Schema extends TSchema>(schema: Schema, options: SchemaOptions = {}) {
  const { $id, ...inline } = schema
  const outside = $id === undefined ? { ...inline, type: [inline.type, 'null'] } : { anyOf: [schema, { type: 'null' }] }
  return own<Static<Schema> | null>('Nullable', { ...outside, ...options, [Inner]: schema })
}

export function innerSchema(schema: TSchema): TSchema {
  return (schema as unknown as { [Inner]: TSchema })[Inner] // every nullable schema has an inner schema
}

/** Returns a `{ $ref }` with the component's TypeScript type, so that the document contains the component once. */
export function reference<Schema extends TSchema>(schema: Schema) {
  return Type.Unsafe<Static<Schema>>({ $ref: schema.$id })
}

/** Returns the first fault of a string; undefined if it has none. */
export function textProblem(schema: TSchema, value: string) {
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY } = schema
  if (value.includes('\0')) return 'string_nul'
  if (!value.isWellFormed()) return 'string_unicode'
  const judged = (schema as { [Trimmed]?: boolean })[Trimmed] ? value.trim() : value
  // A code point has one or two UTF-16 units, so the code points of most strings need not be counted.
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

/**
 * Returns the canonical form of a UUID; undefined if the text is not a UUID. Like Onyx, also accepts braces, a lower-case URN and 32 plain digits.
 */
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
 * Parses an RFC 3339 date-time. The default time is midnight, and the default offset is UTC. Returns UTC with microseconds. Returns undefined for
 * other strings and for years outside 1 to 9999.
 */
export function parseDateTime(text: string): string | undefined {
  const [, date = '', time = '00:00:00', fraction = '', offset = 'Z'] = DATE_TIME.exec(text) ?? []
  // `Date` accepts 30 February as a day in March, so the resulting date is compared with the given date.
  const day = new Date(`${date}T00:00:00Z`)
  if (Number.isNaN(day.getTime()) || day.toISOString().slice(0, 10) !== date) return undefined
  const instant = new Date(`${date}T${time}${offset.toUpperCase()}`)
  const year = instant.getUTCFullYear()
  if (!(year >= 1 && year <= 9999)) return undefined
  return `${instant.toISOString().slice(0, 19)}.${fraction.slice(0, 6).padEnd(6, '0')}Z`
}
