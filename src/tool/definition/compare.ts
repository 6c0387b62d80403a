import { isDeepStrictEqual } from 'node:util'
import { type CheckOptions, DEFAULT_AT, inspection } from './check/check.js'
import { type Loc, locOf, type Place, placeUnder, quote } from './check/findings.js'
import { jsonMediaType, type ParameterInput } from './check/inputs.js'
import type { OperationInput } from './check/operations.js'
import { isObject } from './check/references.js'
import { firstAddress, originsOf } from './check/servers.js'
import { InputSchemas } from './functions/functions.js'
import { type ConvertedSchema, comparable, type JsonSchema, type SchemaConverter } from './functions/json-schema.js'

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

/** A difference between two schemas: its class, what it says, and whether it is one of types. */
type Difference = readonly [weight: ChangeClass, msg: string, isType?: boolean]

/** A parameter or the body of an operation. */
interface Input {
  readonly kind: 'parameter' | 'body'
  readonly name: string
  readonly place: Place
  readonly isRequired: boolean
  /** How the value is written in a request. */
  readonly form: string
  readonly schema: ConvertedSchema
}

const MOST_CHANGES = 10_000
const MOST_DIFFERENCES = 50
/** Members of schemas that one comparison looks at. */
const MOST_MEMBERS = 1_000_000
const MOST_PARTS = 100
const SHOWN = 5
const SHOWN_CHARACTERS = 200
const UPPER_BOUNDS = 'maximum exclusiveMaximum maxLength maxItems maxProperties'.split(' ')
const LOWER_BOUNDS = 'minimum exclusiveMinimum minLength minItems minProperties'.split(' ')
/** Keywords that only narrow what is accepted. */
const NARROWING = ['pattern', 'multipleOf', 'uniqueItems']
/** Compared by rules of their own, or without effect on what is accepted. */
const OTHER_KEYWORDS = new Set([
  ...'$ref allOf type enum const properties required items additionalProperties'.split(' '),
  ...'title description examples default deprecated readOnly writeOnly'.split(' '),
])
const SCHEMA_MAPS = ['patternProperties', 'dependentSchemas']
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
  private readonly compared = new Map<ConvertedSchema, Map<ConvertedSchema, Difference[]>>()
  private readonly schemas: SchemaComparison

  constructor(
    private readonly old: InputSchemas,
    private readonly next: InputSchemas,
  ) {
    this.schemas = new SchemaComparison(old.converter, next.converter)
  }

  result(): DefinitionChange[] {
    const reasons = [
      ...(this.schemas.membersLeft > 0 ? [] : ['the schemas are too large to be compared to the end']),
      ...(this.omitted > 0 ? [`${this.omitted} more changes are left out`] : []),
    ]
    if (reasons.length === 0) return this.changes
    return [
      ...this.changes,
      { class: 'unknown', kind: 'comparison_incomplete', operation: '', msg: reasons.join('; ') },
    ]
  }

  /** Another first server, origins that the definitions do not share, and how calls are authorized. */
  compareServers(before: unknown, after: unknown, at: Loc): void {
    const [first, nextFirst] = [firstAddress(before), firstAddress(after)]
    const [origins, nextOrigins] = [originsOf(before), originsOf(after)]
    const [added, gone] = [missing(nextOrigins, origins), missing(origins, nextOrigins)]
    const reasons = [
      ...(first === nextFirst ? [] : [`calls go to ${quote(nextFirst)} instead of ${quote(first)}`]),
      ...(added.length > 0 ? [`calls may go to ${shown(added)}`] : []),
      ...(gone.length > 0 ? [`no call goes to ${shown(gone)} any more`] : []),
    ]
    const change = (kind: string, msg: string, ...tail: Loc) =>
      this.changes.push({ class: 'unknown', kind, operation: '', loc: [...at, ...tail], msg })
    if (reasons.length > 0) change('server_changed', reasons.join('; '), 'servers', 0, 'url')
    if (!isDeepStrictEqual(securityOf(before), securityOf(after)))
      change('security_changed', 'calls are authorized in another way', 'security')
  }

  compareOperations(before: readonly OperationInput[], after: readonly OperationInput[]): void {
    const byId = new Map(after.map(each => [each.record.name, each]))
    const oldIds = new Set(before.map(each => each.record.name))
    const newcomers = new Map<string, OperationInput>()
    for (const each of after) if (!oldIds.has(each.record.name)) newcomers.set(targetOf(each), each)
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
      this.compareInputs(old, inputsOf(old, this.old), inputsOf(next, this.next))
    }
    for (const each of newcomers.values()) this.add('safe', 'operation_added', each, each.place, 'the operation is new')
  }

  private compareInputs(operation: OperationInput, before: Map<string, Input>, after: Map<string, Input>): void {
    for (const [key, old] of before) {
      const next = after.get(key)
      if (next === undefined) this.add('breaking', `${old.kind}_removed`, operation, undefined, `${old.name} is gone`)
      else this.compareInput(operation, old, next)
    }
    for (const [key, { kind, name, place, isRequired }] of after) {
      if (before.has(key)) continue
      if (isRequired) this.add('breaking', `${kind}_required`, operation, place, `${name} is new and required`)
      else this.add('safe', `${kind}_added`, operation, place, `${name} is new and optional`)
    }
  }

  private compareInput(operation: OperationInput, old: Input, { kind, name, place, isRequired, form, schema }: Input) {
    if (isRequired && !old.isRequired)
      this.add('breaking', `${kind}_required`, operation, place, `${name} is now required`)
    if (!isRequired && old.isRequired) this.add('safe', `${kind}_optional`, operation, place, `${name} is now optional`)
    if (form !== old.form) {
      const changed = kind === 'body' ? 'body_media_type_changed' : 'parameter_style_changed'
      this.add('unknown', changed, operation, place, `${name} is sent as ${form} instead of ${old.form}`)
    }
    for (const [weight, msg, isType] of this.differencesOf(old.schema, schema)) {
      const changed = kind === 'body' ? 'body_changed' : `parameter_${isType ? 'type' : 'schema'}_changed`
      this.add(weight, changed, operation, place, `${name}: ${msg}`)
    }
  }

  /** Operations share schemas: each pair is compared once. */
  private differencesOf(old: ConvertedSchema, next: ConvertedSchema): readonly Difference[] {
    const known = this.compared.get(old) ?? new Map<ConvertedSchema, Difference[]>()
    this.compared.set(old, known)
    const differences = known.get(next) ?? this.schemas.differencesOf(old.schema, next.schema)
    known.set(next, differences)
    return differences
  }

  private add(weight: ChangeClass, kind: string, { record }: OperationInput, place: Place | undefined, msg: string) {
    const loc = place === undefined ? {} : { loc: locOf(place) }
    if (this.changes.length >= MOST_CHANGES) this.omitted++
    else this.changes.push({ class: weight, kind, operation: record.name, ...loc, msg })
  }
}

