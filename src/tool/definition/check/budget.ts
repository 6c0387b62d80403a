import { type Findings, type Place, quote } from './findings.js'
import type { KeyLists } from './key-lists.js'
import type { DefinitionLimits } from './limits.js'
import { NamedSchemas } from './named-schemas.js'

/** Node 20 has it; the compiler's es2023 library does not know it yet. */
interface WellFormedText {
  isWellFormed(): boolean
}

const DOLLAR = 36
const SHORTEST_FORBIDDEN = '__proto__'.length

/**
 * The first pass over a definition: visits every value once, without recursion, before any rule reads anything.
 *
 * It bounds nesting and number of values (`definition_too_deep`, `definition_too_large` at the definition; the check then
 * says nothing else) and finds what no database or language can hold: NUL and lone surrogates in keys and strings
 * (`string_nul`, `string_unicode`), numbers beyond the range of a double (`finite_number`), keys that change an object's
 * prototype (`key_forbidden`); integers that a double may have changed are the warning `integer_precision`.
 * Keys, `$id`, `$self`, `$anchor` and `$dynamicAnchor` of more characters than allowed are `string_too_long`.
 * A value that is shared (YAML aliases) counts at every place, so that a fan-out of aliases is bounded too.
 *
 * The stack is explicit, so that the pass can stop after any number of values and go on later.
 */
export class BudgetWalk {
  /** The limit that was exceeded, if one was. */
  exceeded: 'definition_too_deep' | 'definition_too_large' | undefined
  readonly named: NamedSchemas
  private readonly nodes: object[]
  private readonly keys: (string[] | undefined)[]
  private readonly next: number[] = [0]
  /** The place of each level as far as somebody asked for it, so that neighbours share what is above them. */
  private readonly places: (Place | undefined)[]
  private top = 0
  private values: number

  constructor(
    document: Record<string, unknown>,
    private readonly root: Place,
    private readonly limits: DefinitionLimits,
    private readonly findings: Findings,
    private readonly keyLists: KeyLists,
  ) {
    const keys = keyLists.of(document)
    this.named = new NamedSchemas(limits.identifierCharacters)
    this.places = [root]
    this.nodes = [document]
    this.keys = [keys]
    this.values = 1 + keys.length
    if (limits.nestingLevels < 1) this.exceeded = 'definition_too_deep'
    else if (this.values > limits.values) this.exceeded = 'definition_too_large'
  }

  /** Visits all values. */
  run(): void {
    while (this.top >= 0 && this.exceeded === undefined) {
      const keys = this.keys[this.top]
      // The parallel arrays have an entry for every level up to `top`.
      const node = this.nodes[this.top] as Record<string, unknown> | unknown[]
      const start = this.next[this.top] as number
      const end = keys === undefined ? (node as unknown[]).length : keys.length
      if (keys === undefined) this.visitList(node as unknown[], start, end)
      else this.visitObject(node as Record<string, unknown>, keys, start, end)
    }
  }

  /** Visits the members from `start`, at most to `end`; stops when it descends. Returns how many it visited. */
  private visitObject(node: Record<string, unknown>, keys: string[], start: number, end: number): number {
    for (let i = start; i < end; i++) {
      const key = keys[i] as string
      const value = node[key]
      if (key.length > this.limits.keyCharacters) this.reportLength('a key', this.limits.keyCharacters, i)
      if (key.includes('\0') || !(key as unknown as WellFormedText).isWellFormed()) this.reportText(key, 'a key', i)
      if (typeof value === 'string') {
        if (value.includes('\0') || !(value as unknown as WellFormedText).isWellFormed())
          this.reportText(value, 'a string', i)
        if (key.charCodeAt(0) === DOLLAR) this.remember(key, value, node, i)
      } else if (typeof value === 'object' && value !== null) {
        if (key.length >= SHORTEST_FORBIDDEN && isForbidden(key, value)) this.reportKey(key, i)
        this.next[this.top] = i + 1
        this.descend(value)
        return i + 1 - start
      } else if (typeof value === 'number' && !Number.isSafeInteger(value)) {
        this.reportNumber(value, i)
      }
      if (key === '__proto__') this.reportKey(key, i)
    }
    this.finish(end, keys.length)
    return end - start
  }

