import type { Readings } from '../check/check.js'
import { fits, KEYS, TYPES } from '../check/keys.js'
import { isObject, type Schema } from '../check/references.js'
import { isSetByServer } from '../check/schemas.js'
import type { Selector } from '../check/subtypes.js'
import { safePropertyNames } from './names.js'

export type JsonSchema = Schema | boolean

/** A converted schema, the `$defs` that it uses, and the original names of renamed properties. */
export interface ConvertedSchema {
  readonly schema: JsonSchema
  readonly uses: ReadonlySet<Definition>
  readonly renamed: ReadonlyMap<string, string>
}

/** A referenced schema, which is converted after the schema that contains the reference. */
export interface Definition {
  readonly name: string
  readonly value: Schema
  /** True for a parent in the `allOf` of a subtype. The parent's subtypes are then omitted. */
  readonly isPart: boolean
  converted?: ConvertedSchema
}

const COMPOSITES = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'const']
const LONGEST_PATTERN_CHARACTERS = 2000
/** Keywords that only describe a value. OpenAPI 3.0 ignores all keywords next to a `$ref`, but the converter keeps these. */
const ANNOTATIONS = new Set('title description default example examples deprecated readOnly writeOnly'.split(' '))

/**
 * Converts the schemas of an OpenAPI document to JSON Schema 2020-12. Referenced schemas become `$defs`, `nullable` becomes the type "null", and a
 * discriminator becomes alternatives with fixed values. Omits `readOnly` properties. Renames properties whose names a model provider does not accept.
 */
export class SchemaConverter {
  private readonly wholes = new Map<Schema, Definition>()
  private readonly parts = new Map<Schema, Definition>()
  private readonly taken = new Map<string, number>()
  private readonly pending: Definition[] = []
  private readonly safeNames: ReadonlyMap<string, string>
  /** The `uses` and `renamed` of the schema that is being converted. */
  private uses = new Set<Definition>()
  private renamed = new Map<string, string>()

  constructor(private readonly readings: Readings) {
    this.safeNames = safePropertyNames(readings.document)
  }

