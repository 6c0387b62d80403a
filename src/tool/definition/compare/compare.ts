import { isDeepStrictEqual } from 'node:util'
import type { Loc } from '../../../errors.js'
import { type CheckOptions, type Inspection, inspection } from '../check/check.js'
import { locOf, quote } from '../check/findings.js'
import type { OperationInput, ParameterInput } from '../check/operations.js'
import { isObject } from '../check/references.js'
import { inOneGo, inSlices } from '../check/slices.js'
import { InputSchemas } from '../functions/functions.js'
import type { JsonSchema, SchemaConverter } from '../functions/json-schema.js'

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
/** Pairs of schemas compared between two looks at the clock. */
const PAIRS_A_STEP = 64
/** Pairs of schemas compared in one call; beyond it what is left is `unknown`. */
const MOST_PAIRS = 100_000

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
 * Equal documents that can be read have no changes, whatever is in them. Never throws. Operations that cannot be read are left out, and a definition that is refused as a whole (say, stored by an older
 * version) gives the one change `definition_unreadable`.
 */
export function compareDefinitions(before: unknown, after: unknown, options: CheckOptions = {}): DefinitionImpact {
  return inOneGo(comparison(before, after, options))
}

/** `compareDefinitions` with the same result, giving way to the event loop whenever `sliceMs` milliseconds (default 5) have passed. */
export async function compareDefinitionsInSlices(
  before: unknown,
  after: unknown,
  options: CheckOptions & { sliceMs?: number } = {},
): Promise<DefinitionImpact> {
  return await inSlices(comparison(before, after, options), options.sliceMs)
}

function* comparison(before: unknown, after: unknown, options: CheckOptions): Generator<void, DefinitionImpact> {
  const old = yield* inspection(before, options, true)
  const young = yield* inspection(after, options, true)
  const oldSide = sideOf(old)
  const youngSide = sideOf(young)
  if (oldSide === undefined || youngSide === undefined) {
    const which = oldSide === undefined ? 'old' : 'new'
    const msg = `the ${which} definition cannot be read, so nothing can be compared`
    return { changes: [{ class: 'unknown', kind: 'definition_unreadable', operation: '', msg }] }
  }
  // Both were walked and nest no deeper than the limit, so that comparing them as they stand is safe.
  if (isDeepStrictEqual(before, after)) return { changes: [] }
  const inOperations = yield* new Comparison(oldSide, youngSide).run()
  return { changes: [...serverChanges(before, after, options), ...inOperations] }
}

function sideOf({ operations, references, document }: Inspection): Side | undefined {
  if (references === undefined) return undefined
  return { operations, schemas: new InputSchemas(references, document, []) }
}

function serverChanges(before: unknown, after: unknown, options: CheckOptions): DefinitionChange[] {
  const [old, young] = [firstServer(before), firstServer(after)]
  if (old === young) return []
  const msg = `calls go to ${quote(young)} instead of ${quote(old)}`
  const loc: Loc = [...(options.at ?? ['body', 'definition']), 'servers', 0, 'url']
  return [{ class: 'unknown', kind: 'server_changed', operation: '', loc, msg }]
}

function firstServer(definition: unknown): string {
  if (!isObject(definition) || !Array.isArray(definition.servers)) return ''
  const [server] = definition.servers
  return isObject(server) && typeof server.url === 'string' ? server.url : ''
}

class Comparison {
  private readonly changes: DefinitionChange[] = []
  private readonly ledger: Ledger = { equal: new Set(), pairsLeft: MOST_PAIRS }

  constructor(
    private readonly old: Side,
    private readonly young: Side,
  ) {}

  *run(): Generator<void, DefinitionChange[]> {
    const byId = new Map(this.young.operations.map(each => [each.record.name, each]))
    const oldIds = new Set(this.old.operations.map(each => each.record.name))
    const newcomers = new Map(
      this.young.operations.filter(each => !oldIds.has(each.record.name)).map(each => [targetOf(each), each]),
    )
    for (const operation of this.old.operations) {
      const same = byId.get(operation.record.name)
      const renamed = same === undefined ? newcomers.get(targetOf(operation)) : undefined
      if (same !== undefined) yield* this.compareMoved(operation, same)
      else if (renamed !== undefined) yield* this.compareRenamed(operation, renamed, newcomers)
      else this.add('breaking', 'operation_removed', operation, undefined, 'the operation is gone')
    }
    for (const operation of newcomers.values()) {
      this.add('safe', 'operation_added', operation, locOf(operation.place), 'the operation is new')
    }
    return this.changes
  }

