import type { Fault, Loc } from '../errors.js'
import { parseExact } from './exact-json.js'
import { fault } from './faults.js'

/** The result of parsing the bytes of a request body. */
export type ParsedBody =
  /** JSON, with the paths of keys that could change a prototype. */
  | { kind: 'value'; value: unknown; forbidden: Loc[] }
  /** An empty body or `null`: reported together with the faults of path, query and headers. */
  | { kind: 'absent'; faults: Fault[] }
  /** Not JSON, or beyond the limits: reported alone. */
  | { kind: 'refused'; faults: Fault[] }

export interface JsonBounds {
  /** Depth of nested objects and lists; the outermost is depth 1. */
  depthMax: number
  /** Objects, lists, texts (including keys) and commas: a measure of parsing time. */
  nodesMax: number
  /** Bytes between the quotes of a key. Comparing long keys that differ only at the end takes quadratic time. */
  keyBytesMax: number
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Parses a JSON body: skips a byte order mark, keeps the last of duplicate keys, and keeps number texts. Never throws. */
export function parseJsonBody(bytes: Uint8Array, bounds: JsonBounds): ParsedBody {
  if (bytes.length === 0) return absent()
  const { beyond, hasPlainNumbers, members } = scanJson(bytes, bounds)
  if (beyond !== undefined) return { kind: 'refused', faults: [beyond] }
  const text = decoded(bytes)
  if (text === undefined) return invalidAt(offsetOfInvalidUtf8(bytes), 'the bytes here are not UTF-8')
  let value: unknown
  try {
    value = parseExact(text, hasPlainNumbers)
  } catch {
    const { offset, line, column, reason } = syntaxErrorIn(text)
    return invalidAt(offset, `${reason} at line ${line}, column ${column}`)
  }
  if (value === null) return absent()
  if (typeof value === 'object' && members > membersOf(value)) withRepetitions(value, repeatedIn(text))
  return { kind: 'value', value, forbidden: mayNameForbiddenKey.test(text) ? forbiddenKeys(value) : [] }
}

function absent(): ParsedBody {
  return { kind: 'absent', faults: [fault('missing', ['body'])] }
}

function invalidAt(offset: number, reason: string): ParsedBody {
  const { msg, ...invalid } = fault('json_invalid', ['body', offset])
  return { kind: 'refused', faults: [{ ...invalid, msg: `${msg}: ${reason}` }] }
}

/**
 * Returns the position where a text stops being JSON (offset in UTF-16 units from 0, line and column from 1) and V8's reason. V8 often
 * omits the offset; then it is the end of the longest prefix that is only incomplete. Pass only text that `JSON.parse` refuses.
 */
export function syntaxErrorIn(text: string): { offset: number; line: number; column: number; reason: string } {
  const said = messageFor(text)
  let offset = Number(/ at position (\d+)/.exec(said)?.[1] ?? (said.startsWith(UNFINISHED) ? text.length : -1))
  if (offset < 0) {
    let end = text.length
    for (offset = 0; offset + 1 < end; ) {
      const middle = (offset + end) >>> 1
      if (isUnfinished(text.slice(0, middle))) offset = middle
      else end = middle
    }
  }
  const before = text.slice(0, offset)
  const line = before.split('\n').length
  const found = String.fromCodePoint(text.codePointAt(offset) ?? 0x20)
  // V8's message for the prefix says what it expected there, except after the second name of an object.
  const start = before.trimEnd()
  const isUnexpected = offset < text.length && /^Unexpected|is not valid JSON/.test(said)
  let reason = (isUnexpected ? messageFor(start) : '') || said
  if (isUnexpected && reason === UNFINISHED)
    reason = start.endsWith('"') ? "Expected ':' after property name" : `Expected a value and not '${found}'`
  reason = reason.replace(/(?: in JSON)? at position.*/s, '')
  return { offset, line, column: offset - before.lastIndexOf('\n'), reason }
}

const UNFINISHED = 'Unexpected end of JSON input'

function messageFor(text: string): string {
  try {
    JSON.parse(text)
    return ''
  } catch (error) {
    return (error as SyntaxError).message // `JSON.parse` throws nothing else
  }
}

function isUnfinished(text: string): boolean {
  const said = messageFor(text)
  const isAtEnd = / at position (\d+)/.exec(said)?.[1] === String(text.length)
  return said === '' || said === UNFINISHED || isAtEnd || said.startsWith('Unterminated string')
}

const repeated = new WeakMap<object, readonly Loc[]>()

/** Records the paths of repeated keys, of which parsing kept only the last. Returns the body. */
export function withRepetitions(body: object, places: readonly Loc[]): object {
  repeated.set(body, places)
  return body
}

/** Returns the paths of repeated keys of a parsed body, at most 100. */
export function repeatedKeys(body: object): readonly Loc[] {
  return repeated.get(body) ?? []
}

const REPEATED_MAX = 100

function membersOf(value: unknown): number {
  let count = 0
  if (Array.isArray(value)) {
    for (const item of value) if (typeof item === 'object') count += membersOf(item)
  } else
    for (const key in value as Record<string, unknown> | null) {
      const member = (value as Record<string, unknown>)[key]
      count++
      if (typeof member === 'object') count += membersOf(member)
    }
  return count
}

function repeatedIn(text: string): Loc[] {
  const found: Loc[] = []
  /** The enclosing objects and lists of a token, with the keys of each object. */
  const open: { at: string | number; keys?: Set<string>; isKey?: boolean }[] = []
  let start = -1 // the start of the open string
  for (const { 0: token, index } of text.matchAll(/\\.|["{}[\],]/gs)) {
    const around = open.at(-1)
    if (start >= 0 || token === '"') {
      if (token === '"' && start >= 0 && around?.keys !== undefined && around.isKey) {
        const key = String(JSON.parse(text.slice(start, index + 1)))
        around.isKey = false
        around.at = key
        if (around.keys.has(key) && found.length < REPEATED_MAX) found.push(open.map(({ at }) => at))
        around.keys.add(key)
      }
      if (token === '"') start = start >= 0 ? -1 : index
    } else if (token === '{') open.push({ at: '', keys: new Set(), isKey: true })
    else if (token === '[') open.push({ at: 0 })
    else if (token !== ',') open.pop()
    else if (typeof around?.at === 'number') around.at++
    else if (around !== undefined) around.isKey = true
  }
  return found
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes)
  } catch {
    return undefined
  }
}

/** Offsets do not count a byte order mark, because the decoded text has none. */
function offsetOfInvalidUtf8(bytes: Uint8Array): number {
  return Math.max(0, new TextDecoder('utf-8').decode(bytes).indexOf('\ufffd'))
}

/** A text must match this to contain a forbidden key; any letter may be an escape. */
const mayNameForbiddenKey = /__proto__|prototype|\\u00/

/** Returns the paths of `__proto__`, and of `prototype` inside `constructor`, in text order. */
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

/** Every double needs fewer digits; longer numbers only take time to read. */
const NUMBER_DIGITS_MAX = 4_096
/** A double holds every integer of at most 15 digits. */
const PLAIN_DIGITS = 15

const [BLANK, QUOTE, PLUS, MINUS, POINT, ZERO, COLON, BACKSLASH, LOWER_E] = [
  0x20, 0x22, 0x2b, 0x2d, 0x2e, 0x30, 0x3a, 0x5c, 0x65,
]
const [OPENS, CLOSES, COUNTS, NUMBERS] = [1, 2, 3, 4]
/** The kind of each byte outside strings. Blanks, letters and invalid bytes are 0. */
const KINDS = new Uint8Array(256)
for (const [kind, characters] of [
  [OPENS, '[{'],
  [CLOSES, ']}'],
  [COUNTS, '",:'],
  [NUMBERS, '-0123456789'],
] as const)
  for (const character of characters) KINDS[character.charCodeAt(0)] = kind

interface Scan {
  beyond?: Fault
  /** True if JavaScript writes each number unchanged. */
  hasPlainNumbers: boolean
  /** Members of all objects, including repeated ones. */
  members: number
}

/** Scans the bytes of JSON before they are parsed. */
function scanJson(bytes: Uint8Array, { depthMax, nodesMax, keyBytesMax }: JsonBounds): Scan {
  let [depth, nodes, members, textAt, textBytes] = [0, 0, 0, 0, 0]
  let hasPlainNumbers = true
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number // the index is below the length
    const kind = KINDS[byte]
    if (kind === 0 || kind === CLOSES) {
      if (kind === CLOSES) depth--
    } else if (kind === NUMBERS) {
      const start = at
      let isInteger = byte !== MINUS
      for (
        let next = bytes[at + 1] ?? 0;
        KINDS[next] === NUMBERS || next === POINT || (next | BLANK) === LOWER_E || next === PLUS;
      ) {
        if (KINDS[next] !== NUMBERS) isInteger = false
        next = bytes[++at + 1] ?? 0
      }
      if (isInteger && at - start < PLAIN_DIGITS && byte !== ZERO) continue
      const number = String.fromCharCode(...bytes.subarray(start, Math.min(at + 1, start + 2 * NUMBER_DIGITS_MAX)))
      if (number.length > NUMBER_DIGITS_MAX && number.replace(/\D/g, '').length > NUMBER_DIGITS_MAX)
        return beyond('json_number_too_long', `holds a number of more than ${NUMBER_DIGITS_MAX} digits`, start)
      if (String(Number(number)) !== number) hasPlainNumbers = false
    } else if (byte === QUOTE) {
      textAt = at + 1
      for (at++; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) at++
      textBytes = at - textAt
      nodes++
    } else if (byte === COLON) {
      members++
      if (textBytes > keyBytesMax)
        return beyond('json_key_too_long', `holds a key of more than ${keyBytesMax} bytes`, textAt)
    } else {
      nodes++
      if (kind === OPENS && ++depth > depthMax)
        return beyond('json_too_deep', `is nested more than ${depthMax} deep`, at)
    }
  }
  if (nodes <= nodesMax) return { hasPlainNumbers, members }
  const msg = `Input holds more than ${nodesMax} objects, lists, texts and commas together`
  return { beyond: { loc: ['body'], msg, type: 'json_too_many_nodes' }, hasPlainNumbers, members }
}

/** `at` counts bytes, because the text is not decoded yet. */
function beyond(type: string, what: string, at: number): Scan {
  return { beyond: { loc: ['body'], msg: `Input ${what}, at byte ${at}`, type }, hasPlainNumbers: false, members: 0 }
}
