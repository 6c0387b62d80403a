import type { Fault, Loc } from '../errors.js'
import { exactSteps } from './exact-json.js'
import { fault } from './faults.js'
import { offsetOfSyntaxError } from './json-syntax.js'
import { inOneGo } from './steps.js'

/** What the bytes of a request body hold. */
export type ParsedBody =
  /** JSON, with the places of keys that reach into prototypes. */
  | { kind: 'value'; value: unknown; forbidden: Loc[] }
  /** An empty body or `null`: reported together with the faults of path, query and headers. */
  | { kind: 'absent'; faults: Fault[] }
  /** Not JSON: reported alone. */
  | { kind: 'refused'; faults: Fault[] }

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** So much is decoded in one step, which takes up to a millisecond and a half. */
const DECODED_AT_ONCE = 256 * 1024

/**
 * Reads a JSON body as RFC 8259 writes it: UTF-8, a byte order mark is skipped, duplicate keys give the last; how numbers
 * were written is remembered, unless somebody has seen that all are plain. Never throws, whatever the bytes are.
 */
export function parseJsonBody(bytes: Uint8Array, hasPlainNumbers = false): ParsedBody {
  return inOneGo(jsonBodySteps(bytes, hasPlainNumbers))
}

/** `parseJsonBody` in steps. */
export function* jsonBodySteps(bytes: Uint8Array, hasPlainNumbers: boolean): Generator<void, ParsedBody> {
  if (bytes.length === 0) return absent()
  const text = yield* decoded(bytes)
  if (text === undefined) return invalidAt(offsetOfInvalidUtf8(bytes))
  const value = yield* parse(text, hasPlainNumbers)
  if (value === undefined) return invalidAt(offsetOfSyntaxError(text))
  if (value === null) return absent()
  return { kind: 'value', value, forbidden: mayNameForbiddenKey.test(text) ? forbiddenKeys(value) : [] }
}

/**
 * Whether arrays and objects are nested deeper than `limit`; the body itself is depth 1. What the body holds under
 * one of `exceptKeys` is not looked at: it is bounded elsewhere.
 */
export function exceedsDepth(body: unknown, limit: number, ...exceptKeys: string[]): boolean {
  let level = isContainer(body) ? [body] : []
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > limit) return true
    const next: object[] = []
    for (const container of level) addContainers(container, next, depth === 1 ? exceptKeys : [])
    level = next
  }
  return false
}

/** The fault of a body that `exceedsDepth` of `limit`; it stands alone. */
export function tooDeep(limit: number): Fault {
  return { loc: ['body'], msg: `Input is nested more than ${limit} deep`, type: 'json_too_deep' }
}

function absent(): ParsedBody {
  return { kind: 'absent', faults: [fault('missing', ['body'])] }
}

function invalidAt(offset: number): ParsedBody {
  return { kind: 'refused', faults: [fault('json_invalid', ['body', offset])] }
}

/** Undefined where the bytes are not UTF-8. */
function* decoded(bytes: Uint8Array): Generator<void, string | undefined> {
  try {
    if (bytes.length <= DECODED_AT_ONCE) return utf8.decode(bytes)
    const decoder = new TextDecoder('utf-8', { fatal: true }) // it keeps the beginning of a character
    let text = ''
    for (let at = 0; at < bytes.length; at += DECODED_AT_ONCE) {
      if (at > 0) yield
      text += decoder.decode(bytes.subarray(at, at + DECODED_AT_ONCE), { stream: true })
    }
    return text + decoder.decode()
  } catch {
    return undefined
  }
}

/** `undefined` is not a JSON value, so it can say that the text is none. */
function* parse(text: string, hasPlainNumbers: boolean): Generator<void, unknown> {
  try {
    return yield* exactSteps(text, hasPlainNumbers)
  } catch {
    return undefined
  }
}

/** A BOM counts as no character here, as in the text that was decoded. */
function offsetOfInvalidUtf8(bytes: Uint8Array): number {
  return Math.max(0, new TextDecoder('utf-8').decode(bytes).indexOf('\ufffd'))
}

/** Any letter of a key may be written as an escape; a text that does not match holds neither key. */
const mayNameForbiddenKey = new RegExp(`"(?:${escapable('__proto__')}|${escapable('prototype')})"[ \\t\\n\\r]*:`)

function escapable(word: string): string {
  return [...word].map(letter => `(?:${letter}|\\\\u00${anyCase(letter.charCodeAt(0).toString(16))})`).join('')
}

function anyCase(hexadecimal: string): string {
  return hexadecimal.replace(/[a-f]/g, digit => `[${digit}${digit.toUpperCase()}]`)
}

/** The places where a value names `__proto__`, or `prototype` inside `constructor`, in the order of its text. */
function forbiddenKeys(value: unknown): Loc[] {
  const found: Loc[] = []
  for (const place of walk(value)) {
    const { key, parent } = place
    if (key === '__proto__' || (key === 'prototype' && parent?.key === 'constructor')) found.push(locOf(place))
  }
  return found
}

/** A value in a JSON document. Its place is kept as a chain, because a copied path for each would cost its square. */
interface Place {
  value: unknown
  key?: string | number
  parent?: Place
  depth: number
}

/** What lies deeper than this was or will be refused for its depth: the settings allow at most 200 levels (DECISIONS section 9). */
const walkDepthLimit = 256

/** A container whose values are being read: `keys` of an object, nothing for an array, and how many were read. */
interface Reading {
  place: Place
  container: Record<string | number, unknown>
  keys: string[] | undefined
  count: number
  read: number
}

/**
 * Every value of a document in the order of its text, the document itself first. Nesting costs no stack, and what is kept
 * grows with the depth, not with the number of values.
 */
function* walk(value: unknown): Generator<Place> {
  const root: Place = { value, depth: 1 }
  yield root
  const open = reading(root)
  for (let inner = open.at(-1); inner !== undefined; inner = open.at(-1)) {
    if (inner.read === inner.count) {
      open.pop()
      continue
    }
    const key = inner.keys?.[inner.read] ?? inner.read
    inner.read += 1
    const place: Place = { value: inner.container[key], key, parent: inner.place, depth: inner.place.depth + 1 }
    yield place
    open.push(...reading(place))
  }
}

function reading(place: Place): Reading[] {
  if (!isContainer(place.value) || place.depth > walkDepthLimit) return []
  const keys = Array.isArray(place.value) ? undefined : Object.keys(place.value)
  const count = Array.isArray(place.value) ? place.value.length : (keys?.length ?? 0)
  const container = place.value as Record<string | number, unknown> // an array or an object, read by its own keys
  return [{ place, container, keys, count, read: 0 }]
}

function locOf(place: Place): Loc {
  const loc: Loc = []
  for (let here: Place | undefined = place; here?.key !== undefined; here = here.parent) loc.push(here.key)
  return loc.reverse()
}

/** Adds the containers right inside another. No list of all entries is made: a body may hold millions of them. */
function addContainers(container: object, found: object[], exceptKeys: readonly string[]): void {
  if (Array.isArray(container)) {
    for (const item of container) if (isContainer(item)) found.push(item)
    return
  }
  const record = container as Record<string, unknown> // of JSON: every key is its own
  for (const key in record) {
    const value = record[key]
    if (isContainer(value) && !exceptKeys.includes(key)) found.push(value)
  }
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}
