import { isDeepStrictEqual } from 'node:util'
import { type CheckOptions, DEFAULT_AT, inspection } from './check/check.js'
import { type Loc, locOf, type Place, placeUnder, quote } from './check/findings.js'
import { jsonMediaType } from './check/inputs.js'
import type { OperationInput } from './check/operations.js'
import { isObject } from './check/references.js'
import { firstAddress, originsOf } from './check/servers.js'
import { type Input, InputSchemas } from './functions/functions.js'
import { comparable, type JsonSchema, type SchemaConverter } from './functions/json-schema.js'

/**
 * What a change means for callers of the tool as it was: `breaking` if a correct call can now be wrong or impossible, `safe` if every
 * such call stays correct, `unknown` if the two documents do not tell.
 */
export interface DefinitionChange {
  class: 'breaking' | 'safe' | 'unknown'
  kind: string
  /** The operationId, the one before for a renamed operation; empty for a change of the whole definition. */
  operation: string
  /** Where the change stands in the new definition; absent for a removed part. */
  loc?: Loc
  msg: string
}

type ChangeClass = DefinitionChange['class']

/** A difference between two schemas. */
interface Difference {
  readonly weight: ChangeClass
  readonly msg: string
  readonly isType: boolean
}

const MOST_CHANGES = 10_000
const MOST_DIFFERENCES = 50
const MOST_PARTS = 100
const SHOWN = 5
const SHOWN_CHARACTERS = 200
/** Compared by rules of their own, or without effect on what is accepted. */
const OTHER_KEYWORDS = new Set([
  ...'$ref allOf type enum const properties required'.split(' '),
  ...'title description examples default deprecated readOnly writeOnly'.split(' '),
])
const ALL_TYPES = 'string number integer boolean object array null'.split(' ')

/**
 * What changes for callers of a tool when the definition `before` is replaced by `after`: servers and security, then operations,
 * matched by operationId, in the order of the old document. Never throws; the last change says what was left out.
 */
export function compareDefinitions(
  before: unknown,
  after: unknown,
  options: CheckOptions = {},
): { changes: DefinitionChange[] } {
  const [old, next] = [inspection(before, options), inspection(after, options)]
  if (old.readings === undefined || next.readings === undefined) {
    const msg = `the ${old.readings === undefined ? 'old' : 'new'} definition cannot be read, so nothing can be compared`
    return { changes: [{ class: 'unknown', kind: 'definition_unreadable', operation: '', msg }] }
  }
  if (isDeepStrictEqual(before, after)) return { changes: [] }
  const comparison = new Comparison(new InputSchemas(old.readings), new InputSchemas(next.readings))
  comparison.compareServers(before, after, options.at ?? DEFAULT_AT)
  comparison.compareOperations(old.operations, next.operations)
  return { changes: comparison.result() }
}

class Comparison {
  private readonly changes: DefinitionChange[] = []
  private omitted = 0
  private readonly schemas: SchemaComparison

  constructor(
    private readonly old: InputSchemas,
    private readonly next: InputSchemas,
  ) {
    this.schemas = new SchemaComparison(old.converter, next.converter)
  }

  result(): DefinitionChange[] {
    if (this.omitted === 0) return this.changes
    const msg = `${this.omitted} more changes are left out`
    return [...this.changes, { class: 'unknown', kind: 'comparison_incomplete', operation: '', msg }]
  }

  /** Another first server, origins that the definitions do not share, and how calls are authorized. */
  compareServers(before: unknown, after: unknown, at: Loc): void {
    const [first, nextFirst] = [firstAddress(before), firstAddress(after)]
    const [origins, nextOrigins] = [originsOf(before), originsOf(after)]
    const [added, gone] = [missing(nextOrigins, origins), missing(origins, nextOrigins)]
    const reasons: string[] = []
    if (first !== nextFirst) reasons.push(`calls go to ${quote(nextFirst)} instead of ${quote(first)}`)
    if (added.length > 0) reasons.push(`calls may go to ${shown(added)}`)
    if (gone.length > 0) reasons.push(`no call goes to ${shown(gone)} any more`)
    const change = (kind: string, msg: string, ...tail: Loc) =>
      this.changes.push({ class: 'unknown', kind, operation: '', loc: [...at, ...tail], msg })
    if (reasons.length > 0) change('server_changed', reasons.join('; '), 'servers', 0, 'url')
    if (!isDeepStrictEqual(securityOf(before), securityOf(after)))
      change('security_changed', 'calls are authorized in another way', 'security')
  }

