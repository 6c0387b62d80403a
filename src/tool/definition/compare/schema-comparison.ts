import { textWithBigInts } from '../../../schema/exact-json.js'
import { quote } from '../check/findings.js'
import { isObject } from '../check/references.js'
import type { Structures } from '../check/structures.js'
import type { JsonSchema, SchemaConverter } from '../functions/json-schema.js'

/**
 * What a change means for those who call the tool as it was: `breaking` if a call that was right can now be wrong or impossible,
 * `safe` if every such call stays right, `unknown` if that cannot be told from the two documents.
 */
export type ChangeClass = 'breaking' | 'safe' | 'unknown'

/** A difference between two schemas, as deep inside them as it stands. */
export interface Difference {
  class: ChangeClass
  isType: boolean
  msg: string
}

/** What the comparisons of one call have in common. */
export interface Ledger {
  /** Pairs of definitions in which nothing differs, however deep, so that they need not be compared again for another operation. */
  readonly equal: RefPairs
  readonly structures: Structures
  /** Members that may still be compared. */
  valuesLeft: number
}

/** Pairs of references, by the texts as the converter made them: of names of thousands of letters no new text is made. */
export class RefPairs {
  private readonly first = new Map<string, string>()
  /** Beyond the first, which is the only one of most. */
  private readonly others = new Map<string, Set<string>>()

  has(old: string, next: string): boolean {
    return this.first.get(old) === next || this.others.get(old)?.has(next) === true
  }

  add(old: string, next: string): void {
    const first = this.first.get(old)
    const others = this.others.get(old)
    if (first === undefined) this.first.set(old, next)
    else if (others !== undefined) others.add(next)
    else if (first !== next) this.others.set(old, new Set([next]))
  }

  all(): [old: string, next: string][] {
    const others = [...this.others].flatMap(([old, nexts]) => [...nexts].map((next): [string, string] => [old, next]))
    return [...this.first, ...others]
  }
}

type Schema = Record<string, unknown>

interface SchemaPair {
  readonly old: JsonSchema
  readonly next: JsonSchema
  readonly at: string
}

const KEYWORDS_WITHOUT_EFFECT = new Set([
  'title',
  'description',
  'examples',
  'default',
  'deprecated',
  'readOnly',
  'writeOnly',
])
const COMPARED_KEYWORDS = new Set([
  '$ref',
  'type',
  'enum',
  'const',
  'properties',
  'required',
  'items',
  'additionalProperties',
])
const UPPER_BOUNDS = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'])
const LOWER_BOUNDS = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'])
const ALTERNATIVES = new Set(['anyOf', 'oneOf'])
/** Lists whose entries stand for each other by position. */
const PAIRED_LISTS = new Set(['allOf', 'prefixItems'])
const SCHEMA_MAPS = new Set(['patternProperties', 'dependentSchemas'])
const ALL_TYPES = ['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']
const MOST_PARTS = 100
/** Differences told of one schema; a rewritten one is not explained in thousands of lines. */
const MOST_DIFFERENCES = 50
/** The end of a long place inside a schema says more than its beginning. */
const SHOWN_PLACE_CHARACTERS = 200
/** A little more than what is quoted of a value. */
const SHOWN_VALUE_CHARACTERS = 120

/** Compares what two schemas of two documents accept. Circular schemas are compared once. */
export class SchemaComparison {
  readonly differences: Difference[] = []
  private readonly compared = new RefPairs()
  private readonly pending: SchemaPair[] = []

  constructor(
    private readonly oldSchemas: SchemaConverter,
    private readonly nextSchemas: SchemaConverter,
    private readonly ledger: Ledger,
  ) {}

  run(old: JsonSchema, next: JsonSchema): void {
    this.pending.push({ old, next, at: '' })
    for (let i = 0; i < this.pending.length && this.differences.length < MOST_DIFFERENCES; i++) {
      const pair = this.pending[i]
      if (pair === undefined || this.ledger.valuesLeft <= 0) break
      this.compare(pair)
      this.pays(1)
    }
    if (this.differences.length > 0 || this.ledger.valuesLeft <= 0) return
    for (const [old, next] of this.compared.all()) {
      this.ledger.equal.add(old, next)
    }
  }

  /** Counts members that are compared. */
  private pays(members: number): void {
    this.ledger.valuesLeft -= members
  }

