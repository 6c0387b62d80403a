import type { Readings } from '../check/check.js'
import { type Dangling, isDangling, isObject, type Target } from '../check/references.js'
import { safePropertyNames } from './names.js'

type Schema = Record<string, unknown>

export type JsonSchema = Schema | boolean

/** A converted schema, the definitions it refers to, and the wire names of its renamed properties. */
export interface ConvertedSchema {
  readonly schema: JsonSchema
  readonly uses: ReadonlySet<Definition>
  readonly renamed: ReadonlyMap<string, string>
}

/** A referenced schema. It is converted after the schema that refers to it. */
export interface Definition {
  readonly name: string
  readonly target: Target
  readonly context: Context
  converted?: ConvertedSchema
}

/** Facts about a schema from the enclosing schemas of the same value. */
interface Context {
  /** True for a parent inside the `allOf` of its subtype: only its own fields count, not its subtypes. */
  readonly isParent: boolean
  readonly hidden: ReadonlySet<string>
}

const NO_NAMES: ReadonlySet<string> = new Set()
const ALONE: Context = { isParent: false, hidden: NO_NAMES }
const TYPES = new Set<unknown>(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'])
const COMPOSITES = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'const']
const LONGEST_PATTERN_CHARACTERS = 2000
const MOST_HOPS = 64
const MOST_HIDDEN = 500
/** Keywords that describe a value without limiting it. In OpenAPI 3.0 only these are kept next to a `$ref`. */
const ANNOTATIONS = new Set('title description default example examples deprecated readOnly writeOnly'.split(' '))

/** Converters for the subschemas of one schema. */
interface SchemaConverters {
  /** Converts the schema of a value inside this one. */
  inside(schema: unknown): JsonSchema
  /** Converts a schema that describes the same value. */
  beside(schema: unknown): JsonSchema
  /** Converts a member of `allOf`. */
  part(schema: unknown): JsonSchema
  alternative(schema: unknown): JsonSchema
}

interface Converters extends SchemaConverters {
  /** Return the safe name of a property, and a value with safe property names. */
  name(wire: string): string
  data(value: unknown): unknown
}

/** Keywords that hold a map of schemas, a list, or one schema, with the converter for each. */
const SCHEMA_MAPS = new Map<string, keyof SchemaConverters>([
  ['properties', 'inside'],
  ['patternProperties', 'inside'],
  ['dependentSchemas', 'beside'],
])
const SCHEMA_LISTS = new Map<string, keyof SchemaConverters>([
  ['allOf', 'part'],
  ['anyOf', 'alternative'],
  ['oneOf', 'alternative'],
  ['prefixItems', 'inside'],
])
const SCHEMAS = new Map<string, keyof SchemaConverters>([
  ['then', 'beside'],
  ['else', 'beside'],
  ...'additionalItems not if contains propertyNames additionalProperties unevaluatedProperties unevaluatedItems contentSchema'
    .split(' ')
    .map(key => [key, 'inside'] as const),
])
const COUNTS = 'minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains'.split(' ')

/** Tests for values of keywords that are copied unchanged. */
const PLAIN_KEYWORDS = new Map<string, (value: unknown) => boolean>([
  ...['title', 'description', 'format', 'contentEncoding', 'contentMediaType'].map(key => [key, isText] as const),
  ...['uniqueItems', 'deprecated', 'readOnly', 'writeOnly'].map(key => [key, isFlag] as const),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map(key => [key, isNumber] as const),
  ...COUNTS.map(key => [key, isCount] as const),
  ['multipleOf', value => isNumber(value) && value > 0],
])
const DATA = new Set(['const', 'default', 'examples'])

/**
 * Converts the schemas of one OpenAPI document to JSON Schema 2020-12. References become `$defs`, `nullable` becomes the type "null", and
 * a `discriminator` becomes alternatives with a fixed value. `readOnly` properties are left out, and property names that some vendor
 * refuses are replaced by safe ones.
 */
export class SchemaConverter {
  private readonly definitions = new Map<object, Map<string, Definition>>()
  private readonly taken = new Map<string, number>()
  private readonly pending: Definition[] = []
  private readonly hidden = new Map<object, ReadonlySet<string>>()
  private readonly safeNames: ReadonlyMap<string, string>
  /** The definitions used, and properties renamed, by the schema in conversion. */
  private uses = new Set<Definition>()
  private renamed = new Map<string, string>()

