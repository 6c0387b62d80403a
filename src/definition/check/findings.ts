import { DEFINITION_LIMITS, FAULTS, type FaultRule, typeOf, WARNINGS, type WarningRule } from './rules.js'

/** The path of a value: the keys and indexes that lead to it. */
export type Loc = (string | number)[]

export interface Fault {
  loc: Loc
  msg: string
  type: string
}

export interface Finding extends Fault {
  severity: 'warning'
}

/** A finding without its full path. `tail` is the last part of the path, from the holder to the value. */
interface Found {
  readonly kind: 'faults' | 'warnings'
  readonly rule: FaultRule | WarningRule
  readonly tail: Loc
  readonly values: readonly unknown[]
}

const QUOTED_CHARACTERS = 100
/** The maximum number of kept findings of each kind. Further findings are only counted. */
const MOST_KEPT = 20_000

/** Quotes at most 100 characters of a text for a message. Escapes control characters. */
export function quote(text: string): string {
  const shown = JSON.stringify(text.slice(0, QUOTED_CHARACTERS))
  return text.length > QUOTED_CHARACTERS ? `${shown}...` : shown
}

/** Formats a value for a message. `String` is not used for objects, because `String({ toString: 1 })` throws. */
function show(value: unknown): string {
  if (typeof value === 'string') return quote(value)
  return typeof value === 'object' && value !== null ? (Array.isArray(value) ? 'a list' : 'an object') : String(value)
}

/** Collects findings by holder. A holder is the object or list that contains the faulty value. `located` adds the full paths in one pass. */
export class Findings {
  readonly counts = { faults: 0, warnings: 0 }
  private readonly byHolder = new Map<object, Found[]>()

  /** Adds a fault. Returns undefined, so that callers can write `return findings.fault(...)`. */
  fault(rule: FaultRule | WarningRule, holder: object, tail: Loc = [], ...values: unknown[]): undefined {
    this.add(holder, { kind: 'faults', rule, tail, values })
  }

  warn(rule: WarningRule, holder: object, tail: Loc = [], ...values: unknown[]): void {
    this.add(holder, { kind: 'warnings', rule, tail, values })
  }

  private add(holder: object, found: Found): void {
    if (++this.counts[found.kind] > MOST_KEPT) return
    const known = this.byHolder.get(holder)
    if (known === undefined) this.byHolder.set(holder, [found])
    else known.push(found)
  }

  /** Returns the findings in document order. Their paths begin with `at`. If there are too many, the last message states how many are omitted. */
  located(document: unknown, at: Loc): { faults: Fault[]; warnings: Finding[] } {
    const located: { faults: Fault[]; warnings: Fault[] } = { faults: [], warnings: [] }
    locate(document, [...at], this.byHolder, (path, { kind, rule, tail, values }) => {
      if (located[kind].length < DEFINITION_LIMITS[kind]) located[kind].push(faultOf(rule, [...path, ...tail], values))
    })
    for (const kind of ['faults', 'warnings'] as const) {
      const [last, left] = [located[kind].at(-1), this.counts[kind] - located[kind].length]
      if (last !== undefined && left > 0) last.msg += ` (${kind} not listed: ${left})`
    }
    return { ...located, warnings: located.warnings.map(each => ({ severity: 'warning', ...each })) }
  }
}

const SENTENCES = { ...FAULTS, ...WARNINGS }
const UNQUOTED = new Set(['part', 'form', 'method'])

export function faultOf(rule: FaultRule | WarningRule, loc: Loc, values: readonly unknown[] = []): Fault {
  const sentence: string = SENTENCES[rule]
  const names: string[] = []
  const msg = sentence.replace(/\{(\w+)\}/g, (_, name: string) => {
    if (!names.includes(name)) names.push(name)
    const value = values[names.indexOf(name)]
    return UNQUOTED.has(name) ? String(value) : show(value)
  })
  return { loc, msg, type: typeOf(rule) }
}

/** Calls `found` for each entry of `wanted` in document order, with the path of its holder. Entries for missing keys come first in each holder. */
function locate<T extends { tail: Loc }>(
  node: unknown,
  path: Loc,
  wanted: Map<object, T[]>,
  found: (path: Loc, entry: T) => void,
): void {
  if (typeof node !== 'object' || node === null || wanted.size === 0) return
  const own = wanted.get(node)
  wanted.delete(node)
  for (const entry of own ?? []) if (!Object.hasOwn(node, entry.tail[0] ?? '')) found(path, entry)
  for (const key of Array.isArray(node) ? node.keys() : Object.keys(node)) {
    for (const entry of own ?? []) if (entry.tail[0] === key) found(path, entry)
    const value = (node as Record<string | number, unknown>)[key]
    if (typeof value !== 'object') continue
    path.push(key)
    locate(value, path, wanted, found)
    path.pop()
  }
}

/** Returns the paths of `objects` in a document. An object that occurs several times gets its first path. */
export function pathsOf(document: unknown, objects: Iterable<object>, at: Loc): Map<object, Loc> {
  const paths = new Map<object, Loc>()
  const wanted = new Map(Array.from(objects, object => [object, [{ tail: [], object }]]))
  locate(document, [...at], wanted, (path, { object }) => paths.set(object, [...path]))
  return paths
}
