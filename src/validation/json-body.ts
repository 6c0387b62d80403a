import { isUtf8 } from 'node:buffer'
import type { TObject } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { collectFaults, fault, faultsOfMasked, unknownWithin } from './faults.js'
import { type JsonBounds, JsonRefused, scanJson } from './json-scanner.js'

export type ParsedBody =
  /** A JSON value, and the paths of keys that could change a prototype. */
  | { kind: 'value'; value: unknown; forbidden: Loc[] }
  /**
   * `absent`: the body is empty or `null`. This fault is reported with the faults of path, query and headers. `refused`: the body is not JSON or
   * exceeds a limit. This fault is reported alone.
   */
  | { kind: 'absent' | 'refused'; faults: Fault[] }

/** The text that a body was parsed from. `repeated` has the paths of repeated keys in the definition. */
export interface Source {
  text: string
  repeated: readonly Loc[]
}

/** The property with the source of a body. A `WeakMap` would keep the texts in memory until a full garbage collection. */
const SOURCE = Symbol('source')

/** Returns the source of a body. If no source was stored, formats the body as JSON. */
export function sourceOf(body: object): Source {
  return (body as { [SOURCE]?: Source })[SOURCE] ?? { text: JSON.stringify(body), repeated: [] }
}

/** Parses a JSON body. Ignores a byte order mark, and uses the last value of a repeated key. Never throws. */
export function parseJsonBody(bytes: Uint8Array, bounds: JsonBounds): ParsedBody {
  const text = new TextDecoder().decode(bytes)
  const refused = (one: Fault): ParsedBody => ({ kind: 'refused', faults: [one] })
  const invalid = (at: number, reason: string) => refused(fault('json_invalid', ['body', at], `: ${reason}`))
  if (!isUtf8(bytes)) return invalid(validUtf8(bytes).length, 'the bytes at this position are not UTF-8')
  try {
    return bodyOf(text === '' ? 'null' : text, bounds)
  } catch (error) {
    if (!(error instanceof JsonRefused)) throw error
    const { type, offset, message } = error
    const before = text.slice(0, offset)
    const reason = `${message} at line ${before.split('\n').length}, column ${offset - before.lastIndexOf('\n')}`
    return type === 'json_invalid' ? invalid(offset, reason) : refused({ loc: ['body'], msg: `Input ${reason}`, type })
  }
}

/** Returns the text before the first byte that is not UTF-8. */
function validUtf8(bytes: Uint8Array): string {
  const kept = Buffer.from(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes))
  return new TextDecoder().decode(
    bytes.subarray(
      0,
      bytes.findIndex((byte, at) => byte !== kept[at]),
    ),
  )
}

function bodyOf(text: string, bounds: JsonBounds): ParsedBody {
  const usual = usualValue(text, bounds)
  const { forbidden = [], repeated = [] } = usual === undefined ? scanJson(text, bounds, 'definition') : {}
  const value: unknown = usual ?? JSON.parse(text)
  if (value === null) return { kind: 'absent', faults: [fault('missing', ['body'])] }
  if (typeof value === 'object' && 'definition' in value)
    Object.defineProperty(value, SOURCE, { value: { text, repeated } satisfies Source })
  return { kind: 'value', value, forbidden }
}

/** Parses an ordinary JSON text faster than `scanJson`. Returns undefined for other texts, for example if a key may be repeated. */
function usualValue(text: string, { depthMax, nodesMax }: JsonBounds): unknown {
  // Two counted nodes take at least three characters, so a shorter text cannot exceed the limit.
  if (text.length > nodesMax * 1.5) return undefined
  try {
    const value: unknown = JSON.parse(text)
    let keys = keysOf(value, depthMax)
    for (let i = text.indexOf(':'); i !== -1; i = text.indexOf(':', i + 1)) if (text.charCodeAt(i - 1) <= 0x22) keys--
    return keys === 0 ? value : undefined
  } catch {
    return undefined
  }
}

/** Counts the keys of a value. Returns NaN if the value is nested deeper than `levels`, or if a key could change a prototype. */
function keysOf(value: unknown, levels: number): number {
  if (typeof value !== 'object' || value === null) return 0
  if (levels === 0) return Number.NaN
  let count = 0
  if (Array.isArray(value)) for (const each of value) count += keysOf(each, levels - 1)
  else
    for (const key in value) {
      if (key === '__proto__' || key === 'prototype') return Number.NaN
      count += 1 + keysOf((value as Record<string, unknown>)[key], levels - 1)
    }
  return count
}

/** `standsAlone`: the body could not be parsed, so its faults are reported alone. */
type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** Returns the function that checks a body against the schema. `mask`: the fields in `update_mask`. `strict`: unknown fields are faults. */
export function bodyCheck(schema: TObject) {
  return (
    parsed: ParsedBody,
    { mask, strict }: { mask: readonly string[] | undefined; strict: boolean },
  ): BodyVerdict => {
    if (parsed.kind !== 'value') return { faults: parsed.faults, standsAlone: parsed.kind === 'refused' }
    const { value, forbidden } = parsed
    const found = mask === undefined ? collectFaults(schema, value, ['body']) : faultsOfMasked(schema, value, mask)
    // A forbidden key is not also reported as unknown.
    const unknown = strict ? unknownWithin(schema, value, mask).filter(loc => loc.at(-1) !== '__proto__') : []
    const faults = [
      ...found,
      ...unknown.map(loc => fault('extra_forbidden', ['body', ...loc])),
      ...forbidden.map(loc => fault('key_forbidden', ['body', ...loc])),
    ]
    return faults.length === 0 ? { value } : { faults, standsAlone: false }
  }
}