  compareOperations(before: readonly OperationInput[], after: readonly OperationInput[]): void {
    const byId = new Map(after.map(each => [each.record.name, each]))
    const oldIds = new Set(before.map(each => each.record.name))
    const newcomers = new Map(after.flatMap(each => (oldIds.has(each.record.name) ? [] : [[targetOf(each), each]])))
    for (const old of before) {
      const same = byId.get(old.record.name)
      const next = same ?? newcomers.get(targetOf(old))
      if (next === undefined) {
        this.add('breaking', 'operation_removed', old, undefined, 'the operation is gone')
        continue
      }
      if (same === undefined) {
        newcomers.delete(targetOf(next))
        const msg = `the operation is called ${quote(next.record.name)} now`
        this.add('breaking', 'operation_renamed', old, placeUnder(next.place, 'operationId'), msg)
      } else if (targetOf(old) !== targetOf(next)) {
        const msg = `the operation is ${quote(targetOf(next))} instead of ${quote(targetOf(old))}`
        this.add('unknown', 'operation_moved', old, next.place, msg)
      }
      if (!isDeepStrictEqual(old.record.spec.security ?? null, next.record.spec.security ?? null))
        this.add('unknown', 'security_changed', old, next.place, 'the operation is authorized in another way')
      this.compareInputs(old, this.old.inputsOf(old), this.next.inputsOf(next))
    }
    for (const each of newcomers.values()) this.add('safe', 'operation_added', each, each.place, 'the operation is new')
  }

  private compareInputs(operation: OperationInput, before: readonly Input[], after: readonly Input[]): void {
    const nextKeys = new Set(after.map(each => each.key))
    for (const each of before)
      if (!nextKeys.has(each.key))
        this.add('breaking', `${kindOf(each)}_removed`, operation, undefined, `${labelOf(each)} is gone`)
    const byKey = new Map(before.map(each => [each.key, each]))
    for (const next of after) {
      const { isRequired } = next
      const add = (weight: ChangeClass, change: string, msg: string) =>
        this.add(weight, `${kindOf(next)}_${change}`, operation, next.place, `${labelOf(next)}${msg}`)
      const old = byKey.get(next.key)
      if (old === undefined && !isRequired) add('safe', 'added', ' is new and optional')
      else if (isRequired && !old?.isRequired)
        add('breaking', 'required', old === undefined ? ' is new and required' : ' is now required')
      else if (!isRequired && old?.isRequired) add('safe', 'optional', ' is now optional')
      if (old === undefined) continue
      const isBody = next.in === 'body'
      const [form, oldForm] = [formOf(next), formOf(old)]
      if (form !== oldForm)
        add('unknown', isBody ? 'media_type_changed' : 'style_changed', ` is sent as ${form} instead of ${oldForm}`)
      for (const { weight, msg, isType } of this.schemas.differencesOf(old.schema, next.schema))
        add(weight, isBody ? 'changed' : isType ? 'type_changed' : 'schema_changed', `: ${msg}`)
    }
  }

  private add(weight: ChangeClass, kind: string, { record }: OperationInput, place: Place | undefined, msg: string) {
    const loc = place === undefined ? {} : { loc: locOf(place) }
    if (this.changes.length >= MOST_CHANGES) this.omitted++
    else this.changes.push({ class: weight, kind, operation: record.name, ...loc, msg })
  }
}

/** What a schema says together with what it refers to and the members of its `allOf`. */
interface Flat {
  types?: string[]
  /** As `comparable` texts. */
  values?: string[]
  readonly properties: Map<string, JsonSchema>
  readonly required: Set<string>
  /** The schemas of `items` and `additionalProperties`. */
  readonly others: Map<string, JsonSchema>
  readonly rest: Map<string, unknown>
}

/** Compares what converted schemas of two documents accept. */
class SchemaComparison {
  /** Pairs of schemas in which nothing differs, however deep. */
  private readonly equal = new Set<string>()
  private readonly numbers = new Map<object, number>()
  /** Pairs of schemas to compare, and where they stand. */
  private pending: (readonly [old: JsonSchema, next: JsonSchema, at: string])[] = []
  private differences: Difference[] = []

  constructor(
    private readonly old: SchemaConverter,
    private readonly next: SchemaConverter,
  ) {}

  differencesOf(old: JsonSchema, next: JsonSchema): Difference[] {
    const seen = new Set<string>()
    this.pending = [[old, next, '']]
    this.differences = []
    for (const [before, now, at] of this.pending) {
      if (this.differences.length >= MOST_DIFFERENCES) break
      // Schemas may contain themselves: each pair is looked at once.
      const pair = `${this.nameOf(before)} ${this.nameOf(now)}`
      if (seen.has(pair) || this.equal.has(pair)) continue
      seen.add(pair)
      this.compare(this.flat(before, this.old), this.flat(now, this.next), at)
    }
    if (this.differences.length === 0) for (const pair of seen) this.equal.add(pair)
    return this.differences
  }