  constructor(private readonly readings: Readings) {
    this.safeNames = safePropertyNames(readings.document)
  }

  /** Converts one schema, with these examples, and every definition it needs. The result is shared: do not change it. */
  convert(schema: unknown, examples: readonly unknown[] = []): ConvertedSchema {
    const converted = this.convertTree(schema, undefined, ALONE, examples)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop())
      next.converted = this.convertTree(next.target.value, next.target.base, next.context)
    return converted
  }

  private convertTree(
    value: unknown,
    base: Schema | undefined,
    context: Context,
    examples: readonly unknown[] = [],
  ): ConvertedSchema {
    this.uses = new Set()
    this.renamed = new Map()
    const converted = this.convertOne(value, base, context)
    const schema =
      examples.length === 0 ? converted : { ...asObject(converted), examples: examples.map(each => this.data(each)) }
    return { schema, uses: this.uses, renamed: this.renamed }
  }

  private convertOne(schema: unknown, outer: Schema | undefined, context: Context): JsonSchema {
    if (!isObject(schema)) return typeof schema === 'boolean' ? schema : {}
    const { subtypes, references, is30 } = this.readings
    const base = typeof schema.$id === 'string' ? schema : outer
    const hidden = united(context.hidden, this.hiddenIn(schema, base, 0))
    const alternatives = context.isParent ? undefined : this.alternativesOf(schema, base, hidden)
    const result: Schema = {}
    const ref = schema.$ref ?? schema.$dynamicRef
    if (alternatives !== undefined) result.oneOf = alternatives
    else if (typeof ref === 'string')
      Object.assign(result, this.reference(references.find(ref, base), { ...context, hidden }))
    const discriminator = subtypes.discriminatorOf(schema)
    const under = (inner: Context) => (each: unknown) => this.convertOne(each, base, inner)
    const beside = under({ isParent: false, hidden })
    const convert: Converters = {
      inside: under(ALONE),
      beside,
      part: under({ isParent: subtypes.has(schema) || subtypes.mixedBy(schema, base) !== undefined, hidden }),
      alternative: each => {
        const end = subtypes.endOf(each, base)
        const fixed = discriminator && end ? subtypes.selectorIn(discriminator, end) : undefined
        if (fixed === undefined) return beside(each)
        const branch = fixed.instead ? under({ isParent: true, hidden })(each) : beside(each)
        return { allOf: [branch, this.selector(fixed.selector)] }
      },
      name: wire => this.name(wire),
      data: value => this.data(value),
    }
    for (const key of Object.keys(schema)) {
      if ((alternatives !== undefined || (typeof ref === 'string' && is30)) && !ANNOTATIONS.has(key)) continue
      // The parent's alternatives contain the subtype that refers to it.
      if (context.isParent && discriminator !== undefined && (key === 'oneOf' || key === 'anyOf')) continue
      const isAllowed = PLAIN_KEYWORDS.get(key)
      if (DATA.has(key)) {
        if (key !== 'examples' || Array.isArray(schema[key])) result[key] = this.data(schema[key])
      } else if (isAllowed === undefined) convertKeyword(key, schema[key], result, hidden, convert)
      else if (isAllowed(schema[key])) result[key] = schema[key]
    }
    if (alternatives === undefined) {
      finishTuple(schema, result)
      finishBounds(schema, result)
      finishRequired(schema, result, hidden, convert)
      if (isText(schema.pattern) && typeof ref !== 'string' && result.pattern === undefined) {
        const note = `Pattern: ${schema.pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
        result.description = typeof result.description === 'string' ? `${result.description}\n${note}` : note
      }
      const selectors = context.isParent ? [] : subtypes.selectorsAbove(schema).map(each => this.selector(each))
      if (selectors.length > 0) result.allOf = [...(Array.isArray(result.allOf) ? result.allOf : []), ...selectors]
    }
    return schema.nullable === true ? nullable(result) : result
  }

  /** Returns the alternatives that replace a parent schema, one for each subtype; undefined for other schemas. */
  private alternativesOf(
    schema: Schema,
    base: Schema | undefined,
    hidden: ReadonlySet<string>,
  ): JsonSchema[] | undefined {
    const { subtypes } = this.readings
    const offered = subtypes.offeredFor(schema)
    if (offered.length === 0) return undefined
    const own = subtypes.discriminatorOf(schema)
    const self = () => {
      const known = subtypes.targetOf(schema) ?? { value: schema, place: offered[0]?.place, kind: undefined, base }
      return this.reference(known as Target, { isParent: true, hidden })
    }
    const all = (...parts: JsonSchema[]) => (parts.length === 1 ? (parts[0] as JsonSchema) : { allOf: parts })
    const selectorsOf = (value: Schema) => {
      const selector = own && subtypes.selectorOf(own, value)
      return selector === undefined ? [] : [this.selector(selector)]
    }
    const result: JsonSchema[] = []
    const roots = subtypes.rootsOf(schema)
    const hasOther = own !== undefined && roots.every(each => each.property !== own.property)
    // The parent's own alternative also fixes its value, so that only one alternative matches.
    if (roots.length > 0 || own?.mapped.has(schema) || (own && own.fallback?.value === schema))
      result.push(
        all(
          self(),
          ...subtypes.selectorsAbove(schema).map(each => this.selector(each)),
          ...(hasOther ? selectorsOf(schema) : []),
        ),
      )
    for (const target of offered) {
      const value = target.value as Schema // a subtype's target is always an object
      const part = this.reference(target, { isParent: false, hidden })
      const isBelow = own === undefined || subtypes.rootsOf(value).includes(own)
      // A schema named only in a mapping does not include the parent's fields, so they are added.
      result.push(isBelow ? part : all(self(), part, ...selectorsOf(value)))
    }
    return result
  }

  /** Returns a reference to the definition of a target; `{}` if the target is not a schema. */
  private reference(target: Target | Dangling, context: Context): Schema {
    const definition = this.definitionOf(target, context)
    if (definition === undefined) return {}
    this.uses.add(definition)
    return { $ref: `#/$defs/${definition.name}` }
  }

  private name(wire: string): string {
    const name = this.safeNames.get(wire)
    if (name === undefined) return wire
    this.renamed.set(name, wire)
    return name
  }

  private data(value: unknown): unknown {
    if (this.safeNames.size === 0 || typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map(each => this.data(each))
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [this.name(key), this.data(each)]))
  }

  /** Converts a selector: a schema that fixes one property. */
  private selector(fixed: Schema): Schema {
    const [[property = '', value] = []] = Object.entries(fixed.properties as Schema) // `Subtypes` makes selectors of this shape
    const name = this.name(property)
    return { ...fixed, properties: { [name]: value }, ...(fixed.required !== undefined && { required: [name] }) }
  }

  private definitionOf(target: Target | Dangling, { isParent, hidden }: Context): Definition | undefined {
    if (isDangling(target)) return undefined
    const { value, base } = target
    if (!isObject(value)) return typeof value === 'boolean' ? this.newDefinition(target, ALONE) : undefined
    const isAlias = typeof value.$ref === 'string'
    // A cycle of references without a schema allows any value.
    if (isAlias && this.readings.references.resolve(value.$ref as string, base) === undefined) return undefined
    const own = this.hiddenIn(value, base, 0)
    const added = [...hidden].filter(name => !own.has(name)).sort()
    const isBare = isParent && (isAlias || this.readings.subtypes.has(value))
    const key = `${isBare}${added.length === 0 ? '' : JSON.stringify(added)}`
    const known = this.definitions.get(value) ?? new Map<string, Definition>()
    this.definitions.set(value, known)
    const context = { isParent: isBare, hidden: added.length === 0 ? NO_NAMES : hidden }
    const definition = known.get(key) ?? this.newDefinition(target, context)
    known.set(key, definition)
    return definition
  }

  private newDefinition(target: Target, context: Context): Definition {
    const name = this.newName(`${target.place.key}${context.isParent ? '_parent' : ''}`)
    const definition: Definition = { name, target, context }
    this.pending.push(definition)
    return definition
  }

  private newName(key: string): string {
    const written = key.replace(/[^A-Za-z0-9._-]/g, '_')
    const plain = written === '' || written === '__proto__' ? '_' : written
    // Continue after the last number, so that many schemas with the same name do not take quadratic time.
    let number = (this.taken.get(plain) ?? 0) + 1
    while (number > 1 && this.taken.has(`${plain}_${number}`)) number++
    this.taken.set(plain, number)
    if (number === 1) return plain
    this.taken.set(`${plain}_${number}`, 1)
    return `${plain}_${number}`
  }

  /** Returns the names of server-set properties in a schema and its parts. Parts after too many references are ignored. */
  private hiddenIn(schema: Schema, base: Schema | undefined, hops: number): ReadonlySet<string> {
    const known = this.hidden.get(schema)
    if (known !== undefined || hops > MOST_HOPS) return known ?? NO_NAMES
    this.hidden.set(schema, NO_NAMES) // ends a cycle
    const entries = isObject(schema.properties) ? Object.entries(schema.properties) : []
    const own = entries.filter(([, property]) => this.isSetByServer(property, base)).map(([name]) => name)
    let names: ReadonlySet<string> = own.length === 0 ? NO_NAMES : new Set(own)
    for (const part of Array.isArray(schema.allOf) ? schema.allOf : [])
      if (isObject(part)) names = united(names, this.hiddenIn(part, base, hops + 1))
    const target = typeof schema.$ref === 'string' ? this.readings.references.find(schema.$ref, base) : undefined
    if (target !== undefined && !isDangling(target) && isObject(target.value))
      names = united(names, this.hiddenIn(target.value, target.base, hops + 1))
    this.hidden.set(schema, names)
    return names
  }

  /** True if a property, or the schema it refers to, is `readOnly`. */
  private isSetByServer(property: unknown, base: Schema | undefined): boolean {
    if (!isObject(property)) return false
    // OpenAPI 3.0 ignores keywords next to a reference, but authors mean `readOnly` there.
    if (property.readOnly === true) return true
    const target = typeof property.$ref === 'string' ? this.readings.references.find(property.$ref, base) : undefined
    return target !== undefined && !isDangling(target) && isObject(target.value) && target.value.readOnly === true
  }
}