  private compare({ old: oldSchema, next: nextSchema, at }: SchemaPair): void {
    if (
      isObject(oldSchema) &&
      isObject(nextSchema) &&
      typeof oldSchema.$ref === 'string' &&
      typeof nextSchema.$ref === 'string'
    ) {
      const [oldRef, nextRef] = [oldSchema.$ref, nextSchema.$ref]
      if (this.compared.has(oldRef, nextRef) || this.ledger.equal.has(oldRef, nextRef)) return
      this.compared.add(oldRef, nextRef)
    }
    const old = this.resolve(oldSchema, this.oldSchemas)
    const next = this.resolve(nextSchema, this.nextSchemas)
    if (old === undefined || next === undefined) {
      if (old === next) return
      if (next === undefined) this.add('breaking', at, 'nothing is accepted')
      else this.add('safe', at, 'something is accepted')
      return
    }
    this.compareTypes(old, next, at)
    this.compareValues(old, next, at)
    this.compareProperties(old, next, at)
    this.compareAdditional(old.additionalProperties, next.additionalProperties, at)
    this.compareItems(old, next, at)
    this.compareRest(old, next, at)
  }

  /** The schema with what its references say, as far as a chain of plain references goes; undefined for the schema `false`. */
  private resolve(schema: JsonSchema, schemas: SchemaConverter): Record<string, unknown> | undefined {
    let at: JsonSchema = schema
    let merged: Record<string, unknown> = {}
    for (let hop = 0; hop < 100; hop++) {
      if (typeof at === 'boolean') return at ? merged : undefined
      const { $ref, ...rest } = at
      merged = { ...rest, ...merged }
      this.ledger.valuesLeft -= Object.keys(rest).length + 1
      if (typeof $ref !== 'string') return merged
      at = schemas.definition($ref) ?? true
    }
    return merged
  }

  private compareTypes(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    const [before, now] = [typesOf(old), typesOf(next)]
    const lost = before.filter(type => !now.includes(type))
    const gained = now.filter(type => !before.includes(type))
    if (lost.length === 0 && gained.length === 0) return
    const msg = `the type is ${wordsOf(next)} instead of ${wordsOf(old)}`
    this.add(lost.length > 0 ? 'breaking' : 'safe', at, msg, true)
  }

  private compareValues(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    const before = this.valuesOf(old)
    const now = this.valuesOf(next)
    if (now === undefined) {
      if (before !== undefined) this.add('safe', at, 'the values are no longer a fixed list')
      return
    }
    if (before === undefined) {
      this.add('breaking', at, 'the values are now a fixed list')
      return
    }
    const lost = this.firstMissing(before, now)
    const gained = this.firstMissing(now, before)
    if (lost !== undefined) this.add('breaking', at, `the value ${shownValue(lost.value)} is not accepted any more`)
    else if (gained !== undefined) this.add('safe', at, `the value ${shownValue(gained.value)} is accepted too`)
  }

  /** The values that a schema lists, by what tells one from another. */
  private valuesOf(schema: Record<string, unknown>): Map<string, unknown> | undefined {
    const values = 'const' in schema ? [schema.const] : schema.enum
    if (!Array.isArray(values)) return undefined
    const byKey = new Map<string, unknown>()
    for (const value of values) {
      byKey.set(this.ledger.structures.keyOf(value), value)
      this.pays(1)
    }
    return byKey
  }

  private firstMissing(
    values: ReadonlyMap<string, unknown>,
    from: ReadonlyMap<string, unknown>,
  ): { value: unknown } | undefined {
    for (const [key, value] of values) {
      if (!from.has(key)) return { value }
      this.pays(1)
    }
    return undefined
  }

  private compareProperties(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    const [before, now] = [mapOf(old.properties), mapOf(next.properties)]
    const requiredBefore = this.namesOf(old.required)
    const requiredNow = this.namesOf(next.required)
    for (const name of Object.keys(before)) {
      this.pays(1)
      if (Object.hasOwn(now, name)) this.queue(before[name], now[name], under(at, name))
      else this.add('breaking', under(at, name), 'the property is gone')
    }
    for (const name of Object.keys(now)) {
      this.pays(1)
      if (Object.hasOwn(before, name) || requiredNow.has(name)) continue
      this.add('safe', under(at, name), 'the property is new and optional')
    }
    for (const name of requiredNow) {
      this.pays(1)
      if (!requiredBefore.has(name)) this.add('breaking', under(at, name), 'the property is now required')
    }
    for (const name of requiredBefore) {
      this.pays(1)
      if (!requiredNow.has(name) && Object.hasOwn(now, name))
        this.add('safe', under(at, name), 'the property is now optional')
    }
  }

