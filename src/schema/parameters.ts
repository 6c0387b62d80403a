import type { TObject } from '@sinclair/typebox'
import type { Fault } from '../errors.js'
import { fault } from './faults.js'

/** Either what a parameter says, or what is wrong with it. */
export type Parsed<Value> = { value: Value } | { faults: Fault[] }

const largestId = 2_147_483_647
const shownNameLimit = 64

/**
 * Reads an id in a path. An integer in plain decimal that no row can have is `undefined`: it is not found, not wrong.
 * Anything else (`abc`, `1e3`, `1.5`, nothing) is `int_parsing` at `["path", name]`.
 */
export function parsePathId(text: string, name: string): Parsed<number | undefined> {
  if (!/^-?\d+$/.test(text)) return { faults: [fault('int_parsing', ['path', name])] }
  const id = Number(text)
  return { value: id >= 1 && id <= largestId ? id : undefined }
}

/** Reads a boolean in a query: `true` or `false`, nothing else, so that a mistyped `dry_run=1` never writes. */
export function parseQueryFlag(text: string, name: string): Parsed<boolean> {
  if (text === 'true' || text === 'false') return { value: text === 'true' }
  return { faults: [fault('bool_parsing', ['query', name])] }
}

/**
 * Reads an `update_mask`: field names separated by commas, blanks around them allowed. Gives each field once, in the
 * order in which the schema declares them; the empty text is the empty mask. Each unknown name is a fault of its own.
 */
export function parseUpdateMask(text: string, schema: TObject): Parsed<string[]> {
  if (text.trim() === '') return { value: [] }
  const unknown = [...namesIn(text)].filter(name => !Object.hasOwn(schema.properties, name))
  if (unknown.length > 0) return { faults: unknown.map(unknownName) }
  return { value: fieldsNamedIn(text, schema) }
}

/** The fields that a mask names, whatever else it holds, in the order in which the schema declares them. */
export function fieldsNamedIn(mask: string, schema: TObject): string[] {
  const named = namesIn(mask)
  return Object.keys(schema.properties).filter(name => named.has(name))
}

function namesIn(mask: string): Set<string> {
  return new Set(mask.split(',').map(name => name.trim()))
}

function unknownName(name: string): Fault {
  const shown = name.length > shownNameLimit ? `${name.slice(0, shownNameLimit)}...` : name
  return {
    loc: ['query', 'update_mask'],
    msg: `Input should be names of fields, separated by commas; '${shown}' is no field`,
    type: 'enum',
  }
}