/** What a schema says together with what it refers to and the members of its `allOf`. */
interface Flat {
  readonly types: readonly string[] | undefined
  /** As `comparable` texts. */
  readonly values: readonly string[] | undefined
  readonly properties: ReadonlyMap<string, JsonSchema>
  readonly required: ReadonlySet<string>
  readonly items: JsonSchema | undefined
  readonly additional: JsonSchema | undefined
  readonly rest: ReadonlyMap<string, unknown>
}

/** Compares what converted schemas of two documents accept. */
class SchemaComparison {
  membersLeft = MOST_MEMBERS
  /** Pairs of definitions in which nothing differs, however deep. */
  private readonly equal = new Set<string>()
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
      if (this.membersLeft <= 0 || this.differences.length >= MOST_DIFFERENCES) break
      const refs = isObject(before) && isObject(now) ? [before.$ref, now.$ref] : []
      if (typeof refs[0] === 'string' && typeof refs[1] === 'string') {
        const pair = refs.join(' ')
        if (seen.has(pair) || this.equal.has(pair)) continue
        seen.add(pair)
      }
      this.compare(this.flat(before, this.old), this.flat(now, this.next), at)
    }
    if (this.differences.length === 0 && this.membersLeft > 0) for (const pair of seen) this.equal.add(pair)
    return this.differences
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
    this.compareAdditional(old.additional, next.additional, at)
    if (old.items !== next.items) this.pending.push([old.items ?? true, next.items ?? true, `${at}[]`])
    for (const key of new Set([...old.rest.keys(), ...next.rest.keys()]))
      this.compareKeyword(key, old.rest.get(key), next.rest.get(key), at)
  }

  private compareValues(old: Flat['values'], next: Flat['values'], at: string): void {
    if (old === undefined && next !== undefined) this.add('breaking', at, 'only certain values are accepted now')
    if (old !== undefined && next === undefined) this.add('safe', at, 'any value is accepted now')
    if (old === undefined || next === undefined) return
    const [gone, added] = [missing(old, next), missing(next, old)]
    if (gone.length > 0) this.add('breaking', at, `no longer accepted: ${shown(gone)}`)
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

  private compareAdditional(old: JsonSchema = true, next: JsonSchema = true, at: string): void {
    if (isObject(old) && isObject(next)) this.pending.push([old, next, under(at, '*')])
    else if (isAnything(old) !== isAnything(next) || (old === false) !== (next === false)) {
      const isFreer = old === false || isAnything(next)
      this.add(isFreer ? 'safe' : 'breaking', at, `other properties are accepted ${isFreer ? 'more' : 'less'} freely`)
    }
  }

  /** Any other keyword; alternatives that both sides have are compared, as equal words may refer to definitions that changed. */
  private compareKeyword(key: string, before: unknown, now: unknown, at: string): void {
    const [old, next] = [before, now].map(value => {
      const parts = isObject(value) && SCHEMA_MAPS.includes(key) ? Object.values(value) : [value ?? []].flat()
      return new Map(parts.map(part => [comparable(part), part]))
    })
    const both = [...(old?.keys() ?? [])].filter(text => next?.has(text))
    for (const [i, text] of key === 'dependentRequired' ? [] : both.entries()) {
      const part = old?.get(text)
      if (isObject(part)) this.pending.push([part, part, `${under(at, key)}[${i}]`])
    }
    if (comparable(before ?? null) === comparable(now ?? null)) return
    const isAlternative = (key === 'oneOf' || key === 'anyOf') && before !== undefined && now !== undefined
    let weight: ChangeClass = 'unknown'
    if (isAlternative && both.length === old?.size) weight = 'safe'
    else if (isAlternative && both.length === next?.size) weight = 'breaking'
    else if (!isAlternative) weight = classOf(key, before, now)
    this.add(weight, at, `${key} is ${shown([now])} instead of ${shown([before])}`)
  }

  /** What a schema says with all that it is composed of; undefined for `false`. */
  private flat(schema: JsonSchema, converter: SchemaConverter): Flat | undefined {
    const parts = new Set<JsonSchema | undefined>([schema])
    const properties = new Map<string, JsonSchema>()
    const required = new Set<string>()
    const rest = new Map<string, unknown>()
    let types: string[] | undefined
    let values: string[] | undefined
    let items: JsonSchema | undefined
    let additional: JsonSchema | undefined
    for (const part of parts) {
      if (part === false) return undefined
      if (!isObject(part) || parts.size > MOST_PARTS) continue
      if (typeof part.$ref === 'string') parts.add(converter.definition(part.$ref))
      for (const each of (part.allOf as JsonSchema[] | undefined) ?? []) parts.add(each)
      if (part.type !== undefined) types = narrowed(types, [part.type].flat() as string[])
      if (part.const !== undefined) values = narrowed(values, [comparable(part.const)])
      if (Array.isArray(part.enum)) values = narrowed(values, part.enum.map(comparable))
      for (const [name, each] of Object.entries((part.properties as Record<string, JsonSchema> | undefined) ?? {}))
        if (!properties.has(name)) properties.set(name, each)
      for (const name of (part.required as string[] | undefined) ?? []) required.add(name)
      items ??= part.items as JsonSchema | undefined
      additional ??= part.additionalProperties as JsonSchema | undefined
      for (const [key, value] of Object.entries(part))
        if (!OTHER_KEYWORDS.has(key) && !rest.has(key)) rest.set(key, value)
    }
    this.membersLeft -= 1 + properties.size + required.size + rest.size + (values?.length ?? 0)
    return { types, values, properties, required, items, additional, rest }
  }

  private add(weight: ChangeClass, at: string, msg: string, isType = false): void {
    const place = at.length > SHOWN_CHARACTERS ? `...${at.slice(-SHOWN_CHARACTERS)}` : at
    this.differences.push([weight, at === '' ? msg : `${place}: ${msg}`, isType])
  }
}

