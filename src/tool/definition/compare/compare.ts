import type { Loc } from '../../../errors.js'
import { textWithBigInts } from '../../../schema/exact-json.js'
import { type CheckOptions, DEFAULT_AT, type Inspection, inspection } from '../check/check.js'
import { locOf, type Place, placeUnder, quote } from '../check/findings.js'
import { DEFAULT_DEFINITION_LIMITS } from '../check/limits.js'
import type { OperationInput, ParameterInput } from '../check/operations.js'
import { isObject } from '../check/references.js'
import { inOneGo, inSlices } from '../check/slices.js'
import { InputSchemas } from '../functions/functions.js'
import type { ConvertedSchema, JsonSchema, SchemaConverter } from '../functions/json-schema.js'
import { areEqual, Structures } from './structures.js'

/**
 * What a change means for those who call the tool as it was: `breaking` if a call that was right can now be wrong or impossible,
 * `safe` if every such call stays right, `unknown` if that cannot be told from the two documents.
 */
export type ChangeClass = 'breaking' | 'safe' | 'unknown'

export type ChangeKind =
  | 'definition_unreadable'
  | 'server_changed'
  | 'operation_removed'
  | 'operation_renamed'
  | 'operation_added'
  | 'operation_moved'
  | 'parameter_added'
  | 'parameter_removed'
  | 'parameter_required'
  | 'parameter_optional'
  | 'parameter_type_changed'
  | 'parameter_schema_changed'
  | 'body_added'
  | 'body_removed'
  | 'body_required'
  | 'body_optional'
  | 'body_changed'
  | 'comparison_incomplete'

export interface DefinitionChange {
  class: ChangeClass
  kind: ChangeKind
  /** The operationId, the one before for what was renamed; empty for what concerns the whole definition. */
  operation: string
  /** Where the change stands in the new definition; absent for what is not there any more. */
  loc?: Loc
  msg: string
}

export interface DefinitionImpact {
  changes: DefinitionChange[]
}

/** A difference between two schemas, as deep inside them as it stands. */
interface Difference {
  class: ChangeClass
  isType: boolean
  msg: string
}

