import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { DefinitionLimits } from './limits.js'
import { NamedSchemas } from './named-schemas.js'

/** Node 20 has it; the compiler's es2023 library does not know it yet. */
interface WellFormedText {
  isWellFormed(): boolean
}

/**
 * The first pass over a definition: it visits every value once, before any rule reads anything, and stops at the limits of levels
 * and values (`exceeded`). It finds what cannot be stored: NUL and lone surrogates, numbers beyond a double, keys that change a
 * prototype, keys and identifiers that are too long. A value that is shared (YAML aliases) counts at every place.
 */
export class BudgetWalk {
  /** The limit that was exceeded, if one was. */
  exceeded: 'definition_too_deep' | 'definition_too_large' | undefined
  readonly named: NamedSchemas
  private values = 1

  constructor(
    document: Record<string, unknown>,
    root: Place,
    private readonly limits: DefinitionLimits,
    private readonly findings: Findings,
  ) {
    this.named = new NamedSchemas(limits.identifierCharacters)
    this.visit(document, root, 0)
  }

  private visit(node: object, place: Place, level: number): void {
    const keys = Array.isArray(node) ? undefined : Object.keys(node)
    const { length } = keys ?? (node as unknown[])
    this.values += length
    if (level >= this.limits.nestingLevels) this.exceeded = 'definition_too_deep'
    else if (this.values > this.limits.values) this.exceeded = 'definition_too_large'
    for (let i = 0; i < length && this.exceeded === undefined; i++) {
      const key = keys?.[i] ?? i
      const value = (node as Record<string | number, unknown>)[key]
      if (typeof key === 'string') this.checkKey(key, value, place)
      if (typeof value === 'string') {
        this.checkText(value, 'a string', place, key)
        if (typeof key === 'string' && key.startsWith('$'))
          this.remember(key, value, node as Record<string, unknown>, place, level)
      } else if (typeof value === 'number') {
        if (!Number.isSafeInteger(value)) this.reportNumber(value, place, key)
      } else if (typeof value === 'object' && value !== null) {
        this.visit(value, placeUnder(place, key), level + 1)
      }
    }
  }

  private checkKey(key: string, value: unknown, place: Place): void {
    if (key.length > this.limits.keyCharacters) this.reportLength('a key', this.limits.keyCharacters, place, key)
    this.checkText(key, 'a key', place, key)
    const isConstructor = key === 'constructor' && typeof value === 'object' && value !== null
    if (key !== '__proto__' && !(isConstructor && Object.hasOwn(value, 'prototype'))) return
    const reason = key === '__proto__' ? 'is not allowed' : 'may not hold an object with the key "prototype"'
    this.findings.fault('key_forbidden', `the key ${quote(key)} ${reason}`, place, key)
  }

  private checkText(text: string, what: string, place: Place, key: string | number): void {
    if (text.includes('\0')) this.findings.fault('string_nul', `${what} must not hold the character NUL`, place, key)
    else if (!(text as unknown as WellFormedText).isWellFormed())
      this.findings.fault('string_unicode', `${what} must not hold half of a surrogate pair`, place, key)
  }

  private remember(key: string, value: string, node: Record<string, unknown>, place: Place, level: number): void {
    const isName = key === '$id' || key === '$anchor' || key === '$dynamicAnchor'
    if (!isName && !(key === '$self' && level === 0)) return
    if (value.length > this.limits.identifierCharacters)
      this.reportLength(key, this.limits.identifierCharacters, place, key)
    else if (isName) this.named.add(key, value, node, place)
  }

  private reportLength(what: string, limit: number, place: Place, key: string): void {
    this.findings.fault('string_too_long', `${what} has more than ${limit} characters`, place, key)
  }

  /** Fractions are no concern; JSON text beyond a double's range arrives as infinity. */
  private reportNumber(value: number, place: Place, key: string | number): void {
    if (!Number.isFinite(value)) {
      this.findings.faultOf('finite_number', place, key)
    } else if (Number.isInteger(value)) {
      const msg = `this integer is beyond 2^53: it is kept as it is written, and a client that reads it as a double has another`
      this.findings.warn('integer_precision', msg, place, key)
    }
  }
}
