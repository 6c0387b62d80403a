import { Kind, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { suggestion } from './nearest-name.js'
import { canonicalUuid, innerSchema, isJsonObject, parseDateTime, textProblem } from './vocabulary.js'

/* Faults of requests in pydantic v2's vocabulary, as the published service answers (DECISIONS section 2). */

export const ValidationError = Type.Object(
  { loc: Type.Array(Type.Union([Type.String(), Type.Integer()])), msg: Type.String(), type: Type.String() },
  { $id: 'ValidationError' },
)

/** The body of every 422. */
export const HTTPValidationError = Type.Object({ detail: Type.Array(ValidationError) }, { $id: 'HTTPValidationError' })

/** Makes a fault whose message follows from its type. */
export function fault(type: keyof typeof SENTENCES, loc: Loc): Fault {
  return { loc, msg: SENTENCES[type], type }
}

/** Makes the fault of an undeclared name (the last part of `loc`). */
export function notDeclared(loc: Loc, declared: readonly string[]): Fault {
  const type = 'extra_forbidden'
  return { loc, msg: `${SENTENCES[type]}${suggestion(String(loc.at(-1)), declared)}`, type }
}

/** Makes the fault of a value that is not one of the allowed words. */
export function notOneOf(words: readonly unknown[], loc: Loc): Fault {
  const alternatives = new Intl.ListFormat('en-GB', { type: 'disjunction' }).format(words.map(word => `'${word}'`))
  return { loc, msg: `Input should be ${alternatives}`, type: 'enum' }
}

/** Returns all faults of a value, in the schema's field order and by list index. */
export function collectFaults(schema: TSchema, value: unknown, loc: Loc): Fault[] {
  return inspected(schema, value).map(found => ({ ...found, loc: [...loc, ...found.loc] }))
}

/** Returns the faults of only the named fields, each of which is required, for an `update_mask`. */
export function faultsOfMasked(
  schema: TObject,
  value: unknown,
  fields: readonly string[],
  loc: Loc = ['body'],
): Fault[] {
  const properties = Object.fromEntries(Object.entries(schema.properties).filter(([name]) => fields.includes(name)))
  return collectFaults({ ...schema, properties, required: [...fields] }, value, loc)
}

/** Returns the paths of unknown fields, also in records of lists. Free-form values are skipped. */
export function unknownFields(schema: TSchema, value: unknown): readonly Loc[] {
  if (typeof value !== 'object' || value === null) return NO_PLACES
  if (schema[Kind] === 'Nullable') return unknownFields(innerSchema(schema), value)
  const unknown: Loc[] = []
  if (schema[Kind] === 'Array' && Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      for (const loc of unknownFields(schema.items, value[index])) unknown.push([index, ...loc])
    }
  }
  if (schema[Kind] !== 'Object' || !isJsonObject(value)) return unknown
  const { properties } = schema as TObject // the kind proves it
  for (const name in value) {
    const property = Object.hasOwn(properties, name) ? properties[name] : undefined
    if (property === undefined) unknown.push([name])
    else for (const loc of unknownFields(property, value[name])) unknown.push([name, ...loc])
  }
  return unknown
}

const NO_PLACES: readonly Loc[] = []

/** Returns the paths of unknown fields of a body, without the content of fields outside the mask. */
export function unknownWithin(schema: TSchema, body: unknown, mask?: readonly string[]): readonly Loc[] {
  const places = unknownFields(schema, body)
  return mask === undefined ? places : places.filter(loc => loc.length === 1 || mask.includes(String(loc[0])))
}

/** Returns the declared names of the record that holds an unknown field. */
export function declaredBeside(schema: TSchema, loc: Loc): string[] {
  const record = loc.slice(0, -1).reduce<TSchema>((outer, key) => partOf(outer, key), schema)
  return Object.keys(bare(record).properties ?? {})
}