/** Two documents that are read in the same way. */
interface Side {
  readonly operations: readonly OperationInput[]
  readonly schemas: InputSchemas
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
/** Differences told of one schema; a rewritten one is not explained in thousands of lines. */
const MOST_DIFFERENCES = 50
/** Changes told of one definition; the last one says how many more there are. */
const MOST_CHANGES = 10_000
/** Members compared between two looks at the clock. */
const STEP_MEMBERS = 300
/** The end of a long place inside a schema says more than its beginning. */
const SHOWN_PLACE_CHARACTERS = 200
/** A little more than what is quoted of a value. */
const SHOWN_VALUE_CHARACTERS = 120

/**
 * What changes for the users of a tool when the definition `before` is replaced by `after`, in the order of the old document, added
 * operations last.
 *
 * Operations are matched by operationId; one whose id is gone but whose method and path are taken by a new id was renamed (its
 * schema is compared all the same). Parameters are matched by place and name. A removed operation, a rename (a model calls a tool
 * by its name), a removed or newly required parameter or body, and every schema that accepts less than before is `breaking`; what
 * is added without being required and every schema that accepts more is `safe`; a moved operation (same id, other method or path),
 * another first server, and schemas whose acceptance cannot be compared (patterns, formats, alternatives) are `unknown`.
 * Descriptions are not compared. References are followed, so a change in a component counts for every operation that uses it.
 *
 * Equal documents that can be read have no changes, whatever is in them. Never throws. Operations that cannot be read are left out,
 * and a definition that is refused as a whole (say, stored by an older version) gives the one change `definition_unreadable`.
 * The work is bounded by the number of members compared (`functionValues`): beyond it, and beyond 10,000 changes, the last change
 * is `comparison_incomplete`.
 */
export function compareDefinitions(before: unknown, after: unknown, options: CheckOptions = {}): DefinitionImpact {
  return inOneGo(comparison(before, after, options))
}

/** `compareDefinitions` with the same result, giving way to the event loop whenever `sliceMs` milliseconds (default 2) have passed. */
export async function compareDefinitionsInSlices(
  before: unknown,
  after: unknown,
  options: CheckOptions & { sliceMs?: number } = {},
): Promise<DefinitionImpact> {
  return await inSlices(comparison(before, after, options), options.sliceMs)
}

function* comparison(before: unknown, after: unknown, options: CheckOptions): Generator<void, DefinitionImpact> {
  const old = yield* inspection(before, options, true)
  const next = yield* inspection(after, options, true)
  const oldSide = sideOf(old)
  const nextSide = sideOf(next)
  if (oldSide === undefined || nextSide === undefined) {
    const which = oldSide === undefined ? 'old' : 'new'
    const msg = `the ${which} definition cannot be read, so nothing can be compared`
    return { changes: [{ class: 'unknown', kind: 'definition_unreadable', operation: '', msg }] }
  }
  // Both were walked and nest no deeper than the limit, so that comparing them as they stand comes to an end.
  if (yield* areEqual(before, after)) return { changes: [] }
  const { functionValues } = { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const comparison = new Comparison(oldSide, nextSide, functionValues)
  comparison.changes.push(...serverChanges(before, after, options))
  yield* comparison.run()
  return { changes: comparison.result() }
}

function sideOf({ operations, references, document }: Inspection): Side | undefined {
  if (references === undefined) return undefined
  return { operations, schemas: new InputSchemas(references, document, []) }
}

function serverChanges(before: unknown, after: unknown, options: CheckOptions): DefinitionChange[] {
  const [old, next] = [firstServer(before), firstServer(after)]
  if (old === next) return []
  const msg = `calls go to ${quote(next)} instead of ${quote(old)}`
  const loc: Loc = [...(options.at ?? DEFAULT_AT), 'servers', 0, 'url']
  return [{ class: 'unknown', kind: 'server_changed', operation: '', loc, msg }]
}

function firstServer(definition: unknown): string {
  if (!isObject(definition) || !Array.isArray(definition.servers)) return ''
  const [server] = definition.servers
  return isObject(server) && typeof server.url === 'string' ? server.url : ''
}

class Comparison {
  readonly changes: DefinitionChange[] = []
  private omitted = 0
  private readonly ledger: Ledger
  /** What was found in a pair of schemas that more than one operation uses. */
  private readonly compared = new Map<object, Map<object, Difference[]>>()
  /** A parameter that thousands of operations share may have a name of hundreds of kilobytes: its key is made, and read, once. */
  private readonly keys = new WeakMap<object, string>()
  private readonly sameKeys = new Map<string, string>()

  constructor(
    private readonly old: Side,
    private readonly next: Side,
    mostValues: number,
  ) {
    this.ledger = { equal: new Set(), structures: new Structures(), valuesLeft: mostValues }
  }

  /** The changes that were found, the last one saying if there is more. */
  result(): DefinitionChange[] {
    const reasons: string[] = []
    if (this.ledger.valuesLeft <= 0) reasons.push('the definitions are too large to be compared to the end')
    if (this.omitted > 0) reasons.push(`${this.omitted} more changes are left out`)
    if (reasons.length === 0) return this.changes
    return [
      ...this.changes,
      { class: 'unknown', kind: 'comparison_incomplete', operation: '', msg: reasons.join('; ') },
    ]
  }

  *run(): Generator<void> {
    const byId = new Map(this.next.operations.map(each => [each.record.name, each]))
    const oldIds = new Set(this.old.operations.map(each => each.record.name))
    const newcomers = new Map(
      this.next.operations.filter(each => !oldIds.has(each.record.name)).map(each => [targetOf(each), each]),
    )
    for (const operation of this.old.operations) {
      yield
      const same = byId.get(operation.record.name)
      const renamed = same === undefined ? newcomers.get(targetOf(operation)) : undefined
      if (same !== undefined) yield* this.compareMoved(operation, same)
      else if (renamed !== undefined) yield* this.compareRenamed(operation, renamed, newcomers)
      else this.add('breaking', 'operation_removed', operation, undefined, 'the operation is gone')
    }
    for (const operation of newcomers.values()) {
      this.add('safe', 'operation_added', operation, operation.place, 'the operation is new')
    }
  }

  private *compareMoved(old: OperationInput, next: OperationInput): Generator<void> {
    if (targetOf(old) !== targetOf(next)) {
      const msg = `the operation is ${quote(targetOf(next))} instead of ${quote(targetOf(old))}`
      this.add('unknown', 'operation_moved', old, next.place, msg)
    }
    yield* this.compareInputs(old, next)
  }

  private *compareRenamed(
    old: OperationInput,
    next: OperationInput,
    newcomers: Map<string, OperationInput>,
  ): Generator<void> {
    newcomers.delete(targetOf(next))
    const msg = `the operation is called ${quote(next.record.name)} now`
    this.add('breaking', 'operation_renamed', old, placeUnder(next.place, 'operationId'), msg)
    yield* this.compareInputs(old, next)
  }

  private *compareInputs(old: OperationInput, next: OperationInput): Generator<void> {
    const before = old.parameters
    const now = next.parameters
    this.ledger.valuesLeft -= before.length + now.length
    if (this.ledger.valuesLeft <= 0) return
    const nextByKey = new Map(now.map(each => [this.keyOf(each), each]))
    for (const parameter of before) {
      const key = this.keyOf(parameter)
      const same = nextByKey.get(key)
      nextByKey.delete(key)
      if (same !== undefined) yield* this.compareParameter(old, parameter, same)
      else this.add('breaking', 'parameter_removed', old, undefined, `the ${nameOf(parameter)} is gone`)
    }
    for (const parameter of nextByKey.values()) {
      const required = isRequired(parameter)
      const msg = `the ${nameOf(parameter)} is new and ${required ? 'required' : 'optional'}`
      const kind = required ? 'parameter_required' : 'parameter_added'
      this.add(required ? 'breaking' : 'safe', kind, old, parameter.place, msg)
    }
    yield* this.compareBody(old, next)
  }

  private keyOf(parameter: ParameterInput): string {
    const known = this.keys.get(parameter.value)
    if (known !== undefined) return known
    const made = keyOf(parameter)
    const key = this.sameKeys.get(made) ?? made
    this.sameKeys.set(key, key)
    this.keys.set(parameter.value, key)
    return key
  }

  private *compareParameter(operation: OperationInput, old: ParameterInput, next: ParameterInput): Generator<void> {
    if (isRequired(next) !== isRequired(old)) {
      const [kind, how] = isRequired(next)
        ? (['parameter_required', 'required'] as const)
        : (['parameter_optional', 'optional'] as const)
      const weight = isRequired(next) ? 'breaking' : 'safe'
      this.add(weight, kind, operation, next.place, `the ${nameOf(next)} is now ${how}`)
    }
    const differences = yield* this.compareSchemas(
      yield* this.old.schemas.parameterSchema(old),
      yield* this.next.schemas.parameterSchema(next),
    )
    for (const { class: weight, isType, msg } of differences) {
      const kind = isType ? 'parameter_type_changed' : 'parameter_schema_changed'
      this.add(weight, kind, operation, next.place, `the ${nameOf(next)}: ${msg}`)
    }
  }

  /** Operations share schemas: each pair is compared once. */
  private *compareSchemas(old: ConvertedSchema, next: ConvertedSchema): Generator<void, readonly Difference[]> {
    const known = this.compared.get(old)?.get(next)
    if (known !== undefined) return known
    if (this.ledger.valuesLeft <= 0) return []
    const comparison = new SchemaComparison(this.old.schemas.converter, this.next.schemas.converter, this.ledger)
    yield* comparison.run(old.schema, next.schema)
    const results = this.compared.get(old) ?? new Map<object, Difference[]>()
    this.compared.set(old, results.set(next, comparison.differences))
    return comparison.differences
  }

  private *compareBody(old: OperationInput, next: OperationInput): Generator<void> {
    const place = next.body?.place
    if (old.body === undefined || next.body === undefined) {
      if (old.body !== undefined) this.add('breaking', 'body_removed', old, undefined, 'the request body is gone')
      if (next.body === undefined) return
      const required = next.body.value.required === true
      const msg = `the request body is new and ${required ? 'required' : 'optional'}`
      this.add(required ? 'breaking' : 'safe', required ? 'body_required' : 'body_added', old, place, msg)
      return
    }
    const isNowRequired = next.body.value.required === true
    if (isNowRequired !== (old.body.value.required === true)) {
      const msg = `the request body is now ${isNowRequired ? 'required' : 'optional'}`
      this.add(isNowRequired ? 'breaking' : 'safe', isNowRequired ? 'body_required' : 'body_optional', old, place, msg)
    }
    const differences = yield* this.compareSchemas(
      yield* this.old.schemas.bodySchema(old.body),
      yield* this.next.schemas.bodySchema(next.body),
    )
    for (const { class: weight, msg } of differences)
      this.add(weight, 'body_changed', old, place, `the request body: ${msg}`)
  }

  private add(
    weight: ChangeClass,
    kind: ChangeKind,
    operation: OperationInput,
    place: Place | undefined,
    msg: string,
  ): void {
    if (this.changes.length >= MOST_CHANGES) {
      this.omitted++
      return
    }
    this.changes.push({
      class: weight,
      kind,
      operation: operation.record.name,
      ...(place === undefined ? {} : { loc: locOf(place) }),
      msg,
    })
  }
}

function targetOf({ record }: OperationInput): string {
  return `${record.method.toLowerCase()} ${record.path}`
}

function keyOf(parameter: ParameterInput): string {
  return `${parameter.in} ${parameter.in === 'header' ? parameter.name.toLowerCase() : parameter.name}`
}

function nameOf(parameter: ParameterInput): string {
  return `${parameter.in} parameter ${quote(parameter.name)}`
}

function isRequired(parameter: ParameterInput): boolean {
  return parameter.in === 'path' || parameter.value.required === true
}

/** What the comparisons of one call have in common. */
interface Ledger {
  /** Pairs of definitions in which nothing differs, however deep, so that they need not be compared again for another operation. */
  readonly equal: Set<string>
  readonly structures: Structures
  /** Members that may still be compared. */
  valuesLeft: number
}

interface SchemaPair {
  readonly old: JsonSchema
  readonly next: JsonSchema
  readonly at: string
}

/** Compares what two schemas of two documents accept. Circular schemas are compared once. */
class SchemaComparison {
  readonly differences: Difference[] = []
  private readonly compared = new Set<string>()
  private readonly pending: SchemaPair[] = []
  private sinceYield = 0

  constructor(
    private readonly oldSchemas: SchemaConverter,
    private readonly nextSchemas: SchemaConverter,
    private readonly ledger: Ledger,
  ) {}

  *run(old: JsonSchema, next: JsonSchema): Generator<void> {
    this.pending.push({ old, next, at: '' })
    for (let i = 0; i < this.pending.length && this.differences.length < MOST_DIFFERENCES; i++) {
      const pair = this.pending[i]
      if (pair === undefined || this.ledger.valuesLeft <= 0) break
      yield* this.compare(pair)
      if (this.pays(1)) yield
    }
    if (this.differences.length > 0 || this.ledger.valuesLeft <= 0) return
    for (const pair of this.compared) this.ledger.equal.add(pair)
  }

  /** Counts members that are compared; true if it is time to look at the clock. */
  private pays(members: number): boolean {
    this.ledger.valuesLeft -= members
    this.sinceYield += members
    if (this.sinceYield < STEP_MEMBERS) return false
    this.sinceYield = 0
    return true
  }

  private *compare({ old: oldSchema, next: nextSchema, at }: SchemaPair): Generator<void> {
    if (
      isObject(oldSchema) &&
      isObject(nextSchema) &&
      typeof oldSchema.$ref === 'string' &&
      typeof nextSchema.$ref === 'string'
    ) {
      const pair = `${oldSchema.$ref} ${nextSchema.$ref}`
      if (this.compared.has(pair) || this.ledger.equal.has(pair)) return
      this.compared.add(pair)
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
    yield* this.compareValues(old, next, at)
    yield* this.compareProperties(old, next, at)
    this.compareAdditional(old.additionalProperties, next.additionalProperties, at)
    this.compareItems(old, next, at)
    yield* this.compareRest(old, next, at)
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

  private *compareValues(old: Record<string, unknown>, next: Record<string, unknown>, at: string): Generator<void> {
    const before = yield* this.valuesOf(old)
    const now = yield* this.valuesOf(next)
    if (now === undefined) {
      if (before !== undefined) this.add('safe', at, 'the values are no longer a fixed list')
      return
    }
    if (before === undefined) {
      this.add('breaking', at, 'the values are now a fixed list')
      return
    }
    const lost = yield* this.firstMissing(before, now)
    const gained = yield* this.firstMissing(now, before)
    if (lost !== undefined) this.add('breaking', at, `the value ${quote(lost)} is not accepted any more`)
    else if (gained !== undefined) this.add('safe', at, `the value ${quote(gained)} is accepted too`)
  }

  /** The values that a schema lists, as JSON. */
  private *valuesOf(schema: Record<string, unknown>): Generator<void, Set<string> | undefined> {
    const values = 'const' in schema ? [schema.const] : schema.enum
    if (!Array.isArray(values)) return undefined
    const texts = new Set<string>()
    for (const value of values) {
      texts.add(textWithBigInts(value))
      if (this.pays(1)) yield
    }
    return texts
  }

  private *firstMissing(values: ReadonlySet<string>, from: ReadonlySet<string>): Generator<void, string | undefined> {
    for (const value of values) {
      if (!from.has(value)) return value
      if (this.pays(1)) yield
    }
    return undefined
  }

  private *compareProperties(old: Record<string, unknown>, next: Record<string, unknown>, at: string): Generator<void> {
    const [before, now] = [mapOf(old.properties), mapOf(next.properties)]
    const [requiredBefore, requiredNow] = [namesOf(old.required), namesOf(next.required)]
    for (const name of Object.keys(before)) {
      if (this.pays(1)) yield
      if (Object.hasOwn(now, name)) this.queue(before[name], now[name], under(at, name))
      else this.add('breaking', under(at, name), 'the property is gone')
    }
    for (const name of Object.keys(now)) {
      if (this.pays(1)) yield
      if (Object.hasOwn(before, name) || requiredNow.has(name)) continue
      this.add('safe', under(at, name), 'the property is new and optional')
    }
    for (const name of requiredNow) {
      if (this.pays(1)) yield
      if (!requiredBefore.has(name)) this.add('breaking', under(at, name), 'the property is now required')
    }
    for (const name of requiredBefore) {
      if (this.pays(1)) yield
      if (!requiredNow.has(name) && Object.hasOwn(now, name))
        this.add('safe', under(at, name), 'the property is now optional')
    }
  }

  private compareAdditional(old: unknown, next: unknown, at: string): void {
    if (isObject(old) && isObject(next)) {
      this.queue(old, next, under(at, '*'))
    } else if (isAnything(old) !== isAnything(next) || (old === false) !== (next === false)) {
      if (old === false || isAnything(next)) this.add('safe', at, 'other properties are accepted more freely')
      else this.add('unknown', at, 'other properties are accepted less freely')
    }
  }

  private compareItems(old: Record<string, unknown>, next: Record<string, unknown>, at: string): void {
    if (isAnything(old.items) && isAnything(next.items)) return
    this.queue(old.items ?? true, next.items ?? true, `${at}[]`)
  }

  private *compareRest(old: Record<string, unknown>, next: Record<string, unknown>, at: string): Generator<void> {
    for (const key of new Set([...Object.keys(old), ...Object.keys(next)])) {
      if (this.pays(1)) yield
      if (COMPARED_KEYWORDS.has(key) || KEYWORDS_WITHOUT_EFFECT.has(key)) continue
      const [before, now] = [old[key], next[key]]
      const isEqual = yield* this.areAlike(before, now)
      if ((yield* this.queueParts(key, before, now, isEqual, at)) || isEqual) continue
      const weight = ALTERNATIVES.has(key) ? yield* this.classOfAlternatives(before, now) : classOf(key, before, now)
      this.add(weight, at, `${key} is ${shown(now)} instead of ${shown(before)}`)
    }
  }

  private *areAlike(before: unknown, now: unknown): Generator<void, boolean> {
    if (typeof before !== 'object' || typeof now !== 'object') return before === now
    const { structures } = this.ledger
    return (yield* structures.numberOf(before)) === (yield* structures.numberOf(now))
  }

  /** Equal words may refer to definitions that changed, so parts that belong together are compared; true if that says it all. */
  private *queueParts(
    key: string,
    before: unknown,
    now: unknown,
    isEqual: boolean,
    at: string,
  ): Generator<void, boolean> {
    if (Array.isArray(before) && Array.isArray(now)) {
      if (before.length !== now.length || !(isEqual || PAIRED_LISTS.has(key))) return false
      for (const [i, part] of before.entries()) {
        this.queue(part, now[i], `${under(at, key)}[${i}]`)
        if (this.pays(1)) yield
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
      if (this.pays(1)) yield
    }
    return true
  }

  /** An alternative more is safe, one less is breaking; `oneOf` is read as people mean it, its alternatives excluding each other. */
  private *classOfAlternatives(before: unknown, now: unknown): Generator<void, ChangeClass> {
    if (!Array.isArray(before) || !Array.isArray(now)) return 'unknown'
    const [old, next] = [yield* this.numbersOf(before), yield* this.numbersOf(now)]
    if ([...old].every(each => next.has(each))) return 'safe'
    return [...next].every(each => old.has(each)) ? 'breaking' : 'unknown'
  }

  private *numbersOf(values: readonly unknown[]): Generator<void, Set<number>> {
    const numbers = new Set<number>()
    for (const value of values) {
      numbers.add(yield* this.ledger.structures.numberOf(value))
      if (this.pays(1)) yield
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

function namesOf(value: unknown): Set<string> {
  return new Set(Array.isArray(value) ? value.filter(each => typeof each === 'string') : [])
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