  /** The names in a list. They are counted when they are compared. */
  private namesOf(value: unknown): Set<string> {
    const names = new Set<string>()
    for (const each of Array.isArray(value) ? value : []) {
      if (typeof each === 'string') names.add(each)
    }
    return names
  }

  private compareAdditional(old: unknown, next: unknown, at: string): void {
    if (isObject(old) && isObject(next)) {
      this.queue(old, next, under(at, '*'))
    } else if (isAnything(old) !== isAnything(next) || (old === false) !== (next === false)) {
      if (old === false || isAnything(next)) this.add('safe', at, 'other properties are accepted more freely')
      else this.add('breaking', at, 'other properties are accepted less freely')
    }
  }

  private compareItems(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    if (isAnything(old.items) && isAnything(next.items)) return
    this.queue(old.items ?? true, next.items ?? true, `${at}[]`)
  }

  private compareRest(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    for (const key of new Set([...Object.keys(old), ...Object.keys(next)])) {
      this.pays(1)
      if (COMPARED_KEYWORDS.has(key) || KEYWORDS_WITHOUT_EFFECT.has(key)) continue
      const [before, now] = [old[key], next[key]]
      const isEqual = arePaired(key, before, now) || this.areAlike(before, now)
      if (this.queueParts(key, before, now, isEqual, at) || isEqual) continue
      if (key === 'allOf' && this.compareRequiredParts(old, next, at)) continue
      const weight = ALTERNATIVES.has(key) ? this.classOfAlternatives(before, now) : classOf(key, before, now)
      this.add(weight, at, `${key} is ${shown(now)} instead of ${shown(before)}`)
    }
  }

  /** Tells what a part that was added to `allOf` requires; false if nothing. */
  private compareRequiredParts(old: Schema, next: Schema, at: string): boolean {
    const before = this.requiredOf(old, this.oldSchemas)
    const added = [...this.requiredOf(next, this.nextSchemas)].filter(name => !before.has(name))
    for (const name of added) this.add('breaking', under(at, name), 'the property is now required')
    return added.length > 0
  }

  private requiredOf(schema: Schema, schemas: SchemaConverter): Set<string> {
    const names = new Set<string>()
    const parts: unknown[] = [schema]
    for (let i = 0; i < parts.length && i < MOST_PARTS; i++) {
      const part = parts[i]
      if (!isObject(part)) continue
      for (const name of this.namesOf(part.required)) names.add(name)
      if (Array.isArray(part.allOf)) parts.push(...part.allOf.slice(0, MOST_PARTS))
      if (typeof part.$ref === 'string') parts.push(schemas.definition(part.$ref))
      this.pays(1)
    }
    return names
  }

  private areAlike(before: unknown, now: unknown): boolean {
    if (typeof before !== 'object' || typeof now !== 'object') return before === now
    if (Array.isArray(before) && Array.isArray(now) && before.length !== now.length) return false
    const { structures } = this.ledger
    return structures.numberOf(before) === structures.numberOf(now)
  }

  /** Equal words may refer to definitions that changed, so parts that belong together are compared; true if that says it all. */
  private queueParts(key: string, before: unknown, now: unknown, isEqual: boolean, at: string): boolean {
    if (Array.isArray(before) && Array.isArray(now)) {
      if (!isEqual) return false
      for (const [i, part] of before.entries()) {
        this.queue(part, now[i], `${under(at, key)}[${i}]`)
        this.pays(1)
      }
      return true
    }
    if (!isEqual || !isObject(before) || !isObject(now) || key === 'not') return false
    if (!SCHEMA_MAPS.has(key)) {
      this.queue(before, now, under(at, key))
      return true
    }
    for (const name of Object.keys(before)) {
      this.queue(before[name], now[name], under(under(at, key), name))
      this.pays(1)
    }
    return true
  }

