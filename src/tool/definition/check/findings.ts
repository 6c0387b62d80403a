import { createHash } from 'node:crypto'

/** Where something stands: keys and indexes from the outside in. */
export type Loc = (string | number)[]

/** What is wrong with a definition; the wire's faults of a request look the same. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
}

/** The sentences of faults that follow from the type alone, in pydantic's words. */
export const SENTENCES = {
  missing: 'Field required',
  string_type: 'Input should be a valid string',
  list_type: 'Input should be a valid list',
  dict_type: 'Input should be a valid dictionary',
  finite_number: 'Input should be a finite number',
} as const

/** What a repair needs to know of a fault beside its place and type. */
export interface FaultData {
  /** The placeholder of a path that is not declared. */
  name?: string
  /** The operationId that is taken, and the method and path that have it. */
  id?: string
  use?: string
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

const LOC_STRING_CHARACTERS = 256
const KEY_HASH_CHARACTERS = 8
const QUOTED_CHARACTERS = 100
const WARNING_PLACE_CHARACTERS = 256 * 1024
/** Far more than a hundred faults can have; who asks for thousands may ask again once these are mended. */
const FAULT_CHARACTERS = 4 * 1024 * 1024
/** When one fault alone is larger than the answer may be, its names are cut further: 130 levels of 32 characters stay far below. */
const SHORT_LOC_STRING_CHARACTERS = 32

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
  for (let at: Place | undefined = place; at !== undefined; at = at.up) loc.push(shownKey(at))
  loc.reverse()
  for (const key of tail) loc.push(shortKey(key, LOC_STRING_CHARACTERS))
  return loc
}

/** A value from the document inside a message: quoted, cut at 100 characters, control characters escaped. */
export function quote(text: string): string {
  return text.length > QUOTED_CHARACTERS ? `${JSON.stringify(cut(text, QUOTED_CHARACTERS))}...` : JSON.stringify(text)
}

/** Made once for each place: many findings may stand under a key that is megabytes long. */
const shownKeys = new WeakMap<Place, string | number>()

function shownKey(place: Place): string | number {
  if (typeof place.key !== 'string' || place.key.length <= LOC_STRING_CHARACTERS) return place.key
  const shown = shownKeys.get(place) ?? shortKey(place.key, LOC_STRING_CHARACTERS)
  shownKeys.set(place, shown)
  return shown
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
  warningCount = 0
  /** What other code needs to know of a fault; no part of an answer. */
  readonly data = new Map<Fault, FaultData>()
  private faultCharacters = 0
  private warningCharacters = 0
  private readonly known = new Set<string>()

  constructor(
    private readonly faultCap: number,
    private readonly warningCap: number,
  ) {}

  /** A fault whose sentence follows from its type alone. */
  faultOf(type: keyof typeof SENTENCES, place: Place, ...tail: Loc): void {
    this.fault(type, SENTENCES[type], place, ...tail)
  }

  /**
   * The same fault at the same place counts once: an object can be reached in its own place and through a reference. A message that
   * many places ask for may be given as a function, which is not called once faults are only counted.
   */
  fault(type: string, msg: string | (() => string), place: Place, ...tail: Loc): void {
    if (!this.takesFaults) {
      this.faultCount++
      return
    }
    const fault = { loc: locOf(place, tail), msg: typeof msg === 'string' ? msg : msg(), type }
    const key = JSON.stringify(fault)
    this.faultCharacters += key.length
    if (this.known.has(key)) return
    this.known.add(key)
    this.faultCount++
    this.faults.push(fault)
  }

  /** A fault with what other code needs to know of it. */
  faultWith(data: FaultData, type: string, msg: string | (() => string), place: Place, ...tail: Loc): void {
    const before = this.faults.length
    this.fault(type, msg, place, ...tail)
    const fault = this.faults[before]
    if (fault !== undefined) this.data.set(fault, data)
  }

  /** The message may be a function, as that of a fault. */
  warn(type: string, msg: string | (() => string), place: Place, ...tail: Loc): void {
    this.warningCount++
    if (!this.takesWarnings) return
    const loc = locOf(place, tail)
    for (const key of loc) this.warningCharacters += typeof key === 'string' ? key.length : 1
    this.warnings.push({ severity: 'warning', loc, msg: typeof msg === 'string' ? msg : msg(), type })
  }

  /** False once further faults are only counted, so that nobody needs to find out where they are; their texts are bounded too. */
  get takesFaults(): boolean {
    return this.faults.length < this.faultCap && this.faultCharacters < FAULT_CHARACTERS
  }

  /** As `takesFaults`; the places of all warnings together are bounded too. */
  get takesWarnings(): boolean {
    return this.warnings.length < this.warningCap && this.warningCharacters < WARNING_PLACE_CHARACTERS
  }

  /** Appends what was collected apart, so that it stands at its place in document order. */
  append(other: Findings): void {
    const faultRoom = this.faultCap - this.faults.length
    this.faults.push(...other.faults.slice(0, faultRoom))
    for (const key of other.known) this.known.add(key)
    this.faultCharacters += other.faultCharacters
    this.faultCount += other.faultCount
    const warningRoom = this.warningCap - this.warnings.length
    this.warnings.push(...other.warnings.slice(0, warningRoom))
    this.warningCharacters += other.warningCharacters
    this.warningCount += other.warningCount
  }

  /** An empty collection that takes as many as there is room for here. */
  apart(): Findings {
    const warningRoom = this.takesWarnings ? this.warningCap - this.warnings.length : 0
    return new Findings(this.faultCap - this.faults.length, warningRoom)
  }

  /** The faults as they are answered: see `boundFaults`. */
  boundedFaults(bytes: number): Fault[] {
    return boundFaults(this.faults, this.faultCount, bytes)
  }

  boundedWarnings(): Finding[] {
    return withRest(this.warnings, this.warningCount)
  }
}

/** The first of `total` faults, together at most `bytes` as JSON, the last one saying how many are left out. */
export function boundFaults(faults: readonly Fault[], total: number, bytes: number): Fault[] {
  // Thousands are not measured for who takes all of them.
  if (bytes === Number.POSITIVE_INFINITY) return withRest([...faults], total)
  const kept: Fault[] = []
  let used = 2
  for (const fault of faults) {
    let size = sizeOf(fault)
    let shown = fault
    if (size > bytes / 2) {
      shown = { ...fault, loc: fault.loc.map(key => shortKey(key, SHORT_LOC_STRING_CHARACTERS)) }
      size = sizeOf(shown)
    }
    if (used + size > bytes) break
    used += size
    kept.push(shown)
  }
  return withRest(kept, total)
}

/** Bytes of one fault as JSON in an answer, with its comma and room for the words about the rest. */
function sizeOf(fault: Fault): number {
  return Buffer.byteLength(JSON.stringify(fault)) + 1
}

function withRest<T extends { msg: string }>(kept: T[], total: number): T[] {
  const last = kept.at(-1)
  if (last === undefined || total <= kept.length) return kept
  return [...kept.slice(0, -1), { ...last, msg: `${last.msg} (and ${total - kept.length} more)` }]
}