/** Converts a keyword that is not copied unchanged. */
function convertKeyword(
  key: string,
  value: unknown,
  result: Schema,
  hidden: ReadonlySet<string>,
  convert: Converters,
): void {
  const list = Array.isArray(value) && value.length > 0 ? value : undefined
  const [inMap, inList, alone] = [SCHEMA_MAPS.get(key), SCHEMA_LISTS.get(key), SCHEMAS.get(key)]
  if (inMap !== undefined) {
    const keeps = (name: string) => (key === 'properties' ? !hidden.has(name) : inMap === 'beside' || isPattern(name))
    const nameOf = key === 'patternProperties' ? (name: string) => name : convert.name
    if (isObject(value)) result[key] = mapValues(value, convert[inMap], keeps, nameOf)
  } else if (inList !== undefined) {
    if (list) result[key] = list.map(convert[inList])
  } else if (alone !== undefined) {
    if (isObject(value) || typeof value === 'boolean') result[key] = convert[alone](value)
  } else if (key === 'items') {
    if (list) result.prefixItems = list.map(convert.inside)
    else if (!Array.isArray(value) && value !== null) result.items = convert.inside(value)
  } else if (key === 'type') {
    const types = [...new Set([value].flat().filter(each => TYPES.has(each)))]
    if (types.length > 0) result.type = Array.isArray(value) ? types : types[0]
  } else if (key === 'enum') {
    if (list) result.enum = [...new Map(list.map(each => [comparable(each), convert.data(each)])).values()]
  } else if (key === 'required') {
    if (Array.isArray(value)) result.required = [...new Set(value.filter(isText))]
  } else if (key === 'example') {
    if (!Array.isArray(result.examples)) result.examples = [convert.data(value)]
  } else if (key === 'pattern') {
    if (isPattern(value)) result.pattern = value
  } else if (key === 'dependentRequired' && isObject(value)) {
    const kept = (names: unknown[]) => [...new Set(names.filter(isText).filter(name => !hidden.has(name)))]
    const named = (names: unknown) => (Array.isArray(names) ? kept(names).map(convert.name) : [])
    result[key] = mapValues(value, named, () => true, convert.name)
  }
}

