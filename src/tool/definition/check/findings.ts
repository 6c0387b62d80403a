import { createHash } from 'node:crypto'
import { DEFINITION_LIMITS } from './limits.js'

/** Where something stands: keys and indexes from the outside in. */
export type Loc = (string | number)[]

/** What is wrong with a definition; the wire's faults of a request look the same. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
  /** What a repair needs to know beside place and type; not part of an answer. */
  data?: FaultData
}

export interface FaultData {
  /** The placeholder of a path that is to be declared; absent where it is not certain that this name is meant. */
  name?: string
  /** A placeholder of another dialect or another spelling, with its braces, and the text that belongs in its place. */
  placeholder?: string
  meant?: string
  /** The method and path that have the operationId already. */
  use?: string
  /** The path of the operation, which a reference may have led elsewhere. */
  path?: string
}

/** Something accepted that is worth knowing. */
export interface Finding {
  severity: 'warning'
  loc: Loc
  msg: string
  type: string
}

/** A place in the document as a chain towards the root: cheap to extend, turned into a `Loc` only when something is found there. */
export interface Place {
  readonly up: Place | undefined
  readonly key: string | number
}

/** An object of the document and where it stands. */
export interface Resolved {
  readonly value: Record<string, unknown>
  readonly place: Place
}

/** The sentences of faults that follow from the type alone, in pydantic's words. */
export const SENTENCES = {
  missing: 'Field required',
  string_type: 'Input should be a valid string',
  list_type: 'Input should be a valid list',
  dict_type: 'Input should be a valid dictionary',
  finite_number: 'Input should be a finite number',
} as const

const LOC_STRING_CHARACTERS = 256
/** Names are cut further when one fault alone would take half of an answer. */
const SHORT_LOC_STRING_CHARACTERS = 32
const KEY_HASH_CHARACTERS = 8
const QUOTED_CHARACTERS = 100
/** Characters of the places of all warnings together. */
const WARNING_CHARACTERS = 256 * 1024

/** The place `loc`, as the root that all places of one check extend. */
export function placeOf(loc: Loc): Place {
  let place: Place | undefined
  for (const key of loc) place = { up: place, key }
  if (place === undefined) throw new RangeError('a place needs at least one step')
  return place
}

/** The place of what `key` holds in the object or list at `up`. */
export function placeUnder(up: Place, key: string | number): Place {
  return { up, key }
}

/** The steps from the root to `place`, then `tail`, strings of more than 256 characters cut. */
export function locOf(place: Place, tail: Loc = []): Loc {
  const loc: Loc = []
  for (let at: Place | undefined = place; at !== undefined; at = at.up) loc.push(at.key)
  return [...loc.reverse(), ...tail].map(key => shortKey(key, LOC_STRING_CHARACTERS))
}

/** A value from the document inside a message: quoted, cut at 100 characters, control characters escaped. */
export function quote(text: string): string {
  return text.length > QUOTED_CHARACTERS ? `${JSON.stringify(cut(text, QUOTED_CHARACTERS))}...` : JSON.stringify(text)
}

/** Any value from the document inside a message. An object may lack a text of its own: `{"toString": 1}`. */
export function show(value: unknown): string {
  if (typeof value === 'string') return quote(value)
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}

/** A long key is cut and ends with a hash of all of it, so that the places of two keys that begin alike differ. */
function shortKey(key: string | number, characters: number): string | number {
  if (typeof key !== 'string' || key.length <= characters) return key
  const hash = createHash('sha256').update(key).digest('hex').slice(0, KEY_HASH_CHARACTERS)
  return `${cut(key, characters - 1 - KEY_HASH_CHARACTERS)}~${hash}`
}

/** The first `characters` of `text`, never half of a surrogate pair. */
function cut(text: string, characters: number): string {
  const last = text.charCodeAt(characters - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? characters - 1 : characters)
}

/** Collects what a check finds, in the order in which it is found; beyond the caps it only counts. */
export class Findings {
  readonly faults: Fault[] = []
  readonly warnings: Finding[] = []
  faultCount = 0
  private warningCount = 0
  private warningCharacters = 0
  private readonly known = new Set<string>()

  constructor(private readonly faultCap: number) {}

  /** A fault whose sentence follows from its type alone. */
  faultOf(type: keyof typeof SENTENCES, place: Place, ...tail: Loc): void {
    this.fault(type, SENTENCES[type], place, ...tail)
  }

  /** Adds a fault and returns it, unless it is known: an object can be reached in its own place and through a reference. */
  fault(type: string, msg: string, place: Place, ...tail: Loc): Fault | undefined {
    let fault: Fault | undefined
    if (this.faults.length < this.faultCap) {
      fault = { loc: locOf(place, tail), msg, type }
      const key = JSON.stringify(fault)
      if (this.known.has(key)) return undefined
      this.known.add(key)
      this.faults.push(fault)
    }
    this.faultCount++
    return fault
  }

  warn(type: string, msg: string, place: Place, ...tail: Loc): void {
    this.warningCount++
    if (this.warnings.length >= DEFINITION_LIMITS.warnings || this.warningCharacters >= WARNING_CHARACTERS) return
    const loc = locOf(place, tail)
    this.warningCharacters += JSON.stringify(loc).length
    this.warnings.push({ severity: 'warning', loc, msg, type })
  }

  /** Runs `work` and takes out what it finds; the function that is returned puts it in. */
  heldBack(work: () => void): () => void {
    const [faults, warnings] = [this.faults.length, this.warnings.length]
    work()
    const held = { faults: this.faults.splice(faults), warnings: this.warnings.splice(warnings) }
    return () => {
      this.faults.push(...held.faults.splice(0, this.faultCap - this.faults.length))
      this.warnings.push(...held.warnings.splice(0, DEFINITION_LIMITS.warnings - this.warnings.length))
    }
  }

  boundedWarnings(): Finding[] {
    return withRest(this.warnings, this.warningCount)
  }
}

/** The first of `total` faults, as an answer has room for them, without their data; the last one says how many are left out. */
export function boundFaults(faults: readonly Fault[], total: number): Fault[] {
  const kept: Fault[] = []
  let used = 2
  for (const { loc, msg, type } of faults.slice(0, DEFINITION_LIMITS.faults)) {
    let shown: Fault = { loc, msg, type }
    if (sizeOf(shown) > DEFINITION_LIMITS.faultBytes / 2)
      shown = { ...shown, loc: loc.map(key => shortKey(key, SHORT_LOC_STRING_CHARACTERS)) }
    used += sizeOf(shown)
    if (used > DEFINITION_LIMITS.faultBytes) break
    kept.push(shown)
  }
  return withRest(kept, total)
}

/** Bytes of one fault as JSON in an answer, with its comma. */
function sizeOf(fault: Fault): number {
  return Buffer.byteLength(JSON.stringify(fault)) + 1
}

function withRest<T extends { msg: string }>(kept: T[], total: number): T[] {
  const last = kept.at(-1)
  if (last === undefined || total <= kept.length) return kept
  return [...kept.slice(0, -1), { ...last, msg: `${last.msg} (and ${total - kept.length} more)` }]
}