  /** An alternative more is safe, one less is breaking; `oneOf` is read as people mean it, its alternatives excluding each other. */
  private classOfAlternatives(before: unknown, now: unknown): ChangeClass {
    if (!Array.isArray(before) || !Array.isArray(now)) return 'unknown'
    const [old, next] = [this.numbersOf(before), this.numbersOf(now)]
    if ([...old].every(each => next.has(each))) return 'safe'
    return [...next].every(each => old.has(each)) ? 'breaking' : 'unknown'
  }

  private numbersOf(values: readonly unknown[]): Set<number> {
    const numbers = new Set<number>()
    for (const value of values) {
      numbers.add(this.ledger.structures.numberOf(value))
      this.pays(1)
    }
    return numbers
  }

  private queue(old: unknown, next: unknown, at: string): void {
    // What stands at these keywords of a converted schema is a schema; anything else is passed over.
    if ((isObject(old) || typeof old === 'boolean') && (isObject(next) || typeof next === 'boolean'))
      this.pending.push({ old, next, at })
  }

  private add(weight: ChangeClass, at: string, msg: string, isType = false): void {
    if (this.differences.length >= MOST_DIFFERENCES) return
    const place = at.length > SHOWN_PLACE_CHARACTERS ? `...${at.slice(-SHOWN_PLACE_CHARACTERS)}` : at
    this.differences.push({ class: weight, isType, msg: at === '' ? msg : `${place}: ${msg}` })
  }
}

/** True for lists whose parts are compared each with its like, whether they are equal or not. */
function arePaired(key: string, before: unknown, now: unknown): boolean {
  return PAIRED_LISTS.has(key) && Array.isArray(before) && Array.isArray(now) && before.length === now.length
}

/** A place inside a schema, one step deeper. */
function under(at: string, name: string): string {
  return at === '' ? name : `${at}.${name}`
}

/** All types that a schema accepts; a number is also an integer. */
function typesOf(schema: Record<string, unknown>): string[] {
  const { type } = schema
  if (type === undefined) return ALL_TYPES
  const types = Array.isArray(type) ? type.map(String) : [String(type)]
  return types.includes('number') ? [...types, 'integer'] : types
}

function wordsOf(schema: Record<string, unknown>): string {
  if (schema.type === undefined) return 'any'
  return Array.isArray(schema.type) ? schema.type.join(' or ') : String(schema.type)
}

function mapOf(value: unknown): Record<string, unknown> {
  return isObject(value) ? value : {}
}

function isAnything(schema: unknown): boolean {
  return schema === undefined || schema === true || (isObject(schema) && Object.keys(schema).length === 0)
}

function classOf(key: string, before: unknown, now: unknown): ChangeClass {
  if (UPPER_BOUNDS.has(key) || LOWER_BOUNDS.has(key)) {
    if (now === undefined) return 'safe'
    if (!isNumber(before) || !isNumber(now)) return 'breaking'
    return UPPER_BOUNDS.has(key) === now > before ? 'safe' : 'breaking'
  }
  if (key === 'unevaluatedProperties' && now === false) return 'breaking'
  if (key === 'uniqueItems') return now === true ? 'breaking' : 'safe'
  if (now === undefined && (key === 'pattern' || key === 'multipleOf' || key === 'format')) return 'safe'
  if (before === undefined && (key === 'pattern' || key === 'multipleOf')) return 'breaking'
  return 'unknown'
}

/** An integer that no double holds is a BigInt here. */
function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'number' || typeof value === 'bigint'
}

function shown(value: unknown): string {
  return value === undefined
    ? 'absent'
    : quote(typeof value === 'string' ? value : beginningOf(value, SHOWN_VALUE_CHARACTERS))
}

function shownValue(value: unknown): string {
  return quote(beginningOf(value, SHOWN_VALUE_CHARACTERS))
}

/** The beginning of a value as JSON, made without writing what nobody will read. */
function beginningOf(value: unknown, room: number): string {
  if (typeof value !== 'object' || value === null) return textWithBigInts(value)
  const isList = Array.isArray(value)
  let text = ''
  for (const key of isList ? value.keys() : Object.keys(value)) {
    if (text.length > room) break
    const member = beginningOf((value as Record<string | number, unknown>)[key], room - text.length)
    text += `${text === '' ? '' : ','}${isList ? '' : `${JSON.stringify(key)}:`}${member}`
  }
  return isList ? `[${text}]` : `{${text}}`
}