/** Returns the names in either set. With more than some hundreds, returns only those of the first. */
function united(one: ReadonlySet<string>, other: ReadonlySet<string>): ReadonlySet<string> {
  if (other.size === 0 || one === other || one.size >= MOST_HIDDEN) return one
  return one.size === 0 ? other : new Set([...one, ...other])
}

/** Returns a canonical text: equal for equal JSON values, whatever the order of keys. */
export function comparable(value: unknown): string {
  return JSON.stringify(value, (_, each) => {
    if (typeof each === 'bigint') return String(each)
    if (!isObject(each)) return each
    return Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
  })
}

/** Converts a tuple: `additionalItems` is `items` since 2020-12. A list without `items` may contain anything. */
function finishTuple(schema: Schema, result: Schema): void {
  const { additionalItems } = result
  delete result.additionalItems
  if (Array.isArray(schema.items) && additionalItems !== undefined) result.items = additionalItems
  const isList = result.type === 'array' || (Array.isArray(result.type) && result.type.includes('array'))
  if (isList && result.items === undefined) result.items = {}
}

/** In OpenAPI 3.0 `exclusiveMinimum` is a flag next to the bound. */
function finishBounds(schema: Schema, result: Schema): void {
  for (const end of ['Minimum', 'Maximum']) {
    const bound = end.toLowerCase()
    if (schema[`exclusive${end}`] !== true || result[bound] === undefined) continue
    result[`exclusive${end}`] = result[bound]
    delete result[bound]
  }
}