function partOf(schema: TSchema, key: string | number): TSchema {
  const { items, properties } = bare(schema)
  return typeof key === 'number' ? items : properties[key]
}

function bare(schema: TSchema): TSchema {
  return schema[Kind] === 'Nullable' ? innerSchema(schema) : schema
}

const FAULTS_MAX = 100

/** Returns at most `limit` faults. If there are more, the last one gives the number left out. */
export function boundFaults(faults: readonly Fault[], limit = FAULTS_MAX): Fault[] {
  if (faults.length <= limit) return [...faults]
  const shown = faults.slice(0, limit - 1)
  const place = faults[limit - 1]?.loc[0] ?? 'body'
  const leftOut = faults.length - shown.length
  return [...shown, { loc: [place], msg: `${leftOut} more faults are not listed`, type: 'too_many_faults' }]
}

/** Returns faults with paths relative to the value; the caller prepends its own path. */
type Inspect = (schema: TSchema, value: unknown) => readonly Fault[]

const NONE: readonly Fault[] = []

const inspections: Record<string, Inspect> = {
  Object: recordFaults,
  Array: listFaults,
  Nullable: (schema, value) => (value === null ? NONE : inspected(innerSchema(schema), value)),
  Text: textFaults,
  Integer: (schema, value) => numberFaults('int', schema, value),
  Number: (schema, value) => numberFaults('float', schema, value),
  Boolean: (_, value) =>
    typeof value === 'boolean' ? NONE : [fault(typeof value === 'string' ? 'bool_parsing' : 'bool_type', [])],
  Enumeration: ({ enum: words }, value) => (words.includes(value) ? NONE : [notOneOf(words, [])]),
  Uuid: (_, value) => readFaults(value, canonicalUuid, 'uuid_type', 'uuid_parsing'),
  DateTime: (_, value) => readFaults(value, parseDateTime, 'datetime_type', 'datetime_from_date_parsing'),
  Unknown: () => NONE,
  FreeForm: freeFormFaults,
}

function inspected(schema: TSchema, value: unknown): readonly Fault[] {
  const inspect = inspections[schema[Kind]]
  if (inspect === undefined) throw new Error(`no fault report for schemas of kind ${schema[Kind]}`)
  return inspect(schema, value)
}

function recordFaults(schema: TSchema, value: unknown): readonly Fault[] {
  if (!isJsonObject(value)) return [fault('model_attributes_type', [])]
  const { properties, required = [] } = schema as TObject // the kind proves it
  const faults: Fault[] = []
  for (const name in properties) {
    if (Object.hasOwn(value, name)) addPart(faults, name, inspected(properties[name] as TSchema, value[name]))
    else if (required.includes(name)) faults.push(lackOf(name, properties[name] as TSchema, value))
  }
  return faults
}

/** Makes the fault of a missing field. Recognises an OpenAPI document sent without its wrapper object. */
function lackOf(name: string, schema: TSchema, value: Record<string, unknown>): Fault {
  const missing = fault('missing', [name])
  const isBare = schema[Kind] === 'FreeForm' && (Object.hasOwn(value, 'openapi') || Object.hasOwn(value, 'swagger'))
  return isBare ? { ...missing, msg: `${missing.msg}: wrap the document as {"${name}": ...}` } : missing
}

function listFaults(schema: TSchema, value: unknown): readonly Fault[] {
  if (!Array.isArray(value)) return [fault('list_type', [])]
  if (value.length > schema.maxItems) {
    const msg = `List should have at most ${count(schema.maxItems, 'item')} after validation, not ${value.length}`
    return [{ loc: [], msg, type: 'too_long' }]
  }
  const faults: Fault[] = []
  for (let index = 0; index < value.length; index++) addPart(faults, index, inspected(schema.items, value[index]))
  return faults
}

