import type { Fault, Loc } from '../errors.js'
import { parseExact } from './exact-json.js'
import { fault } from './faults.js'
import { offsetOfSyntaxError } from './json-syntax.js'

/** What the bytes of a request body hold. */
export type ParsedBody =
  /** JSON, with the places of keys that reach into prototypes. */
  | { kind: 'value'; value: unknown; forbidden: Loc[] }
  /** An empty body or `null`: reported together with the faults of path, query and headers. */
  | { kind: 'absent'; faults: Fault[] }
  /** Not JSON, or beyond its bounds: reported alone. */
  | { kind: 'refused'; faults: Fault[] }

/** What a JSON text may hold at most. */
export interface JsonBounds {
  /** Objects and lists inside each other; the outermost is depth 1. */
  depthMax: number
  /** Objects, lists, texts (keys too) and commas: a measure of how long the text takes to parse. */
  nodesMax: number
  /** Bytes between the quotes of a key. Long keys that differ at their end only are compared whole, each with each. */
  keyBytesMax: number
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Reads a JSON body: a byte order mark is skipped, duplicate keys give the last, numbers keep their text. Never throws. */
export function parseJsonBody(bytes: Uint8Array, bounds: JsonBounds): ParsedBody {
  if (bytes.length === 0) return absent()
  const { beyond, hasPlainNumbers } = scanJson(bytes, bounds)
  if (beyond !== undefined) return { kind: 'refused', faults: [beyond] }
  const text = decoded(bytes)
  if (text === undefined) return invalidAt(offsetOfInvalidUtf8(bytes))
  let value: unknown
  try {
    value = parseExact(text, hasPlainNumbers)
  } catch {
    return invalidAt(offsetOfSyntaxError(text))
  }
  if (value === null) return absent()
  return { kind: 'value', value, forbidden: mayNameForbiddenKey.test(text) ? forbiddenKeys(value) : [] }
}

function absent(): ParsedBody {
  return { kind: 'absent', faults: [fault('missing', ['body'])] }
}

function invalidAt(offset: number): ParsedBody {
  return { kind: 'refused', faults: [fault('json_invalid', ['body', offset])] }
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

/** A BOM counts as no character here, as in the text that was decoded. */
function offsetOfInvalidUtf8(bytes: Uint8Array): number {
  return Math.max(0, new TextDecoder('utf-8').decode(bytes).indexOf('\ufffd'))
}

/** What a text with such a key holds; any letter of it may be written as an escape. */
const mayNameForbiddenKey = /__proto__|prototype|\\u00/

/** The places where a value names `__proto__`, or `prototype` inside `constructor`, in the order of its text. */
function forbiddenKeys(value: unknown, path: Loc = [], found: Loc[] = []): Loc[] {
  if (typeof value !== 'object' || value === null) return found
  const isInConstructor = path.at(-1) === 'constructor'
  for (const [key, member] of Object.entries(value)) {
    const place = [...path, Array.isArray(value) ? Number(key) : key]
    if (key === '__proto__' || (key === 'prototype' && isInConstructor)) found.push(place)
    forbiddenKeys(member, place, found)
  }
  return found
}

/** A double holds every integer of so many digits. */
const PLAIN_DIGITS = 15

/** Any double is written with fewer, also in full; what has more takes long to read and says nothing. */
const NUMBER_DIGITS_MAX = 4_096

const [BLANK, QUOTE, COMMA, MINUS, POINT, ZERO, NINE, COLON] = [0x20, 0x22, 0x2c, 0x2d, 0x2e, 0x30, 0x39, 0x3a]
const [OPEN_LIST, BACKSLASH, CLOSE_LIST, LOWER_E, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5c, 0x5d, 0x65, 0x7b, 0x7d]

/** Looks at the bytes of JSON before they are parsed. `hasPlainNumbers`: JavaScript writes its numbers as they stand. */
function scanJson(bytes: Uint8Array, bounds: JsonBounds): { beyond?: Fault; hasPlainNumbers: boolean } {
  const { depthMax, nodesMax, keyBytesMax } = bounds
  let [depth, nodes, digits, textAt, textBytes] = [0, 0, 0, 0, 0]
  let hasPlainNumbers = true
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number // within its length
    if (byte === BLANK) continue
    if (byte === QUOTE) {
      textAt = at + 1
      for (at++; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) at++
      textBytes = at - textAt
      nodes++
    } else if (byte === COLON) {
      if (textBytes > keyBytesMax)
        return beyond('json_key_too_long', `holds a key of more than ${keyBytesMax} bytes`, textAt)
    } else if (byte === OPEN_LIST || byte === OPEN_OBJECT) {
      nodes++
      if (++depth > depthMax) return beyond('json_too_deep', `is nested more than ${depthMax} deep`, at)
    } else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) {
      depth--
      digits = 0
    } else if (byte === COMMA) {
      nodes++
      digits = 0
    } else if (byte === MINUS || byte === POINT) {
      hasPlainNumbers = false
    } else if (byte >= ZERO && byte <= NINE) {
      if (++digits > PLAIN_DIGITS) hasPlainNumbers = false
      if (digits > NUMBER_DIGITS_MAX) {
        const what = `holds a number of more than ${NUMBER_DIGITS_MAX} digits`
        return beyond('json_number_too_long', what, at - NUMBER_DIGITS_MAX)
      }
    } else if (digits > 0 && (byte | BLANK) === LOWER_E) hasPlainNumbers = false
  }
  if (nodes <= nodesMax) return { hasPlainNumbers }
  const msg = `Input holds more than ${nodesMax} objects, lists, texts and commas together`
  return { beyond: { loc: ['body'], msg, type: 'json_too_many_nodes' }, hasPlainNumbers }
}

/** `at` counts bytes: nobody has read characters yet. */
function beyond(type: string, what: string, at: number) {
  return { beyond: { loc: ['body'], msg: `Input ${what}, at byte ${at}`, type }, hasPlainNumbers: false }
}