/** Adds properties with `required: true`, and removes hidden ones. */
function finishRequired(schema: Schema, result: Schema, hidden: ReadonlySet<string>, { name }: Converters): void {
  const named = Array.isArray(result.required) ? result.required : []
  const flagged = Object.entries(isObject(schema.properties) ? schema.properties : {})
    .filter(([, property]) => isObject(property) && property.required === true)
    .map(([name]) => name)
  const names = new Set([...named, ...flagged].filter(name => !hidden.has(name)))
  if (names.size > 0) result.required = [...names].map(name)
  else if (named.length > 0) delete result.required
}

function nullable(schema: Schema): Schema {
  if (COMPOSITES.some(key => schema[key] !== undefined)) {
    const entries = Object.entries(schema)
    const outside = Object.fromEntries(entries.filter(([key]) => ANNOTATIONS.has(key)))
    const inside = Object.fromEntries(entries.filter(([key]) => !ANNOTATIONS.has(key)))
    return { ...outside, anyOf: [inside, { type: 'null' }] }
  }
  if (schema.type !== undefined) schema.type = [...new Set([schema.type, 'null'].flat())]
  if (Array.isArray(schema.enum) && !schema.enum.includes(null)) schema.enum = [...schema.enum, null]
  return schema
}

/** Adds the wire name as the title if the schema has none, because a name that ends with a hash is unclear. */
export function titled<Value>(schema: Value, name: string, wire: string): Value {
  return name !== wire && /_[0-9a-f]{8}$/.test(name) && isObject(schema) ? { title: wire, ...schema } : schema
}

function mapValues(
  map: Schema,
  convert: (value: unknown) => unknown,
  keeps: (key: string) => boolean,
  nameOf: (key: string) => string,
): Schema {
  return Object.fromEntries(
    Object.entries(map)
      .filter(([key]) => keeps(key))
      .map(([key, value]) => [nameOf(key), titled(convert(value), nameOf(key), key)]),
  )
}

/** Returns a schema as an object that members can be added to. */
export function asObject(schema: JsonSchema): Schema {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

function isFlag(value: unknown): boolean {
  return typeof value === 'boolean'
}

/** An integer beyond a double's precision may be a BigInt. */
function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || Number.isFinite(value)
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** True if the pattern compiles, with the Unicode flag that JSON Schema requires or without it. The pattern is not run. */
function isPattern(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > LONGEST_PATTERN_CHARACTERS) return false
  // More texts compile without the flag. Only patterns whose meaning it changes must compile with it.
  return parses(value, '') || (/\\[upP]|[\ud800-\udfff]/.test(value) && parses(value, 'u'))
}

function parses(pattern: string, flags: string): boolean {
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  }
}
