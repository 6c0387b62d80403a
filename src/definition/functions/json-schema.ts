import type { Readings } from '../check/check.js'
import { fits, KEYS } from '../check/keys.js'
import { isObject } from '../check/references.js'
import { isSetByServer } from '../check/schemas.js'
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
  readonly value: Schema
  readonly context: Context
  converted?: ConvertedSchema
}

/** What the enclosing schemas of the same value say of a schema. */
interface Context {
  /** True inside the `allOf` of a subtype: only the schema's own fields count, not its subtypes and their values. */
  readonly isPart: boolean
  /** Fields that only the server sets. */
  readonly hidden: ReadonlySet<string>
}

const NO_NAMES: ReadonlySet<string> = new Set()
const ALONE: Context = { isPart: false, hidden: NO_NAMES }
const TYPES = new Set<unknown>(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'])
const COMPOSITES = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'const']
const LONGEST_PATTERN_CHARACTERS = 2000
const MOST_HOPS = 64
const MOST_HIDDEN = 500
/** Keywords that describe a value without limiting it. In OpenAPI 3.0 only these are kept next to a `$ref`. */
const ANNOTATIONS = new Set('title description default example examples deprecated readOnly writeOnly'.split(' '))

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
    const converted = this.convertTree(schema, ALONE, examples)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop())
      next.converted = this.convertTree(next.value, next.context)
    return converted
  }

  private convertTree(value: unknown, context: Context, examples: readonly unknown[] = []): ConvertedSchema {
    this.uses = new Set()
    this.renamed = new Map()
    const converted = this.convertOne(value, context)
    const schema =
      examples.length === 0 ? converted : { ...asObject(converted), examples: examples.map(each => this.data(each)) }
    return { schema, uses: this.uses, renamed: this.renamed }
  }

  private convertOne(schema: unknown, context: Context): JsonSchema {
    if (!isObject(schema)) return typeof schema === 'boolean' ? schema : {}
    const { subtypes, references, is30 } = this.readings
    const hidden = united(context.hidden, this.hiddenIn(schema, 0))
    const same: Context = { isPart: false, hidden }
    const alternatives = context.isPart ? [] : subtypes.alternativesOf(schema)
    const result: Schema = {}
    const ref = typeof schema.$ref === 'string' ? schema.$ref : undefined
    if (alternatives.length > 0) result.oneOf = alternatives.map(each => this.alternative(schema, each, same))
    else if (ref !== undefined) Object.assign(result, this.reference(ref, references.find(ref), { ...context, hidden }))
    const isAnnotated = alternatives.length > 0 || (ref !== undefined && is30)
    for (const key of Object.keys(schema))
      if (!isAnnotated || ANNOTATIONS.has(key)) this.convertKey(key, schema, result, context, same)
    if (alternatives.length === 0) {
      finishTuple(schema, result)
      finishBounds(schema, result)
      this.finishRequired(schema, result, hidden)
      if (isText(schema.pattern) && !isAnnotated && result.pattern === undefined) {
        // A pattern that JSON Schema does not take is described.
        const note = `Pattern: ${schema.pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
        result.description = isText(result.description) ? `${result.description}\n${note}` : note
      }
      const selectors = context.isPart ? [] : subtypes.selectorsOf(schema).map(each => this.selector(each))
      if (selectors.length > 0) result.allOf = [...(Array.isArray(result.allOf) ? result.allOf : []), ...selectors]
    }
    return schema.nullable === true ? nullable(result) : result
  }

  private convertKey(key: string, schema: Schema, result: Schema, { isPart }: Context, same: Context): void {
    const value = schema[key]
    const list = Array.isArray(value) && value.length > 0 ? value : undefined
    const inside = (each: unknown) => this.convertOne(each, ALONE)
    const beside = (each: unknown) => this.convertOne(each, same)
    switch (key) {
      case 'const':
      case 'default':
        result[key] = this.data(value)
        break
      case 'examples':
        if (Array.isArray(value)) result.examples = this.data(value)
        break
      case 'example':
        if (!Array.isArray(schema.examples)) result.examples = [this.data(value)]
        break
      case 'type': {
        const types = [...new Set([value].flat().filter(each => TYPES.has(each)))]
        if (types.length > 0) result.type = Array.isArray(value) ? types : types[0]
        break
      }
      case 'enum':
        if (list) result.enum = [...new Map(list.map(each => [comparable(each), this.data(each)])).values()]
        break
      case 'required':
        if (Array.isArray(value)) result.required = [...new Set(value.filter(isText))]
        break
      case 'pattern':
        if (isPattern(value)) result.pattern = value
        break
      case 'properties':
        if (isObject(value)) result.properties = this.mapValues(value, inside, name => !same.hidden.has(name))
        break
      case 'patternProperties':
        if (isObject(value))
          result[key] = Object.fromEntries(
            Object.entries(value)
              .filter(([name]) => isPattern(name))
              .map(([name, each]) => [name, inside(each)]),
          )
        break
      case 'dependentSchemas':
        if (isObject(value)) result[key] = this.mapValues(value, beside, () => true)
        break
      case 'dependentRequired': {
        const named = (names: unknown) =>
          Array.isArray(names)
            ? [...new Set(names.filter(isText).filter(name => !same.hidden.has(name)))].map(name => this.name(name))
            : []
        if (isObject(value)) result[key] = this.mapValues(value, named, () => true)
        break
      }
      case 'allOf': {
        // A component's own parents give their fields only, and so do several subtypes at once.
        const { subtypes, references } = this.readings
        const isMixed = () => (list ?? []).filter(each => subtypes.isSelected(references.end(each) ?? {})).length > 1
        const part = { isPart: isPart || subtypes.isChild(schema) || isMixed(), hidden: same.hidden }
        if (list) result.allOf = list.map(each => this.convertOne(each, part))
        break
      }
      case 'anyOf':
      case 'oneOf':
        // The branches of a parent contain the subtype that refers to it.
        if (list && !(isPart && schema.discriminator !== undefined))
          result[key] = list.map(each => this.branch(schema, each, same))
        break
      case 'prefixItems':
        if (list) result[key] = list.map(inside)
        break
      case 'items':
        if (list) result.prefixItems = list.map(inside)
        else if (!Array.isArray(value) && value !== null) result.items = inside(value)
        break
      default: {
        const form = KEYS.schema.get(key)
        if (form === undefined || form === 'any' || value === null || !fits(form, value)) break
        if (form === 'schema') result[key] = key === 'then' || key === 'else' ? beside(value) : inside(value)
        else if (key !== 'nullable' && (form !== 'bound' || typeof value !== 'boolean')) result[key] = value
      }
    }
  }

  /** Converts a branch of `oneOf` or `anyOf`, with the value that its discriminator gives it. */
  private branch(schema: Schema, branch: unknown, context: Context): JsonSchema {
    const { subtypes, references } = this.readings
    const end = schema.discriminator === undefined ? undefined : references.end(branch)
    const isUnion = end !== undefined && ((end.oneOf ?? end.anyOf) !== undefined || subtypes.keepsValue(schema, end))
    const selector =
      end && !isUnion && subtypes.alternativesOf(end).length === 0 ? subtypes.selectorOf(schema, end) : undefined
    if (selector?.properties === undefined) return this.convertOne(branch, context)
    // The value replaces one that the branch gets from a parent of its own.
    return { allOf: [this.convertOne(branch, { ...context, isPart: true }), this.selector(selector)] }
  }

  /** Converts one alternative of a parent. One that only the mapping names gets the parent's fields too. */
  private alternative(parent: Schema, schema: Schema, context: Context): JsonSchema {
    const { subtypes } = this.readings
    if (subtypes.isBelow(schema, parent)) return this.definition(subtypes.nameOf(schema), schema, context)
    const isSelf = schema === parent
    const own = subtypes.selectorOf(parent, schema)
    const selectors = [...(isSelf ? subtypes.selectorsOf(schema) : []), ...(own?.properties === undefined ? [] : [own])]
    const parts = [
      this.definition(subtypes.nameOf(parent), parent, { ...context, isPart: true }),
      ...(isSelf ? [] : [this.definition(subtypes.nameOf(schema), schema, context)]),
      ...selectors.map(each => this.selector(each)),
    ]
    return parts.length === 1 ? (parts[0] ?? {}) : { allOf: parts }
  }

  /** Returns a reference to the definition of a target. */
  private reference(ref: string, target: unknown, context: Context): JsonSchema {
    if (!isObject(target)) return typeof target === 'boolean' ? asObject(target) : {}
    return this.definition(decodedStep(ref), target, context)
  }

  private definition(name: string, value: Schema, { isPart, hidden }: Context): Schema {
    const own = this.hiddenIn(value, 0)
    const added = [...hidden].filter(each => !own.has(each)).sort()
    const { subtypes } = this.readings
    const isBare =
      isPart && (value.$ref !== undefined || value.discriminator !== undefined || subtypes.isSelected(value))
    const key = `${isBare}${added.length === 0 ? '' : JSON.stringify(added)}`
    const known = this.definitions.get(value) ?? new Map<string, Definition>()
    this.definitions.set(value, known)
    let definition = known.get(key)
    if (definition === undefined) {
      const context = { isPart: isBare, hidden: added.length === 0 ? NO_NAMES : hidden }
      definition = { name: this.newName(`${name}${isBare ? '_parent' : ''}`), value, context }
      known.set(key, definition)
      this.pending.push(definition)
    }
    this.uses.add(definition)
    return { $ref: `#/$defs/${definition.name}` }
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
  private hiddenIn(schema: Schema, hops: number): ReadonlySet<string> {
    const known = this.hidden.get(schema)
    if (known !== undefined || hops > MOST_HOPS) return known ?? NO_NAMES
    this.hidden.set(schema, NO_NAMES) // ends a cycle
    const { references } = this.readings
    let names: ReadonlySet<string> = NO_NAMES
    if (isObject(schema.properties)) {
      const own = Object.entries(schema.properties).filter(([, property]) => isSetByServer(property, references))
      if (own.length > 0) names = new Set(own.map(([name]) => name))
    }
    for (const part of Array.isArray(schema.allOf) ? schema.allOf : [])
      if (isObject(part)) names = united(names, this.hiddenIn(part, hops + 1))
    const target = schema.$ref === undefined ? undefined : references.find(schema.$ref)
    if (isObject(target)) names = united(names, this.hiddenIn(target, hops + 1))
    this.hidden.set(schema, names)
    return names
  }

  private name(wire: string): string {
    const name = this.safeNames.get(wire)
    if (name === undefined) return wire
    this.renamed.set(name, wire)
    return name
  }

  /** Returns a value with safe property names. */
  private data(value: unknown): unknown {
    if (this.safeNames.size === 0 || typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map(each => this.data(each))
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [this.name(key), this.data(each)]))
  }

  /** Converts a selector: a schema that fixes one property. */
  private selector(fixed: Schema): Schema {
    const [[property = '', value] = []] = Object.entries(fixed.properties as Schema) // `Subtypes` makes selectors of this shape
    const name = this.name(property)
    return { ...fixed, properties: { [name]: value }, required: [name] }
  }

  private mapValues(map: Schema, convert: (value: unknown) => unknown, keeps: (key: string) => boolean): Schema {
    const entries = Object.entries(map).filter(([key]) => keeps(key))
    return Object.fromEntries(
      entries.map(([key, value]) => [this.name(key), titled(convert(value), this.name(key), key)]),
    )
  }

  /** Adds properties with `required: true`, and removes hidden ones. */
  private finishRequired(schema: Schema, result: Schema, hidden: ReadonlySet<string>): void {
    const named = Array.isArray(result.required) ? result.required : []
    const flagged = Object.entries(isObject(schema.properties) ? schema.properties : {})
      .filter(([, property]) => isObject(property) && property.required === true)
      .map(([name]) => name)
    const names = new Set([...named, ...flagged].filter(name => !hidden.has(name)))
    if (names.size > 0) result.required = Array.from(names, name => this.name(name))
    else if (named.length > 0) delete result.required
  }
}

/** Returns the last step of a pointer as the key that it names. */
function decodedStep(ref: string): string {
  const step = ref
    .slice(ref.lastIndexOf('/') + 1)
    .replaceAll('~1', '/')
    .replaceAll('~0', '~')
  try {
    return decodeURIComponent(step)
  } catch {
    return step
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

/** Returns a schema as an object that members can be added to. */
export function asObject(schema: JsonSchema): Schema {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

/** True if the pattern compiles, with the Unicode flag that JSON Schema requires or without it. The pattern is not run. */
function isPattern(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > LONGEST_PATTERN_CHARACTERS) return false
  // More texts compile without the flag. Only patterns whose meaning it changes must compile with it.
  const needsFlag = /\\[upP]|[\ud800-\udfff]/.test(value)
  return (needsFlag ? ['', 'u'] : ['']).some(flags => {
    try {
      return Boolean(new RegExp(value, flags))
    } catch {
      return false
    }
  })
}