  /** Converts a schema and all schemas that it refers to. Adds `examples`. Callers must not change the result, because results share objects. */
  convert(schema: unknown, examples: readonly unknown[] = []): ConvertedSchema {
    const converted = this.convertTree(schema, false, examples)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop())
      next.converted = this.convertTree(next.value, next.isPart)
    return converted
  }

  private convertTree(value: unknown, isPart: boolean, examples: readonly unknown[] = []): ConvertedSchema {
    this.uses = new Set()
    this.renamed = new Map()
    const converted = this.convertOne(value, isPart)
    const schema =
      examples.length === 0 ? converted : { ...asObject(converted), examples: examples.map(each => this.data(each)) }
    return { schema, uses: this.uses, renamed: this.renamed }
  }

  private convertOne(schema: unknown, isPart = false): JsonSchema {
    if (!isObject(schema)) return typeof schema === 'boolean' ? schema : {}
    const { subtypes, references, is30 } = this.readings
    const alternatives = isPart ? [] : subtypes.alternativesOf(schema)
    const selectors = isPart ? [] : subtypes.selectorsOf(schema)
    const result: Schema = {}
    const ref = typeof schema.$ref === 'string' ? schema.$ref : undefined
    if (alternatives.length > 0) result.oneOf = alternatives.map(each => this.alternative(schema, each))
    else if (ref !== undefined) Object.assign(result, this.reference(ref, references.find(ref), isPart))
    const isAnnotated = alternatives.length > 0 || (ref !== undefined && is30)
    for (const key of Object.keys(schema))
      if (!isAnnotated || ANNOTATIONS.has(key)) this.convertKey(key, schema, result, isPart)
    if (!isAnnotated) this.finish(schema, result)
    if (selectors.length > 0) result.allOf = [result.allOf ?? [], selectors.map(each => this.selector(each))].flat()
    return schema.nullable === true ? nullable(result) : result
  }

  private convertKey(key: string, schema: Schema, result: Schema, isPart: boolean): void {
    const value = schema[key]
    const list = Array.isArray(value) && value.length > 0 ? value : undefined
    const inside = (each: unknown) => this.convertOne(each)
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
      case 'pattern':
        if (isPattern(value)) result.pattern = value
        break
      case 'properties':
      case 'dependentSchemas':
        if (isObject(value)) {
          const isKept = (each: unknown) => key !== 'properties' || !isSetByServer(each, this.readings.references)
          const kept = Object.entries(value).filter(([, each]) => isKept(each))
          result[key] = this.mapValues(Object.fromEntries(kept), inside)
        }
        break
      case 'patternProperties':
        if (isObject(value)) {
          const kept = Object.entries(value).filter(([pattern]) => isPattern(pattern))
          result[key] = Object.fromEntries(kept.map(([pattern, each]) => [pattern, inside(each)]))
        }
        break
      case 'dependentRequired':
        if (isObject(value)) result[key] = this.mapValues(value, names => this.namesOf(names))
        break
      case 'allOf': {
        // `isInside` omits subtypes, because each parent in the `allOf` would offer all its subtypes again.
        const { subtypes, references } = this.readings
        const selected = (list ?? []).filter(each => subtypes.selectorsOf(references.end(each) ?? {}).length > 0)
        const isInside = isPart || subtypes.isChild(schema) || selected.length > 1
        if (list) result.allOf = list.map(each => this.convertOne(each, isInside))
        break
      }
      case 'anyOf':
      case 'oneOf':
        // Inside a subtype, the parent's branches are omitted, because the subtype itself is one of these branches.
        if (list && !(isPart && schema.discriminator !== undefined))
          result[key] = list.map(each => this.branch(schema, each))
        break
      case 'prefixItems':
        if (list) result[key] = list.map(inside)
        break
      default: {
        const form = KEYS.schema.get(key)
        if (form === undefined || form === 'any' || value === null || !fits(form, value)) break
        if (form === 'names') result.required = []
        else if (form === 'schema') result[key] = inside(value)
        else if (key !== 'nullable' && (form !== 'bound' || typeof value !== 'boolean')) result[key] = value
      }
    }
  }

  /** Converts `required` and the bounds. Moves an invalid pattern to the description. */
  private finish(schema: Schema, result: Schema): void {
    const properties = isObject(schema.properties) ? schema.properties : {}
    const isHidden = (name: string) => isSetByServer(properties[name], this.readings.references)
    const required = this.namesOf(listOf(schema.required).filter(name => !isHidden(name)))
    if (required.length > 0) result.required = required
    else delete result.required
    if ([result.type].flat().includes('array') && result.items === undefined) result.items = {}
    // In OpenAPI 3.0, `exclusiveMinimum` is a boolean that applies to `minimum`.
    for (const [bound, exclusive] of [
      ['minimum', 'exclusiveMinimum'],
      ['maximum', 'exclusiveMaximum'],
    ] as const) {
      if (schema[exclusive] !== true || result[bound] === undefined) continue
      result[exclusive] = result[bound]
      delete result[bound]
    }
    if (typeof schema.pattern === 'string' && result.pattern === undefined) {
      const note = `Pattern: ${schema.pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
      result.description = typeof result.description === 'string' ? `${result.description}\n${note}` : note
    }
  }

  /** Converts a branch of `oneOf` or `anyOf`, and adds the branch's discriminator value. */
  private branch(schema: Schema, branch: unknown): JsonSchema {
    const { subtypes, references } = this.readings
    const end = schema.discriminator === undefined ? undefined : references.end(branch)
    const isUnion = end && ((end.oneOf ?? end.anyOf) !== undefined || subtypes.alternativesOf(end).length > 0)
    const selector = end && !isUnion ? subtypes.selectorOf(schema, end) : undefined
    if (selector === undefined) return this.convertOne(branch)
    // This selector replaces the selector from the branch's own parent.
    return { allOf: [this.convertOne(branch, true), this.selector(selector)] }
  }

  /** Converts one subtype of a parent. Adds the parent's properties if the subtype does not extend the parent with `allOf`. */
  private alternative(parent: Schema, schema: Schema): JsonSchema {
    const { subtypes } = this.readings
    if (subtypes.isBelow(schema, parent)) return this.definition(schema, false)
    const selector = subtypes.selectorOf(parent, schema)
    const parts = [this.definition(parent, true), ...(schema === parent ? [] : [this.definition(schema, false)])]
    return { allOf: [...parts, ...(selector ? [this.selector(selector)] : [])] }
  }

  private reference(ref: string, target: unknown, isPart: boolean): JsonSchema {
    if (!isObject(target)) return typeof target === 'boolean' ? asObject(target) : {}
    return this.definition(target, isPart, ref.slice(ref.lastIndexOf('/') + 1))
  }

  /** Returns a `$ref` to the schema's entry in `$defs`. `named` is the entry's name if the schema is not a component. */
  private definition(value: Schema, isPart: boolean, named = ''): Schema {
    const { subtypes } = this.readings
    const isParent = value.discriminator !== undefined || subtypes.selectorsOf(value).length > 0
    const known = isPart && (isParent || value.$ref !== undefined) ? this.parts : this.wholes
    let definition = known.get(value)
    if (definition === undefined) {
      const name = subtypes.nameOf(value) || named
      const isBare = known === this.parts
      definition = { name: this.newName(isBare ? `${name}_parent` : name), value, isPart: isBare }
      known.set(value, definition)
      this.pending.push(definition)
    }
    this.uses.add(definition)
    return { $ref: `#/$defs/${definition.name}` }
  }

  private newName(key: string): string {
    const written = key.replace(/[^A-Za-z0-9._-]/g, '_')
    const plain = written === '' || written === '__proto__' ? '_' : written
    // Starts after the last used number, so that many schemas with the same name do not take quadratic time.
    let number = (this.taken.get(plain) ?? 0) + 1
    while (number > 1 && this.taken.has(`${plain}_${number}`)) number++
    this.taken.set(plain, number)
    if (number === 1) return plain
    this.taken.set(`${plain}_${number}`, 1)
    return `${plain}_${number}`
  }

  private name(wire: string): string {
    const name = this.safeNames.get(wire)
    if (name !== undefined) this.renamed.set(name, wire)
    return name ?? wire
  }

  private namesOf(names: unknown): string[] {
    return [...new Set(listOf(names))].map(name => this.name(name))
  }

  private data(value: unknown): unknown {
    if (this.safeNames.size === 0 || typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map(each => this.data(each))
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [this.name(key), this.data(each)]))
  }

  private selector({ property, value }: Selector): Schema {
    const name = this.name(property)
    return { type: 'object', properties: { [name]: value }, required: [name] }
  }

  private mapValues(map: Schema, convert: (value: unknown) => unknown): Schema {
    return Object.fromEntries(
      Object.entries(map).map(([key, value]) => [this.name(key), titled(convert(value), this.name(key), key)]),
    )
  }
}

function listOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter(each => typeof each === 'string') : []
}

/** Returns a JSON text of the value that does not depend on the order of keys. */
export function comparable(value: unknown): string {
  return JSON.stringify(value, (_, each) => {
    if (!isObject(each)) return each
    return Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
  })
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

/** Adds the original name as a title if the safe name ends with a hash and the schema has no title. */
export function titled<Value>(schema: Value, name: string, wire: string): Value {
  return name !== wire && /_[0-9a-f]{8}$/.test(name) && isObject(schema) ? { title: wire, ...schema } : schema
}

/** Returns a schema as an object: `{}` for `true` and `{ not: {} }` for `false`. */
export function asObject(schema: JsonSchema): Schema {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

/** True for a valid pattern. The pattern is never run. The flag `u` is set only if needed, because more patterns are valid without this flag. */
function isPattern(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > LONGEST_PATTERN_CHARACTERS) return false
  try {
    return Boolean(new RegExp(value, /\\[upP]|[\ud800-\udfff]/.test(value) ? 'u' : ''))
  } catch {
    return false
  }
}