  /** What a schema shares with those that say the same by one reference, and else with none. */
  private nameOf(schema: JsonSchema): string {
    if (!isObject(schema)) return String(schema)
    if (typeof schema.$ref === 'string' && Object.keys(schema).length === 1) return schema.$ref
    const number = this.numbers.get(schema) ?? this.numbers.size
    this.numbers.set(schema, number)
    return String(number)
  }

  private compare(old: Flat | undefined, next: Flat | undefined, at: string): void {
    if (old === undefined || next === undefined) {
      if (old !== undefined) this.add('breaking', at, 'nothing is accepted')
      else if (next !== undefined) this.add('safe', at, 'something is accepted')
      return
    }
    const [before, now] = [withIntegers(old.types), withIntegers(next.types)]
    const isNarrower = missing(before, now).length > 0
    const words = ({ types }: Flat) => types?.join(' or ') ?? 'any'
    if (isNarrower || missing(now, before).length > 0)
      this.add(isNarrower ? 'breaking' : 'safe', at, `the type is ${words(next)} instead of ${words(old)}`, true)
    this.compareValues(old.values, next.values, at)
    this.compareProperties(old, next, at)
    for (const key of new Set([...old.others.keys(), ...next.others.keys()]))
      this.pending.push([
        old.others.get(key) ?? true,
        next.others.get(key) ?? true,
        `${at}${key === 'items' ? '[]' : '{}'}`,
      ])
    for (const key of new Set([...old.rest.keys(), ...next.rest.keys()]))
      this.compareKeyword(key, old.rest.get(key), next.rest.get(key), at)
  }

  private compareValues(old: Flat['values'], next: Flat['values'], at: string): void {
    const [gone, added] = [missing(old ?? [], next ?? old ?? []), missing(next ?? [], old ?? next ?? [])]
    if (old === undefined && next !== undefined) this.add('breaking', at, 'only certain values are accepted now')
    else if (old !== undefined && next === undefined) this.add('safe', at, 'any value is accepted now')
    else if (gone.length > 0) this.add('breaking', at, `no longer accepted: ${shown(gone)}`)
    else if (added.length > 0) this.add('safe', at, `accepted as well: ${shown(added)}`)
  }

  private compareProperties(old: Flat, next: Flat, at: string): void {
    for (const [name, property] of old.properties) {
      const now = next.properties.get(name)
      if (now === undefined) this.add('breaking', under(at, name), 'the property is gone')
      else this.pending.push([property, now, under(at, name)])
    }
    for (const name of missing(next.properties.keys(), old.properties.keys()))
      if (!next.required.has(name)) this.add('safe', under(at, name), 'the property is new and optional')
    for (const name of missing(next.required, old.required))
      this.add('breaking', under(at, name), 'the property is now required')
    for (const name of missing(old.required, next.required))
      if (next.properties.has(name)) this.add('safe', under(at, name), 'the property is now optional')
  }

  /** Any other keyword; alternatives that both sides have are compared, as equal words may refer to definitions that changed. */
  private compareKeyword(key: string, before: unknown, now: unknown, at: string): void {
    const isMap = key === 'patternProperties' || key === 'dependentSchemas'
    const partsOf = (value: unknown) => {
      const parts = isMap && isObject(value) ? Object.values(value) : [value ?? []].flat()
      return new Map(parts.map(part => [comparable(part), part]))
    }
    const [old, next] = [partsOf(before), partsOf(now)]
    const both = [...old].filter(([text]) => next.has(text))
    for (const [i, [, part]] of key === 'dependentRequired' ? [] : both.entries())
      if (isObject(part)) this.pending.push([part, part, `${under(at, key)}[${i}]`])
    if (comparable(before ?? null) === comparable(now ?? null)) return
    let weight = classOf(key, before, now)
    if ((key === 'oneOf' || key === 'anyOf') && before !== undefined && now !== undefined) {
      if (both.length === old.size) weight = 'safe'
      else if (both.length === next.size) weight = 'breaking'
    }
    this.add(weight, at, `${key} is ${shown([now])} instead of ${shown([before])}`)
  }

