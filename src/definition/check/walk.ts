import { type Findings, type Place, placeUnder, quote, type Resolved } from './findings.js'
import { DEFINITION_LIMITS } from './limits.js'

/** The schemas that references can name. If several have the same name, the first counts. */
export interface NamedSchemas {
  readonly ids: Map<string, Resolved>
  /** Schemas by `$anchor` and `$dynamicAnchor`. */
  readonly anchors: Map<string, Resolved>
  readonly byObject: Map<object, Resolved>
  /** All keys under `$defs` and `definitions`. */
  readonly definitions: Set<string>
}

/** The sentence about a key `<<`. */
export const MERGE_KEY = 'only YAML merges by the key "<<": what it holds here is ignored, so put its members beside it'

/** Node 20 has the method; the compiler's es2023 library does not declare it. */
interface WellFormedText {
  isWellFormed(): boolean
}

/** Keywords that name a schema or the document. */
const NAMES = new Set(['$id', '$anchor', '$dynamicAnchor', '$self'])

/**
 * The first pass over a definition: visits every value once before the rules run, and stops at the limits of levels and values
 * (`exceeded`). Reports what cannot be stored: NUL and lone surrogates, numbers beyond a double, keys that change a prototype, and keys
 * and identifiers that are too long. A value shared by YAML aliases counts at each place.
 */
export class FirstWalk {
  /** The limit that the definition exceeds, if any. */
  exceeded: { type: string; msg: string } | undefined
  readonly named: NamedSchemas = { ids: new Map(), anchors: new Map(), byObject: new Map(), definitions: new Set() }
  /** Every object with a text as `$ref`, in document order. */
  readonly references: Resolved[] = []
  private values = 1

  constructor(
    document: Record<string, unknown>,
    root: Place,
    private readonly findings: Findings,
  ) {
    this.visit(document, root, 0)
  }

  private visit(node: object, place: Place, level: number): void {
    if (level >= DEFINITION_LIMITS.nestingLevels) {
      const msg = `the definition nests deeper than ${DEFINITION_LIMITS.nestingLevels} levels`
      this.exceeded = { type: 'definition_too_deep', msg }
    } else if (Array.isArray(node)) {
      for (let i = 0; i < node.length && this.exceeded === undefined; i++)
        this.visitValue(node, i, node[i], place, level)
    } else {
      // `for in` is safe: a JSON value inherits no enumerable key.
      for (const key in node) {
        const value = (node as Record<string, unknown>)[key]
        this.checkKey(key, value, place)
        this.visitValue(node, key, value, place, level)
        if (this.exceeded !== undefined) return
      }
    }
  }

  private visitValue(node: object, key: string | number, value: unknown, place: Place, level: number): void {
    if (++this.values > DEFINITION_LIMITS.values) {
      const msg = `the definition holds more than ${DEFINITION_LIMITS.values} values`
      this.exceeded = { type: 'definition_too_large', msg }
    } else if (typeof value === 'string') {
      this.checkText(value, 'a string', place, key)
      if (key === '$ref') this.references.push({ value: node as Record<string, unknown>, place })
      else if (typeof key === 'string' && key.startsWith('$') && NAMES.has(key))
        this.noteName(key, value, { value: node as Record<string, unknown>, place }, level)
    } else if (typeof value === 'object' && value !== null) {
      if (key === '$defs' || key === 'definitions')
        for (const name of Object.keys(value)) this.named.definitions.add(name)
      this.visit(value, placeUnder(place, key), level + 1)
    } else if (typeof value === 'number') this.checkNumber(value, place, key)
  }

  private checkKey(key: string, value: unknown, place: Place): void {
    if (key.length > DEFINITION_LIMITS.keyCharacters)
      this.reportLength('a key', DEFINITION_LIMITS.keyCharacters, place, key)
    this.checkText(key, 'a key', place, key)
    if (key === '<<') this.findings.warn('merge_key_ignored', MERGE_KEY, place, key)
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

  private noteName(key: string, name: string, schema: Resolved, level: number): void {
    const { ids, anchors, byObject } = this.named
    if (key === '$self' && level > 0) return
    const limit = DEFINITION_LIMITS.identifierCharacters
    if (name.length > limit) this.reportLength(key, limit, schema.place, key)
    else if (key === '$id') {
      const id = name.replace(/#.*/s, '')
      byObject.set(schema.value, schema)
      if (!ids.has(id)) ids.set(id, schema)
    } else if (key !== '$self' && !anchors.has(name)) anchors.set(name, schema)
  }

  private reportLength(what: string, limit: number, place: Place, key: string): void {
    this.findings.fault('string_too_long', `${what} has more than ${limit} characters`, place, key)
  }

  /** Reports numbers beyond a double's range, which the parser returns as infinity. */
  private checkNumber(value: number, place: Place, key: string | number): void {
    if (!Number.isFinite(value)) {
      this.findings.faultOf('finite_number', place, key)
    } else if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      const msg = `this integer is beyond 2^53: it is stored exactly, but clients that read numbers as doubles round it`
      this.findings.warn('integer_precision', msg, place, key)
    }
  }
}
