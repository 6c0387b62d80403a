import { isUtf8 } from 'node:buffer'
import type { Fault, Loc } from '../errors.js'
import { fault } from './faults.js'
import { type JsonBounds, JsonRefused, scanJson } from './json-scanner.js'

export type ParsedBody =
  /** JSON, with the paths of keys that could change a prototype. */
  | { kind: 'value'; value: unknown; forbidden: Loc[] }
  /** An empty body or `null`: reported together with the faults of path, query and headers. */
  | { kind: 'absent'; faults: Fault[] }
  /** Not JSON, or beyond the limits: reported alone. */
  | { kind: 'refused'; faults: Fault[] }

/** The text of a body's definition, without blanks, and the places of its repeated keys. */
export interface DefinitionText {
  text: string
  repeated: readonly Loc[]
}

const texts = new WeakMap<object, DefinitionText>()

export function withDefinitionText(body: object, text: DefinitionText | undefined): object {
  if (text !== undefined) texts.set(body, text)
  return body
}

/** Returns the text of the definition in a body that `parseJsonBody` parsed. */
export function definitionTextOf(body: object): DefinitionText | undefined {
  return texts.get(body)
}

/** Parses a JSON body: skips a byte order mark, and keeps the last of duplicate keys. Never throws. */
export function parseJsonBody(bytes: Uint8Array, bounds: JsonBounds): ParsedBody {
  const text = new TextDecoder().decode(bytes)
  const invalid = (offset: number, reason: string): ParsedBody => {
    const { msg, ...rest } = fault('json_invalid', ['body', offset])
    return { kind: 'refused', faults: [{ ...rest, msg: `${msg}: ${reason}` }] }
  }
  if (!isUtf8(bytes)) return invalid(text.indexOf('\ufffd'), 'the bytes here are not UTF-8')
  try {
    const { forbidden, repeated, memberText } = scanJson(text === '' ? 'null' : text, bounds, 'definition')
    const value: unknown = text === '' ? null : JSON.parse(text)
    if (value === null) return { kind: 'absent', faults: [fault('missing', ['body'])] }
    if (typeof value === 'object' && memberText !== undefined) withDefinitionText(value, { text: memberText, repeated })
    return { kind: 'value', value, forbidden }
  } catch (error) {
    if (!(error instanceof JsonRefused)) throw error
    const { type, offset, message } = error
    const { line, column } = placeIn(text, offset)
    const reason = `${message} at line ${line}, column ${column}`
    if (type === 'json_invalid') return invalid(offset, reason)
    return { kind: 'refused', faults: [{ loc: ['body'], msg: `Input ${reason}`, type }] }
  }
}

/** Returns the line and column of an offset, from 1. */
export function placeIn(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset)
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') }
}