  private *compareMoved(old: OperationInput, young: OperationInput): Generator<void> {
    if (targetOf(old) !== targetOf(young)) {
      const msg = `the operation is ${quote(targetOf(young))} instead of ${quote(targetOf(old))}`
      this.add('unknown', 'operation_moved', old, locOf(young.place), msg)
    }
    yield* this.compareInputs(old, young)
  }

  private *compareRenamed(
    old: OperationInput,
    young: OperationInput,
    newcomers: Map<string, OperationInput>,
  ): Generator<void> {
    newcomers.delete(targetOf(young))
    const msg = `the operation is called ${quote(young.record.name)} now`
    this.add('breaking', 'operation_renamed', old, locOf(young.place, ['operationId']), msg)
    yield* this.compareInputs(old, young)
  }

  private *compareInputs(old: OperationInput, young: OperationInput): Generator<void> {
    const youngByKey = new Map(young.parameters.map(each => [keyOf(each), each]))
    for (const parameter of old.parameters) {
      const same = youngByKey.get(keyOf(parameter))
      youngByKey.delete(keyOf(parameter))
      if (same !== undefined) yield* this.compareParameter(old, parameter, same)
      else this.add('breaking', 'parameter_removed', old, undefined, `the ${nameOf(parameter)} is gone`)
    }
    for (const parameter of youngByKey.values()) {
      const required = isRequired(parameter)
      const msg = `the ${nameOf(parameter)} is new and ${required ? 'required' : 'optional'}`
      this.add(
        required ? 'breaking' : 'safe',
        required ? 'parameter_required' : 'parameter_added',
        old,
        locOf(parameter.place),
        msg,
      )
    }
    yield* this.compareBody(old, young)
  }

  private *compareParameter(operation: OperationInput, old: ParameterInput, young: ParameterInput): Generator<void> {
    if (isRequired(young) !== isRequired(old)) {
      const [kind, how] = isRequired(young)
        ? (['parameter_required', 'required'] as const)
        : (['parameter_optional', 'optional'] as const)
      this.add(
        isRequired(young) ? 'breaking' : 'safe',
        kind,
        operation,
        locOf(young.place),
        `the ${nameOf(young)} is now ${how}`,
      )
    }
    const differences = yield* this.compareSchemas(
      this.old.schemas.parameterSchema(old, new Set()),
      this.young.schemas.parameterSchema(young, new Set()),
    )
    for (const { class: weight, isType, msg } of differences) {
      const kind = isType ? 'parameter_type_changed' : 'parameter_schema_changed'
      this.add(weight, kind, operation, locOf(young.place), `the ${nameOf(young)}: ${msg}`)
    }
  }

  private *compareSchemas(old: JsonSchema, young: JsonSchema): Generator<void, Difference[]> {
    const comparison = new SchemaComparison(this.old.schemas.converter, this.young.schemas.converter, this.ledger)
    yield* comparison.run(old, young)
    return comparison.differences
  }

  private *compareBody(old: OperationInput, young: OperationInput): Generator<void> {
    const loc = young.body === undefined ? undefined : locOf(young.body.place)
    if (old.body === undefined || young.body === undefined) {
      if (old.body !== undefined) this.add('breaking', 'body_removed', old, undefined, 'the request body is gone')
      if (young.body === undefined) return
      const required = young.body.value.required === true
      const msg = `the request body is new and ${required ? 'required' : 'optional'}`
      this.add(required ? 'breaking' : 'safe', required ? 'body_required' : 'body_added', old, loc, msg)
      return
    }
    const isNowRequired = young.body.value.required === true
    if (isNowRequired !== (old.body.value.required === true)) {
      const msg = `the request body is now ${isNowRequired ? 'required' : 'optional'}`
      this.add(isNowRequired ? 'breaking' : 'safe', isNowRequired ? 'body_required' : 'body_optional', old, loc, msg)
    }
    const differences = yield* this.compareSchemas(
      this.old.schemas.bodySchema(old.body, new Set()),
      this.young.schemas.bodySchema(young.body, new Set()),
    )
    for (const { class: weight, msg } of differences)
      this.add(weight, 'body_changed', old, loc, `the request body: ${msg}`)
  }

