import { Kind, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { canonicalUuid, innerSchema, isJsonObject, parseDateTime, textProblem } from './vocabulary.js'

/* Faults of requests, with the types and messages of pydantic v2, as in Onyx (DECISIONS section 2). */

export const ValidationError = Type.Object(
  { loc: Type.Array(Type.Union([Type.String(), Type.Integer()])), msg: Type.String(), type: Type.String() },
  { $id: 'ValidationError' },
)

/** The body of every 422. */
export const HTTPValidationError = Type.Object({ detail: Type.Array(ValidationError) }, { $id: 'HTTPValidationError' })

export function fault(type: FaultType, loc: Loc, reason = ''): Fault {
  return { loc, msg: SENTENCES[type] + reason, type }
}

/** Returns all faults of a value, in the order of the schema's fields and of list items. */
export function collectFaults(schema: TSchema, value: unknown, loc: Loc, faults: Fault[] = []): Fault[] {
  const { items, maxItems, properties = {}, required = [] } = schema
  switch (schema[Kind]) {
    case 'Nullable':
      if (value !== null) collectFaults(innerSchema(schema), value, loc, faults)
      break
    case 'Object':
      if (!isJsonObject(value)) faults.push(fault('model_attributes_type', loc))
      else
        for (const name of Object.keys(properties))
          if (Object.hasOwn(value, name)) collectFaults(properties[name], value[name], [...loc, name], faults)
          else if (required.includes(name)) faults.push(fault('missing', [...loc, name]))
      break
    case 'Array':
      if (!Array.isArray(value)) faults.push(fault('list_type', loc))
      else if (value.length > maxItems) {
        const msg = `List should have at most ${count(maxItems, 'item')} after validation, not ${value.length}`
        faults.push({ loc, msg, type: 'too_long' })
      } else for (const [index, item] of value.entries()) collectFaults(items, item, [...loc, index], faults)
      break
    default: {
      const found = scalarFault(schema, value)
      if (found !== undefined) faults.push(typeof found === 'string' ? fault(found, loc) : { loc, ...found })
    }
  }
  return faults
}

type FaultType = keyof typeof SENTENCES

/** Returns the type of the fault of a scalar or free-form value. If the message depends on the schema, returns both the type and the message. */
function scalarFault(schema: TSchema, value: unknown): FaultType | Omit<Fault, 'loc'> | undefined {
  switch (schema[Kind]) {
    case 'Text':
      return typeof value === 'string' ? textFault(schema, value) : 'string_type'
    case 'Integer':
      return numberFault('int', schema, value)
    case 'Number':
      return numberFault('float', schema, value)
    case 'Boolean':
      if (typeof value === 'boolean') return undefined
      return typeof value === 'string' ? 'bool_parsing' : 'bool_type'
    case 'Enumeration':
      return schema.enum.includes(value) ? undefined : notOneOf(schema.enum)
    case 'Uuid':
      if (typeof value !== 'string') return 'uuid_type'
      return canonicalUuid(value) === undefined ? 'uuid_parsing' : undefined
    case 'DateTime':
      if (typeof value !== 'string') return 'datetime_type'
      return parseDateTime(value) === undefined ? 'datetime_from_date_parsing' : undefined
    case 'FreeForm':
      return isJsonObject(value) ? undefined : 'dict_type'
    case 'Unknown':
      return undefined
    default:
      throw new Error(`no fault report for schemas of kind ${schema[Kind]}`)
  }
}

function textFault(schema: TSchema, value: string): ReturnType<typeof scalarFault> {
  const type = textProblem(schema, value)
  if (type === 'string_too_short')
    return { msg: `String should have at least ${count(schema.minLength, 'character')}`, type }
  if (type === 'string_too_long')
    return { msg: `String should have at most ${count(schema.maxLength, 'character')}`, type }
  return type
}

function numberFault(kind: 'int' | 'float', { minimum, maximum }: TSchema, value: unknown) {
  if (typeof value !== 'number') return `${kind}_${typeof value === 'string' ? 'parsing' : 'type'}` as const
  if (!Number.isFinite(value)) return 'finite_number'
  if (kind === 'int' && !Number.isInteger(value)) return 'int_from_float'
  if (value < minimum) return { msg: `Input should be greater than or equal to ${minimum}`, type: 'greater_than_equal' }
  if (value > maximum) return { msg: `Input should be less than or equal to ${maximum}`, type: 'less_than_equal' }
  return undefined
}

/** Returns the fault, without a path, of a value that is not one of `words`. */
export function notOneOf(words: readonly unknown[]): Omit<Fault, 'loc'> {
  const alternatives = new Intl.ListFormat('en-GB', { type: 'disjunction' }).format(words.map(word => `'${word}'`))
  return { msg: `Input should be ${alternatives}`, type: 'enum' }
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

/** Returns the faults of the fields that an `update_mask` names. Each of these fields is required. Other fields are not checked. */
export function faultsOfMasked(schema: TObject, body: unknown, fields: readonly string[]): Fault[] {
  const properties = Object.fromEntries(Object.entries(schema.properties).filter(([name]) => fields.includes(name)))
  return collectFaults({ ...schema, properties, required: [...fields] }, body, ['body'])
}

/** Returns the paths of unknown fields, including those in nested objects. Ignores free-form values. */
export function unknownFields(schema: TSchema, value: unknown): Loc[] {
  if (typeof value !== 'object' || value === null) return []
  const { [Kind]: kind, items, properties } = schema
  const inside = (key: string | number, part: TSchema, member: unknown) =>
    unknownFields(part, member).map(loc => [key, ...loc])
  if (kind === 'Nullable') return unknownFields(innerSchema(schema), value)
  if (kind === 'Array' && Array.isArray(value)) return value.flatMap((item, i) => inside(i, items, item))
  if (kind !== 'Object' || Array.isArray(value)) return []
  return Object.entries(value).flatMap(([name, member]) =>
    Object.hasOwn(properties, name) ? inside(name, properties[name], member) : [[name]],
  )
}

/** Returns the paths of unknown fields of a body. Ignores unknown fields inside fields that `update_mask` does not name. */
export function unknownWithin(schema: TSchema, body: unknown, mask?: readonly string[]): Loc[] {
  const places = unknownFields(schema, body)
  return mask === undefined ? places : places.filter(loc => loc.length === 1 || mask.includes(String(loc[0])))
}

/** Returns at most `limit` faults. If there are more, the last one states the number omitted. */
export function boundFaults(faults: readonly Fault[], limit = 100): Fault[] {
  if (faults.length <= limit) return [...faults]
  const shown = faults.slice(0, limit - 1)
  const place = faults[limit - 1]?.loc[0] ?? 'body'
  const leftOut = faults.length - shown.length
  return [...shown, { loc: [place], msg: `${leftOut} more faults are not listed`, type: 'too_many_faults' }]
}

/** The messages of fault types whose message is fixed. Most are from pydantic v2. */
export const SENTENCES = {
  missing: 'Field required',
  extra_forbidden: 'Extra inputs are not permitted',
  parameter_repeated: 'Input should be given once, but was given more than once',
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
    'Input should be a valid datetime or date in RFC 3339 form, and its year in UTC should be from 1 to 9999',
  json_invalid: 'JSON decode error',
  key_forbidden: 'This key is not allowed',
} as const
