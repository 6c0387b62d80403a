import { DEFINITION_LIMITS } from './limits.js'
import { FAULTS, type FaultRule, typeOf, WARNINGS, type WarningRule } from './rules.js'

/** A path to a value: keys and indexes from the root inwards. */
export type Loc = (string | number)[]

/** What is wrong with a definition. Faults of requests have the same shape. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
}

/** A warning: something that is accepted, and lost. */
export interface Finding extends Fault {
  severity: 'warning'
}

/** A finding before its place is known. `tail` leads from its holder, an object or list of the document, to the place. */
interface Found {
  readonly isFault: boolean
  readonly rule: FaultRule | WarningRule
  readonly tail: Loc
  readonly values: readonly unknown[]
}

const QUOTED_CHARACTERS = 100
/** The most faults, and warnings, of which the places are looked for. Further ones are only counted. */
const MOST_KEPT = 20_000

/** Formats a text of the document for a message: quoted, cut at 100 characters, control characters escaped. */
export function quote(text: string): string {
  return text.length > QUOTED_CHARACTERS
    ? `${JSON.stringify(text.slice(0, QUOTED_CHARACTERS))}...`
    : JSON.stringify(text)
}

/** Formats any value of the document for a message. `String(value)` could throw: the value may be `{"toString": 1}`. */
export function show(value: unknown): string {
  if (typeof value === 'string') return quote(value)
  return typeof value === 'object' && value !== null ? (Array.isArray(value) ? 'a list' : 'an object') : String(value)
}

/** Collects findings by their holders. Their places are looked for once, at the end, which also brings them into document order. */
export class Findings {
  faultCount = 0
  private warningCount = 0
  private readonly byHolder = new Map<object, Found[]>()

  fault(rule: FaultRule, holder: object, tail: Loc = [], ...values: unknown[]): void {
    if (++this.faultCount <= MOST_KEPT) this.add(holder, { isFault: true, rule, tail, values })
  }

  warn(rule: WarningRule, holder: object, tail: Loc = [], ...values: unknown[]): void {
    if (++this.warningCount <= MOST_KEPT) this.add(holder, { isFault: false, rule, tail, values })
  }

  private add(holder: object, found: Found): void {
    const known = this.byHolder.get(holder)
    if (known === undefined) this.byHolder.set(holder, [found])
    else known.push(found)
  }

  /** Returns the findings in document order, with places that begin with `at`. */
  located(document: unknown, at: Loc): { faults: Fault[]; warnings: Finding[] } {
    const faults: Fault[] = []
    const warnings: Finding[] = []
    const add = (path: Loc, { isFault, rule, tail, values }: Found) => {
      if ((isFault ? faults : warnings).length >= DEFINITION_LIMITS[isFault ? 'faults' : 'warnings']) return
      const fault = faultOf(rule, [...path, ...tail], values)
      if (isFault) faults.push(fault)
      else warnings.push({ severity: 'warning', ...fault })
    }
    locate(document, at, this.byHolder, add)
    return { faults: withRest(faults, this.faultCount), warnings: withRest(warnings, this.warningCount) }
  }
}

/** Returns one finding with its sentence. Texts among the values are quoted. */
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

const SENTENCES = { ...FAULTS, ...WARNINGS }
/** The slots of sentences that take words of our own. */
const UNQUOTED = new Set(['part', 'form', 'method'])

/** Visits each value with an entry in `wanted` in document order, and its entries in the order of its keys. */
function locate<T extends { tail: Loc }>(
  node: unknown,
  path: Loc,
  wanted: Map<object, T[]>,
  found: (path: Loc, entry: T) => void,
): void {
  if (typeof node !== 'object' || node === null || wanted.size === 0) return
  const own = wanted.get(node)
  wanted.delete(node)
  const isList = Array.isArray(node)
  for (const entry of own ?? []) if (!Object.hasOwn(node, entry.tail[0] ?? '')) found(path, entry)
  for (const key of isList ? node.keys() : Object.keys(node)) {
    for (const entry of own ?? []) if (entry.tail[0] === key) found(path, entry)
    const value = (node as Record<string | number, unknown>)[key]
    if (typeof value !== 'object' || value === null) continue
    path.push(key)
    locate(value, path, wanted, found)
    path.pop()
  }
}

/** Returns the path of each of these objects of a document; of a repeated one the first. */
export function pathsOf(document: unknown, objects: Iterable<object>, at: Loc): Map<object, Loc> {
  const paths = new Map<object, Loc>()
  const wanted = new Map(Array.from(objects, object => [object, [{ tail: [], object }]]))
  locate(document, [...at], wanted, (path, { object }) => paths.set(object, [...path]))
  return paths
}

function withRest<T extends Fault>(kept: T[], total: number): T[] {
  const last = kept.at(-1)
  if (last !== undefined && total > kept.length) last.msg += ` (and ${total - kept.length} more)`
  return kept
}