  private add(
    weight: ChangeClass,
    kind: ChangeKind,
    operation: OperationInput,
    loc: Loc | undefined,
    msg: string,
  ): void {
    this.changes.push({
      class: weight,
      kind,
      operation: operation.record.name,
      ...(loc === undefined ? {} : { loc }),
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
  pairsLeft: number
}

/** Compares what two schemas of two documents accept. Circular schemas are compared once. */
class SchemaComparison {
  readonly differences: Difference[] = []
  private readonly compared = new Set<string>()
  private readonly pending: { old: JsonSchema; young: JsonSchema; at: string }[] = []

  constructor(
    private readonly oldSchemas: SchemaConverter,
    private readonly youngSchemas: SchemaConverter,
    private readonly ledger: Ledger,
  ) {}

  *run(old: JsonSchema, young: JsonSchema): Generator<void> {
    this.pending.push({ old, young, at: '' })
    for (let i = 0; i < this.pending.length && this.differences.length < MOST_DIFFERENCES; i++) {
      const pair = this.pending[i]
      if (pair === undefined) return
      if (this.ledger.pairsLeft-- <= 0) {
        this.add('unknown', '', 'the schemas are too large to be compared to the end')
        return
      }
      this.compare(pair.old, pair.young, pair.at)
      if (i % PAIRS_A_STEP === 0) yield
    }
    if (this.differences.length > 0) return
    for (const pair of this.compared) this.ledger.equal.add(pair)
  }

  private compare(oldSchema: JsonSchema, youngSchema: JsonSchema, at: string): void {
    if (
      isObject(oldSchema) &&
      isObject(youngSchema) &&
      typeof oldSchema.$ref === 'string' &&
      typeof youngSchema.$ref === 'string'
    ) {
      const pair = `${oldSchema.$ref} ${youngSchema.$ref}`
      if (this.compared.has(pair) || this.ledger.equal.has(pair)) return
      this.compared.add(pair)
    }
    const old = this.resolve(oldSchema, this.oldSchemas)
    const young = this.resolve(youngSchema, this.youngSchemas)
    if (old === undefined || young === undefined) {
      if (old !== young)
        this.add(
          young === undefined ? 'breaking' : 'safe',
          at,
          young === undefined ? 'nothing is accepted' : 'something is accepted',
        )
      return
    }
    this.compareTypes(old, young, at)
    this.compareValues(old, young, at)
    this.compareProperties(old, young, at)
    this.compareAdditional(old.additionalProperties, young.additionalProperties, at)
    this.compareItems(old, young, at)
    this.compareRest(old, young, at)
  }

  /** The schema with what its references say, as far as a chain of plain references goes; undefined for the schema `false`. */
  private resolve(schema: JsonSchema, schemas: SchemaConverter): Record<string, unknown> | undefined {
    let at: JsonSchema = schema
    let merged: Record<string, unknown> = {}
    for (let hop = 0; hop < 100; hop++) {
      if (typeof at === 'boolean') return at ? merged : undefined
      const { $ref, ...rest } = at
      merged = { ...rest, ...merged }
      if (typeof $ref !== 'string') return merged
      at = schemas.definition($ref) ?? true
      this.ledger.pairsLeft--
    }
    return merged
  }

  private compareTypes(old: Record<string, unknown>, young: Record<string, unknown>, at: string): void {
    const [before, now] = [typesOf(old), typesOf(young)]
    const lost = before.filter(type => !now.includes(type))
    const gained = now.filter(type => !before.includes(type))
    if (lost.length === 0 && gained.length === 0) return
    const msg = `the type is ${wordsOf(young)} instead of ${wordsOf(old)}`
    this.differences.push({
      class: lost.length > 0 ? 'breaking' : 'safe',
      isType: true,
      msg: `${at === '' ? '' : `${at}: `}${msg}`,
    })
  }

  private compareValues(old: Record<string, unknown>, young: Record<string, unknown>, at: string): void {
    const [before, now] = [valuesOf(old), valuesOf(young)]
    if (now === undefined) {
      if (before !== undefined) this.add('safe', at, 'the values are no longer a fixed list')
      return
    }
    if (before === undefined) {
      this.add('breaking', at, 'the values are now a fixed list')
      return
    }
    const lost = [...before].filter(value => !now.has(value))
    const gained = [...now].filter(value => !before.has(value))
    if (lost.length > 0) this.add('breaking', at, `the value ${quote(lost[0] as string)} is not accepted any more`)
    else if (gained.length > 0) this.add('safe', at, `the value ${quote(gained[0] as string)} is accepted too`)
  }

  private compareProperties(old: Record<string, unknown>, young: Record<string, unknown>, at: string): void {
    const [before, now] = [mapOf(old.properties), mapOf(young.properties)]
    const [requiredBefore, requiredNow] = [namesOf(old.required), namesOf(young.required)]
    for (const name of Object.keys(before)) {
      const place = at === '' ? name : `${at}.${name}`
      if (Object.hasOwn(now, name)) this.queue(before[name], now[name], place)
      else this.add('breaking', place, 'the property is gone')
    }
    for (const name of Object.keys(now)) {
      if (Object.hasOwn(before, name) || requiredNow.has(name)) continue
      this.add('safe', at === '' ? name : `${at}.${name}`, 'the property is new and optional')
    }
    for (const name of requiredNow) {
      if (!requiredBefore.has(name))
        this.add('breaking', at === '' ? name : `${at}.${name}`, 'the property is now required')
    }
    for (const name of requiredBefore) {
      if (!requiredNow.has(name) && Object.hasOwn(now, name))
        this.add('safe', at === '' ? name : `${at}.${name}`, 'the property is now optional')
    }
  }

  private compareAdditional(old: unknown, young: unknown, at: string): void {
    if (isObject(old) && isObject(young)) {
      this.queue(old, young, at === '' ? '*' : `${at}.*`)
    } else if (isAnything(old) !== isAnything(young) || (old === false) !== (young === false)) {
      if (old === false || isAnything(young)) this.add('safe', at, 'other properties are accepted more freely')
      else this.add('unknown', at, 'other properties are accepted less freely')
    }
  }

  private compareItems(old: Record<string, unknown>, young: Record<string, unknown>, at: string): void {
    if (isAnything(old.items) && isAnything(young.items)) return
    this.queue(old.items ?? true, young.items ?? true, `${at}[]`)
  }

  private compareRest(old: Record<string, unknown>, young: Record<string, unknown>, at: string): void {
    for (const key of new Set([...Object.keys(old), ...Object.keys(young)])) {
      if (COMPARED_KEYWORDS.has(key) || KEYWORDS_WITHOUT_EFFECT.has(key)) continue
      const [before, now] = [old[key], young[key]]
      if (this.queueParts(key, before, now, at) || JSON.stringify(before) === JSON.stringify(now)) continue
      this.add(classOf(key, before, now), at, `${key} is ${shown(now)} instead of ${shown(before)}`)
    }
  }

  /** Equal words may refer to definitions that changed, so parts that belong together are compared; true if that says it all. */
  private queueParts(key: string, before: unknown, now: unknown, at: string): boolean {
    const isEqual = JSON.stringify(before) === JSON.stringify(now)
    if (Array.isArray(before) && Array.isArray(now)) {
      if (before.length !== now.length || !(isEqual || PAIRED_LISTS.has(key))) return false
      for (const [i, part] of before.entries()) this.queue(part, now[i], `${at}${key}[${i}]`)
      return true
    }
    if (!isEqual || !isObject(before) || !isObject(now) || key === 'not') return false
    if (!SCHEMA_MAPS.has(key)) this.queue(before, now, `${at}${key}`)
    else for (const name of Object.keys(before)) this.queue(before[name], now[name], `${at}${key}.${name}`)
    return true
  }

  private queue(old: unknown, young: unknown, at: string): void {
    // What stands at these keywords of a converted schema is a schema; anything else is passed over.
    if ((isObject(old) || typeof old === 'boolean') && (isObject(young) || typeof young === 'boolean'))
      this.pending.push({ old, young, at })
  }

  private add(weight: ChangeClass, at: string, msg: string): void {
    this.differences.push({ class: weight, isType: false, msg: at === '' ? msg : `${at}: ${msg}` })
  }
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

function valuesOf(schema: Record<string, unknown>): Set<string> | undefined {
  if ('const' in schema) return new Set([JSON.stringify(schema.const)])
  return Array.isArray(schema.enum) ? new Set(schema.enum.map(value => JSON.stringify(value))) : undefined
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
    if (typeof before !== 'number' || typeof now !== 'number') return 'breaking'
    return UPPER_BOUNDS.has(key) === now > before ? 'safe' : 'breaking'
  }
  if (key === 'uniqueItems') return now === true ? 'breaking' : 'safe'
  if (now === undefined && (key === 'pattern' || key === 'multipleOf' || key === 'format')) return 'safe'
  if (before === undefined && (key === 'pattern' || key === 'multipleOf')) return 'breaking'
  if (ALTERNATIVES.has(key) && Array.isArray(before) && Array.isArray(now)) return classOfAlternatives(before, now)
  return 'unknown'
}

/** An alternative more is safe, one less is breaking; `oneOf` is read as people mean it, its alternatives excluding each other. */
function classOfAlternatives(before: unknown[], now: unknown[]): ChangeClass {
  const [old, young] = [before.map(each => JSON.stringify(each)), now.map(each => JSON.stringify(each))]
  if (old.every(each => young.includes(each))) return 'safe'
  return young.every(each => old.includes(each)) ? 'breaking' : 'unknown'
}

function shown(value: unknown): string {
  return value === undefined ? 'absent' : quote(typeof value === 'string' ? value : JSON.stringify(value))
}