  private visitList(node: unknown[], start: number, end: number): number {
    for (let i = start; i < end; i++) {
      const value = node[i]
      if (typeof value === 'string') {
        if (value.includes('\0') || !(value as unknown as WellFormedText).isWellFormed())
          this.reportText(value, 'a string', i)
      } else if (typeof value === 'object' && value !== null) {
        this.next[this.top] = i + 1
        this.descend(value)
        return i + 1 - start
      } else if (typeof value === 'number' && !Number.isSafeInteger(value)) {
        this.reportNumber(value, i)
      }
    }
    this.finish(end, node.length)
    return end - start
  }

  private finish(end: number, length: number): void {
    if (end < length) this.next[this.top] = end
    else this.top--
  }

  /** Counts all members of an object or list before they are visited, so that a huge one costs nothing. */
  private descend(value: object): void {
    const level = this.top + 1
    if (level >= this.limits.nestingLevels) {
      this.exceeded = 'definition_too_deep'
      return
    }
    let keys: string[] | undefined
    if (Array.isArray(value)) {
      this.values += value.length
    } else {
      keys = this.keyLists.of(value as Record<string, unknown>)
      this.values += keys.length
    }
    if (this.values > this.limits.values) {
      this.exceeded = 'definition_too_large'
      return
    }
    this.nodes[level] = value
    this.keys[level] = keys
    this.next[level] = 0
    this.places[level] = undefined
    this.top = level
  }

  private remember(key: string, value: string, node: Record<string, unknown>, index: number): void {
    const isName = key === '$id' || key === '$anchor' || key === '$dynamicAnchor'
    if (!isName && !(key === '$self' && this.top === 0)) return
    if (value.length > this.limits.identifierCharacters) this.reportLength(key, this.limits.identifierCharacters, index)
    else if (isName) this.named.add(key, value, node, this.placeOfLevel(this.top))
  }

  private reportLength(what: string, limit: number, index: number): void {
    const place = this.findings.takesFaults ? this.placeOfMember(index) : this.root
    this.findings.fault('string_too_long', `${what} has more than ${limit} characters`, place)
  }

  private reportText(text: string, what: string, index: number): void {
    const place = this.findings.takesFaults ? this.placeOfMember(index) : this.root
    if (text.includes('\0')) this.findings.fault('string_nul', `${what} must not hold the character NUL`, place)
    else this.findings.fault('string_unicode', `${what} must not hold half of a surrogate pair`, place)
  }

  private reportKey(key: string, index: number): void {
    const reason = key === '__proto__' ? 'is not allowed' : 'may not hold an object with the key "prototype"'
    this.findings.fault('key_forbidden', `the key ${quote(key)} ${reason}`, this.placeOfMember(index))
  }

  /** Fractions are no concern; JSON text beyond a double's range arrives as infinity. */
  private reportNumber(value: number, index: number): void {
    if (!Number.isFinite(value)) {
      const place = this.findings.takesFaults ? this.placeOfMember(index) : this.root
      this.findings.faultOf('finite_number', place)
    } else if (Number.isInteger(value)) {
      const msg = `this integer is beyond 2^53: it is kept as it is written, and a client that reads it as a double has another`
      const place = this.findings.takesWarnings ? this.placeOfMember(index) : this.root
      this.findings.warn('integer_precision', msg, place)
    }
  }

  /** The place of one member of the container at the top of the stack. */
  private placeOfMember(index: number): Place {
    return { up: this.placeOfLevel(this.top), key: this.keys[this.top]?.[index] ?? index }
  }

  /** The place of the container at `level`; every level above it has already moved past the key that led down. */
  private placeOfLevel(level: number): Place {
    let at = level
    while (this.places[at] === undefined) at--
    // The loop ended at a level that has one; the root always has.
    let place = this.places[at] as Place
    for (; at < level; at++) {
      const index = (this.next[at] as number) - 1
      place = { up: place, key: this.keys[at]?.[index] ?? index }
      this.places[at + 1] = place
    }
    return place
  }
}

function isForbidden(key: string, value: object): boolean {
  return key === '__proto__' || (key === 'constructor' && Object.hasOwn(value, 'prototype'))
}