  /** What a schema says with all that it is composed of; undefined for `false`. */
  private flat(schema: JsonSchema, converter: SchemaConverter): Flat | undefined {
    const parts = new Set<JsonSchema | undefined>([schema])
    const flat: Flat = { properties: new Map(), required: new Set(), others: new Map(), rest: new Map() }
    for (const part of parts) {
      if (part === false) return undefined
      if (!isObject(part) || parts.size > MOST_PARTS) continue
      // The casts are what the converter writes at these keywords.
      if (typeof part.$ref === 'string') parts.add(converter.definition(part.$ref))
      for (const each of (part.allOf ?? []) as JsonSchema[]) parts.add(each)
      if (part.type !== undefined) flat.types = narrowed(flat.types, [part.type].flat() as string[])
      if (part.const !== undefined) flat.values = narrowed(flat.values, [comparable(part.const)])
      if (Array.isArray(part.enum)) flat.values = narrowed(flat.values, part.enum.map(comparable))
      for (const [name, each] of Object.entries((part.properties ?? {}) as Record<string, JsonSchema>))
        if (!flat.properties.has(name)) flat.properties.set(name, each)
      for (const name of (part.required ?? []) as string[]) flat.required.add(name)
      for (const [key, value] of Object.entries(part)) {
        const isOther = key === 'items' || key === 'additionalProperties'
        const into: Map<string, unknown> = isOther ? flat.others : flat.rest
        if (!OTHER_KEYWORDS.has(key) && !into.has(key)) into.set(key, value)
      }
    }
    return flat
  }

  private add(weight: ChangeClass, at: string, msg: string, isType = false): void {
    const place = at.length > SHOWN_CHARACTERS ? `...${at.slice(-SHOWN_CHARACTERS)}` : at
    this.differences.push({ weight, msg: at === '' ? msg : `${place}: ${msg}`, isType })
  }
}

function narrowed(before: string[] | undefined, values: string[]): string[] {
  const allowed = new Set(values)
  return before?.filter(each => allowed.has(each)) ?? values
}

/** What `from` has and `other` has not. */
function missing(from: Iterable<string>, other: Iterable<string>): string[] {
  const known = new Set(other)
  return [...from].filter(each => !known.has(each))
}

/** A number is also an integer. */
function withIntegers(types: readonly string[] = ALL_TYPES): string[] {
  return types.includes('number') ? [...types, 'integer'] : [...types]
}

function classOf(key: string, before: unknown, now: unknown): ChangeClass {
  const isUpper = /^(?:max|exclusiveMax)/.test(key)
  if (isUpper || /^(?:min|exclusiveMin)/.test(key)) {
    if (now === undefined) return 'safe'
    return before !== undefined && isUpper === Number(now) > Number(before) ? 'safe' : 'breaking'
  }
  if (now === undefined && key === 'format') return 'safe'
  const onlyNarrows = key === 'pattern' || key === 'multipleOf' || key === 'uniqueItems'
  if (!onlyNarrows || (before !== undefined && now !== undefined)) return 'unknown'
  return now === undefined ? 'safe' : 'breaking'
}

/** A place inside a schema, one step deeper. */
function under(at: string, name: string): string {
  return at === '' ? name : `${at}.${name}`
}

function shown(values: readonly unknown[]): string {
  const text = (value: unknown) => (typeof value === 'string' ? value : (comparable(value) ?? 'absent'))
  const texts = values.slice(0, SHOWN).map(each => quote(text(each)))
  return `${texts.join(', ')}${values.length > SHOWN ? ` and ${values.length - SHOWN} more` : ''}`
}

/** What the document says of authorization: its requirements, and the schemes that they name. */
function securityOf(definition: unknown): unknown {
  const { security, components } = Object(definition)
  return [security ?? null, (isObject(components) ? components.securitySchemes : null) ?? null]
}

function targetOf({ record }: OperationInput): string {
  return `${record.method.toLowerCase()} ${record.path}`
}

function kindOf(input: Input): string {
  return input.in === 'body' ? 'body' : 'parameter'
}

function labelOf(input: Input): string {
  return input.in === 'body' ? 'the request body' : `the ${input.in} parameter ${quote(input.name)}`
}

/** How the value is written in a request: the media type, or the style with its defaults. */
function formOf({ in: place, value }: Input): string {
  if (place === 'body') return quote(jsonMediaType(Object(value.content)) ?? '')
  if (isObject(value.content)) return `the media type ${quote(Object.keys(value.content)[0] ?? '')}`
  const isForm = place === 'query' || place === 'cookie'
  const style = typeof value.style === 'string' ? value.style : isForm ? 'form' : 'simple'
  const explode = typeof value.explode === 'boolean' ? value.explode : style === 'form'
  return `${quote(style)}${explode ? ', exploded' : ''}${value.allowReserved === true ? ', reserved characters as they are' : ''}`
}
