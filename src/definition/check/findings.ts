import { createHash } from 'node:crypto'
import { DEFINITION_LIMITS } from './limits.js'

/** A path to a value: keys and indexes from the root inwards. */
export type Loc = (string | number)[]

/** What is wrong with a definition. Faults of requests have the same shape. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
  /** Details that a repair needs. They are not part of an answer. */
  data?: FaultData
}

export interface FaultData {
  /** The path placeholder to declare; absent if another name may be meant. */
  name?: string
  /** A placeholder in another dialect or spelling, with its braces, and the text to replace it with. */
  placeholder?: string
  meant?: string
  /** The method and path that already use this operationId. */
  use?: string
  /** The path of the operation. The fault itself may be elsewhere, behind a reference. */
  path?: string
}

/** A warning: something that is accepted but probably not intended. */
export interface Finding {
  severity: 'warning'
  loc: Loc
  msg: string
  type: string
}

/** A place as a linked list towards the root. Extending it is cheap; it becomes a `Loc` only when a fault is reported there. */
export interface Place {
  readonly up: Place | undefined
  readonly key: string | number
}

export interface Resolved {
  readonly value: Record<string, unknown>
  readonly place: Place
}

/** The messages of fault types that have one fixed message, in pydantic's words. */
export const SENTENCES = {
  missing: 'Field required',
  string_type: 'Input should be a valid string',
  list_type: 'Input should be a valid list',
  dict_type: 'Input should be a valid dictionary',
  finite_number: 'Input should be a finite number',
} as const

const LOC_STRING_CHARACTERS = 256
/** The length of keys in a place if one fault would otherwise fill half of an answer. */
const SHORT_LOC_STRING_CHARACTERS = 32
const KEY_HASH_CHARACTERS = 8
const QUOTED_CHARACTERS = 100
/** The most characters in the places of all warnings together. */
const WARNING_CHARACTERS = 256 * 1024

/** Returns the place `loc`: the root of all places of one check. */
export function placeOf(loc: Loc): Place {
  let place: Place | undefined
  for (const key of loc) place = { up: place, key }
  if (place === undefined) throw new RangeError('a place needs at least one step')
  return place
}

/** Returns the place of `key` in the object or list at `up`. */
export function placeUnder(up: Place, key: string | number): Place {
  return { up, key }
}

/** Returns the path of `place` followed by `tail`. Strings of more than 256 characters are cut. */
export function locOf(place: Place, tail: Loc = []): Loc {
  const loc: Loc = []
  for (let at: Place | undefined = place; at !== undefined; at = at.up) loc.push(at.key)
  return [...loc.reverse(), ...tail].map(key => shortKey(key, LOC_STRING_CHARACTERS))
}

/** Formats a text of the document for a message: quoted, cut at 100 characters, control characters escaped. */
export function quote(text: string): string {
  return text.length > QUOTED_CHARACTERS ? `${JSON.stringify(cut(text, QUOTED_CHARACTERS))}...` : JSON.stringify(text)
}

/** Formats any value of the document for a message. `String(value)` could throw: the value may be `{"toString": 1}`. */
export function show(value: unknown): string {
  if (typeof value === 'string') return quote(value)
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list'
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}

/** Cuts a long key and appends a hash of the whole, so that keys with the same beginning stay different. */
function shortKey(key: string | number, characters: number): string | number {
  if (typeof key !== 'string' || key.length <= characters) return key
  const hash = createHash('sha256').update(key).digest('hex').slice(0, KEY_HASH_CHARACTERS)
  return `${cut(key, characters - 1 - KEY_HASH_CHARACTERS)}~${hash}`
}

/** Returns the first `characters` of `text`, without splitting a surrogate pair. */
function cut(text: string, characters: number): string {
  const last = text.charCodeAt(characters - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? characters - 1 : characters)
}

/** Collects faults and warnings in the order in which they are found. Beyond the limits it only counts. */
export class Findings {
  readonly faults: Fault[] = []
  readonly warnings: Finding[] = []
  faultCount = 0
  private warningCount = 0
  private warningCharacters = 0
  private readonly known = new Set<string>()

  constructor(private readonly faultCap: number) {}

  /** Adds a fault whose message follows from its type. */
  faultOf(type: keyof typeof SENTENCES, place: Place, ...tail: Loc): void {
    this.fault(type, SENTENCES[type], place, ...tail)
  }

  /** Adds a fault and returns it. Returns undefined if it is already known, because references can lead to the same object twice. */
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

  /** Runs `work` and holds back its findings. Returns a function that adds them. */
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

/** Returns the faults that fit into an answer, without `data`. The last one gives the number of faults left out. */
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

/** Returns the bytes of a fault in the JSON of an answer, including a comma. */
function sizeOf(fault: Fault): number {
  return Buffer.byteLength(JSON.stringify(fault)) + 1
}

function withRest<T extends { msg: string }>(kept: T[], total: number): T[] {
  const last = kept.at(-1)
  if (last === undefined || total <= kept.length) return kept
  return [...kept.slice(0, -1), { ...last, msg: `${last.msg} (and ${total - kept.length} more)` }]
}
