import { Kind, type SchemaOptions, type TObject, type TSchema, Type } from '@sinclair/typebox'
import { INT4_MAX } from '../db/tables.js'
import type { Fault, Loc } from '../errors.js'
import { collectFaults, fault, notOneOf } from './faults.js'
import { text as textSchema } from './vocabulary.js'

/* Parameters of a path, query or header. Each has a schema for the OpenAPI document and a parser. */

export type Parsed<Value> = { value: Value } | { faults: Fault[] }

const Read = Symbol('read')
const Masked = Symbol('masked')

interface TParameter<Value> extends TSchema {
  [Kind]: 'Parameter'
  [Read]: (text: string, loc: Loc) => Parsed<Value>
  static: Value
}

/** The maximum length of an `update_mask`. All field names of an agent together are less than half as long. */
const MASK_LENGTH_MAX = 1_000

const NAME_LENGTH_MAX = 64

/** Makes a parameter from its schema and its parser. The parser gets the parameter's path as `loc`. */
export function parameter<Value>(document: SchemaOptions, read: TParameter<Value>[typeof Read]): TParameter<Value> {
  return { ...document, [Kind]: 'Parameter', [Read]: read } as TParameter<Value> // `static` exists only in the type
}

/** An id in a path. An integer outside the range of ids becomes undefined. */
export function pathId() {
  return parameter({ minimum: 1, maximum: INT4_MAX, type: 'integer' }, parseId)
}

export function queryId(description: string) {
  return Type.Optional(parameter({ type: 'integer', description }, parseId))
}

/** A boolean in a query. Accepts only `true` and `false`, so that a mistaken `dry_run=1` does not store anything. */
export function queryFlag(description: string) {
  return Type.Optional(
    parameter({ type: 'boolean', description }, (text, loc): Parsed<boolean> => {
      const isFlag = text === 'true' || text === 'false'
      return isFlag ? { value: text === 'true' } : { faults: [fault('bool_parsing', loc)] }
    }),
  )
}

export function queryInteger(minimum: number, maximum: number, description: string) {
  const schema = Type.Integer({ minimum, maximum, description })
  return Type.Optional(
    parameter({ ...schema, description }, (text, loc) =>
      /^-?\d+$/.test(text) ? checked(schema, Number(text), loc) : { faults: [fault('int_parsing', loc)] },
    ),
  )
}

export function queryText(maxLength: number, description: string) {
  const schema = textSchema({ maxLength, description })
  return Type.Optional(parameter({ ...schema, description }, (text, loc) => checked(schema, text, loc)))
}

/** A string that must match a pattern. `msg` is the message for a string that does not match. */
export function patterned<Value>(pattern: RegExp, description: string, msg: string, read: (text: string) => Value) {
  return Type.Optional(
    parameter({ type: 'string', pattern: pattern.source, description }, (text, loc): Parsed<Value> => {
      const faults = [{ loc, msg, type: 'string_pattern_mismatch' }]
      return pattern.test(text) ? { value: read(text) } : { faults }
    }),
  )
}

export function queryChoice<const Word extends string>(words: readonly Word[], description: string) {
  return Type.Optional(
    parameter({ enum: words, type: 'string', description }, (text, loc): Parsed<Word> => {
      const word = words.find(one => one === text)
      return word === undefined ? { faults: [{ loc, ...notOneOf(words) }] } : { value: word }
    }),
  )
}

/** A query parameter that names the fields to update. Other fields of the body are not checked. */
export function queryMask(body: TObject, description: string) {
  const schema = textSchema({ maxLength: MASK_LENGTH_MAX, description })
  const mask = parameter({ ...schema, description }, (text, loc): Parsed<string[]> => {
    const read = checked(schema, text, loc)
    if ('faults' in read) return read
    const unknown = text.trim() === '' ? [] : namesIn(text).filter(name => !Object.hasOwn(body.properties, name))
    const faults = unknown.map(name => {
      const msg = `Input should be names of fields, separated by commas; '${shortened(name)}' is not a field`
      return { loc, msg, type: 'enum' }
    })
    return faults.length > 0 ? { faults } : { value: fieldsNamedIn(text, body) }
  })
  return Type.Optional({ ...mask, [Masked]: body })
}

/** Shortens a name from the caller to 64 characters. */
export function shortened(name: string): string {
  return name.length > NAME_LENGTH_MAX ? `${name.slice(0, NAME_LENGTH_MAX)}...` : name
}

function checked<Value>(schema: TSchema, value: Value, loc: Loc): Parsed<Value> {
  const faults = collectFaults(schema, value, loc)
  return faults.length > 0 ? { faults } : { value }
}

/** Parses an id. An integer outside the range of ids becomes undefined, so that the response is "not found" and not "invalid". */
export function parseId(text: string, loc: Loc): Parsed<number | undefined> {
  if (!/^-?\d+$/.test(text)) return { faults: [fault('int_parsing', loc)] }
  const id = Number(text)
  return { value: id >= 1 && id <= INT4_MAX ? id : undefined }
}

/** The received parameters of a path, a query or headers. A repeated parameter is a list. */
export type ParameterTexts = Readonly<Record<string, string | string[] | undefined>>

/** Returns the parser for all parameters of a path, a query or headers. Unknown parameters are faults only in a query. */
export function parameterReader({ properties, required = [] }: TObject, place: 'path' | 'query' | 'header') {
  return (texts: ParameterTexts): Parsed<Record<string, unknown>> => {
    const value: Record<string, unknown> = {}
    const faults: Fault[] = []
    for (const name of Object.keys(place === 'query' ? texts : properties)) {
      const text = texts[name]
      const loc = [place, name]
      if (text === undefined) continue
      if (!Object.hasOwn(properties, name)) faults.push(fault('extra_forbidden', loc))
      else if (place === 'query' && typeof text !== 'string') faults.push(fault('parameter_repeated', loc))
      else {
        const parsed = (properties[name] as TParameter<unknown>)[Read](String(text), loc) // `parameter` made every property
        if ('value' in parsed) value[name] = parsed.value
        else faults.push(...parsed.faults)
      }
    }
    for (const name of required) if (texts[name] === undefined) faults.push(fault('missing', [place, name]))
    return faults.length > 0 ? { faults } : { value }
  }
}

/** Returns a function that reads the fields in `update_mask`, even if the query has faults. Without an `update_mask`, it returns undefined. */
export function maskReader({ properties }: TObject): (texts: ParameterTexts) => string[] | undefined {
  for (const [name, schema] of Object.entries(properties)) {
    const body = (schema as { [Masked]?: TObject })[Masked]
    if (body !== undefined)
      return texts => (texts[name] === undefined ? undefined : fieldsNamedIn(String(texts[name]), body))
  }
  return () => undefined
}

/** Returns the fields that an `update_mask` names, in the order of the schema. Ignores the end of an `update_mask` that is too long. */
function fieldsNamedIn(mask: string, schema: TObject): string[] {
  const named = namesIn(mask.slice(0, MASK_LENGTH_MAX))
  return Object.keys(schema.properties).filter(name => named.includes(name))
}

function namesIn(mask: string): string[] {
  return [...new Set(mask.split(',').map(name => name.trim()))]
}
