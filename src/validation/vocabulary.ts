// For String.prototype.isWellFormed, which Node has had since version 20.
/// <reference lib="es2024.string" />
import { Kind, type SchemaOptions, type Static, type TSchema, Type } from '@sinclair/typebox'

/*
 * Builders of schemas: each is JSON Schema for the document, and a kind that `faults.ts` checks. Private settings are symbols.
 */

/** A symbol on a `text` that is trimmed before its length is checked and before it is stored. */
const Trimmed = Symbol('trimmed')
const Inner = Symbol('inner')

const INT4_MIN = -2_147_483_648
/** The largest value of an `integer` column, and so the largest id. */
export const INT4_MAX = 2_147_483_647

/** A schema of a custom TypeBox kind for values of this type. */
interface Own<Name extends string, Value> extends TSchema {
  [Kind]: Name
  static: Value
}

type TText = Own<'Text', string> & { [Trimmed]: boolean; minLength?: number; maxLength?: number }

type TNullable<Schema extends TSchema = TSchema> = Own<'Nullable', Static<Schema> | null> & { [Inner]: Schema }

interface TextOptions extends SchemaOptions {
  /** In Unicode code points. */
  minLength?: number
  /** In Unicode code points. */
  maxLength?: number
  /** Trim blanks before checking the length. */
  trimmed?: boolean
}

/** Text that PostgreSQL can hold: no NUL, no lone surrogate. Limits count code points, as JSON Schema does. */
export function text({ trimmed = false, ...options }: TextOptions = {}): TText {
  return brand<TText>('Text', { ...options, type: 'string', [Trimmed]: trimmed })
}

/** One of the given words; `enum` in the document. With `$id` it is a component of its own. */
export function enumeration<const Value extends string>(values: readonly Value[], options: SchemaOptions = {}) {
  return brand<Own<'Enumeration', Value>>('Enumeration', { ...options, type: 'string', enum: [...values] })
}

/** A UUID in its hyphenated form, in either case. */
export function uuid(options: SchemaOptions = {}) {
  return brand<Own<'Uuid', string>>('Uuid', { ...options, type: 'string', format: 'uuid' })
}

/** A date that `parseDateTime` accepts. */
export function dateTime(options: SchemaOptions = {}) {
  return brand<Own<'DateTime', string>>('DateTime', { ...options, type: 'string', format: 'date-time' })
}

/** True if an `integer` column can hold the number. */
export function isInt4(value: number): boolean {
  return value >= INT4_MIN && value <= INT4_MAX
}

/** An integer that an `int4` column can hold. */
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
  return brand<Own<'FreeForm', Record<string, unknown>>>('FreeForm', {
    ...options,
    type: 'object',
    additionalProperties: true,
  })
}

/** The schema or `null`, as a type list, because a union reports one fault for each member. A named schema stays a reference. */
export function nullable<Schema extends TSchema>(schema: Schema, options: SchemaOptions = {}): TNullable<Schema> {
  const { $id, ...inline } = schema
  const outside = $id === undefined ? { ...inline, type: [inline.type, 'null'] } : { anyOf: [schema, { type: 'null' }] }
  return brand<TNullable<Schema>>('Nullable', { ...outside, ...options, [Inner]: schema })
}

/** Returns the schema inside `nullable`. */
export function innerSchema(schema: TSchema): TSchema {
  return (schema as TNullable)[Inner] // the kind proves it; TSchema is untyped
}

/** `{ $ref }` to a component, typed as what it refers to. For routes: the document then names it once. */
export function reference<Schema extends TSchema>(schema: Schema) {
  return Type.Unsafe<Static<Schema>>({ $ref: schema.$id })
}

/** The schema as the OpenAPI document lists it: every named schema inside it is a reference. */
export function component(schema: TSchema): Record<string, unknown> & { $id: string } {
  const { $id, ...content } = schema
  if ($id === undefined) throw new Error('a component needs a name')
  // An object goes in, so an object comes out.
  return { $id, ...(withReferences(content) as Record<string, unknown>) }
}

/** Replaces each named schema inside a schema by a reference. */
export function withReferences(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withReferences)
  if (typeof node !== 'object' || node === null) return node
  if ('$id' in node) return { $ref: node.$id }
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, withReferences(value)]))
}

export type TextProblem = 'string_nul' | 'string_unicode' | 'string_too_short' | 'string_too_long'

/** Returns the first reason to refuse a text, or undefined. */
export function textProblem(schema: TSchema, value: string): TextProblem | undefined {
  // TSchema's own properties are untyped; only `text` makes this kind.
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY, [Trimmed]: trimmed } = schema as TText
  if (value.includes('\0')) return 'string_nul'
  if (!value.isWellFormed()) return 'string_unicode'
  const judged = trimmed ? value.trim() : value
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

/** UUID forms that the published service accepts: hyphenated, bare digits, in braces, and as a lower-case URN. */
const uuidShape =
  /^(?:urn:uuid:|(\{))?([0-9A-Fa-f]{8})(-?)([0-9A-Fa-f]{4})\3([0-9A-Fa-f]{4})\3([0-9A-Fa-f]{4})\3([0-9A-Fa-f]{12})(\})?$/

/** Returns the canonical form of a UUID, which is stored and answered; undefined for other texts. */
export function canonicalUuid(text: string): string | undefined {
  const found = uuidShape.exec(text)
  if (found === null) return undefined
  const [, open, first, hyphen, second, third, fourth, last, close] = found
  const wrapped = text.length !== 36 && text.length !== 32
  if ((open === undefined) !== (close === undefined) || (wrapped && hyphen === '')) return undefined
  return [first, second, third, fourth, last].join('-').toLowerCase()
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function brand<Schema extends TSchema>(kind: Schema[typeof Kind], content: object): Schema {
  return { ...content, [Kind]: kind } as Schema // TypeBox's own way to make a kind: the symbol is the type
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