function freeFormFaults(_: TSchema, value: unknown): readonly Fault[] {
  if (isJsonObject(value)) return NONE
  const isDocument = typeof value === 'string' && /^\s*\{|\b(?:openapi|swagger)\b/.test(value)
  const hint = isDocument
    ? ': send the object itself instead of a text that holds it (`agentctl validate` reads YAML)'
    : ''
  return [{ loc: [], msg: `${SENTENCES.dict_type}${hint}`, type: 'dict_type' }]
}

function addPart(faults: Fault[], part: string | number, found: readonly Fault[]): void {
  for (const one of found) {
    one.loc.unshift(part)
    faults.push(one)
  }
}

function textFaults(schema: TSchema, value: unknown): readonly Fault[] {
  if (typeof value !== 'string') return [fault('string_type', [])]
  const type = textProblem(schema, value)
  switch (type) {
    case undefined:
      return NONE
    case 'string_too_short':
      return [{ loc: [], msg: `String should have at least ${count(schema.minLength, 'character')}`, type }]
    case 'string_too_long':
      return [{ loc: [], msg: `String should have at most ${count(schema.maxLength, 'character')}`, type }]
    default:
      return [fault(type, [])]
  }
}

function numberFaults(kind: 'int' | 'float', schema: TSchema, value: unknown): readonly Fault[] {
  if (typeof value === 'string') return [fault(`${kind}_parsing`, [])]
  if (typeof value !== 'number') return [fault(`${kind}_type`, [])]
  if (!Number.isFinite(value)) return [fault('finite_number', [])]
  if (kind === 'int' && !Number.isInteger(value)) return [fault('int_from_float', [])]
  const { minimum, maximum } = schema
  if (value < minimum) {
    return [{ loc: [], msg: `Input should be greater than or equal to ${minimum}`, type: 'greater_than_equal' }]
  }
  if (value > maximum)
    return [{ loc: [], msg: `Input should be less than or equal to ${maximum}`, type: 'less_than_equal' }]
  return NONE
}

/** Returns the faults of a value that must be a readable text. */
function readFaults(
  value: unknown,
  read: (text: string) => unknown,
  isNoText: keyof typeof SENTENCES,
  isUnreadable: keyof typeof SENTENCES,
): readonly Fault[] {
  if (typeof value !== 'string') return [fault(isNoText, [])]
  return read(value) !== undefined ? NONE : [fault(isUnreadable, [])]
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

/** Messages of fault types that have one fixed message, in pydantic v2's words. */
export const SENTENCES = {
  missing: 'Field required',
  extra_forbidden: 'Extra inputs are not permitted',
  parameter_repeated: 'Input should be given once, and was given more than once',
  string_type: 'Input should be a valid string',
  string_nul: 'Input should be a string without NUL characters',
  string_unicode: 'Input should be a valid string, unable to parse raw data as a unicode string',
  bool_type: 'Input should be a valid boolean',
  bool_parsing: 'Input should be a valid boolean, unable to interpret input',
  int_type: 'Input should be a valid integer',
  int_parsing: 'Input should be a valid integer, unable to parse string as an integer',
  int_from_float: 'Input should be a valid integer, got a number with a fractional part',
  float_type: 'Input should be a valid number',
  float_parsing: 'Input should be a valid number, unable to parse string as a number',
  finite_number: 'Input should be a finite number',
  list_type: 'Input should be a valid list',
  dict_type: 'Input should be a valid dictionary',
  model_attributes_type: 'Input should be a valid dictionary or object to extract fields from',
  uuid_type: 'UUID input should be a string, bytes or UUID object',
  uuid_parsing: 'Input should be a valid UUID, 32 hexadecimal digits in the form 8-4-4-4-12',
  datetime_type: 'Input should be a valid datetime',
  datetime_from_date_parsing:
    'Input should be a valid datetime or date in RFC 3339 form, of the years 1 to 9999 in UTC',
  json_invalid: 'JSON decode error',
  key_forbidden: 'This key is not allowed',
} as const