function narrowed(before: string[] | undefined, values: string[]): string[] {
  if (before === undefined) return values
  const allowed = new Set(values)
  return before.filter(each => allowed.has(each))
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

function isAnything(schema: JsonSchema): boolean {
  return schema === true || (isObject(schema) && Object.keys(schema).length === 0)
}

function classOf(key: string, before: unknown, now: unknown): ChangeClass {
  const isUpper = UPPER_BOUNDS.includes(key)
  if (isUpper || LOWER_BOUNDS.includes(key)) {
    if (now === undefined) return 'safe'
    return before !== undefined && isUpper === Number(now) > Number(before) ? 'safe' : 'breaking'
  }
  if (now === undefined && key === 'format') return 'safe'
  if (!NARROWING.includes(key) || (before !== undefined && now !== undefined)) return 'unknown'
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
  if (!isObject(definition)) return null
  const schemes = isObject(definition.components) ? definition.components.securitySchemes : undefined
  return [definition.security ?? null, schemes ?? null]
}

function targetOf({ record }: OperationInput): string {
  return `${record.method.toLowerCase()} ${record.path}`
}

function inputsOf({ parameters, body }: OperationInput, schemas: InputSchemas): Map<string, Input> {
  const inputs = new Map<string, Input>()
  for (const each of parameters) {
    const { in: location, place, value } = each
    const isRequired = location === 'path' || value.required === true
    const name = `the ${location} parameter ${quote(each.name)}`
    const schema = schemas.parameterSchema(each)
    inputs.set(each.key, { kind: 'parameter', name, place, isRequired, form: styleOf(each), schema })
  }
  if (body !== undefined) {
    const { value, place } = body
    const form = quote(jsonMediaType(Object(value.content)) ?? '')
    const schema = schemas.bodySchema(body)
    inputs.set('body', {
      kind: 'body',
      name: 'the request body',
      place,
      isRequired: value.required === true,
      form,
      schema,
    })
  }
  return inputs
}

/** The style of a parameter, defaults filled in. */
function styleOf({ in: place, value }: ParameterInput): string {
  if (isObject(value.content)) return `the media type ${quote(Object.keys(value.content)[0] ?? '')}`
  const isForm = place === 'query' || place === 'cookie'
  const style = typeof value.style === 'string' ? value.style : isForm ? 'form' : 'simple'
  const explode = typeof value.explode === 'boolean' ? value.explode : style === 'form'
  return `${quote(style)}${explode ? ', exploded' : ''}${value.allowReserved === true ? ', reserved characters as they are' : ''}`
}
