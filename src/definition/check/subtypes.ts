import type { Findings } from './findings.js'
import { isObject, type References } from './references.js'

type Schema = Record<string, unknown>

/** The values that select a schema, as a schema of its own. */
export type Selector = Schema

/** The subtypes that `discriminator`s declare: by `oneOf` or `anyOf`, by a mapping, or by an `allOf` that refers to the parent. */
export class Subtypes {
  private readonly names = new Map<object, string>()
  private readonly parents = new Map<object, Set<Schema>>()
  private readonly children = new Map<object, Schema[]>()
  private readonly mappings = new Map<object, Map<Schema, string[]>>()
  private readonly schemas: Schema

  constructor(
    private readonly references: References,
    document: Schema,
  ) {
    const { schemas } = isObject(document.components) ? document.components : {}
    this.schemas = isObject(schemas) ? schemas : {}
    for (const [name, schema] of Object.entries(this.schemas)) {
      if (!isObject(schema) || schema.$ref !== undefined) continue
      this.names.set(schema, name)
      for (const part of Array.isArray(schema.allOf) ? schema.allOf : []) {
        const parent = isObject(part) && part.$ref !== undefined ? references.end(part) : undefined
        if (parent === undefined || parent === schema) continue
        this.parents.set(schema, (this.parents.get(schema) ?? new Set()).add(parent))
        const siblings = this.children.get(parent)
        if (siblings === undefined) this.children.set(parent, [schema])
        else if (siblings.at(-1) !== schema) siblings.push(schema)
      }
    }
  }

  nameOf(schema: object): string {
    return this.names.get(schema) ?? ''
  }

  /** True for a component whose `allOf` refers to others: there they give their own fields only. */
  isChild(schema: object): boolean {
    return this.parents.has(schema)
  }

  /** Returns the schemas that stand for a parent: those of its mapping, and components below it. Empty for other schemas. */
  alternativesOf(schema: Schema): Schema[] {
    const property = propertyOf(schema)
    if (property === undefined || Array.isArray(schema.oneOf ?? schema.anyOf)) return []
    return [...new Set([...this.mapped(schema).keys(), ...this.below(schema)])]
  }

  /** True for a component that leads to a parent by its `allOf`. */
  isBelow(schema: Schema, parent: Schema): boolean {
    return this.below(parent).has(schema)
  }

  /** Returns the components below a parent; those below one with a discriminator of its own are that one's alternatives. */
  private below(schema: Schema): Set<Schema> {
    const found = new Set(this.children.get(schema))
    for (const each of found)
      if (propertyOf(each) === undefined)
        for (const child of this.children.get(each) ?? []) if (child !== schema) found.add(child)
    return found
  }

  /** Returns the values that the mapping of a discriminator gives to each schema. */
  private mapped(schema: Schema): Map<Schema, string[]> {
    const known = this.mappings.get(schema)
    if (known !== undefined) return known
    const mapped = new Map<Schema, string[]>()
    this.mappings.set(schema, mapped)
    const { discriminator } = schema
    const { mapping }: Schema = isObject(discriminator) ? discriminator : {}
    for (const [value, ref] of Object.entries(isObject(mapping) ? mapping : {})) {
      const target = this.named(ref)
      if (target !== undefined) mapped.set(target, [...(mapped.get(target) ?? []), value])
    }
    return mapped
  }

  /** Returns the schema that a value of a mapping names: by a component's name, or by a reference. */
  private named(ref: unknown): Schema | undefined {
    const isName = typeof ref === 'string' && Object.hasOwn(this.schemas, ref)
    return this.references.end(isName ? this.schemas[ref] : { $ref: ref })
  }

  /** True for a component with a discriminator above it. */
  isSelected(schema: Schema): boolean {
    return this.above(schema).length > 0
  }

  /** Returns the schemas with a discriminator above a component, those that map it first, then the nearest. */
  private above(schema: Schema): Schema[] {
    const found = new Set(this.parents.get(schema))
    for (const each of found) for (const parent of this.parents.get(each) ?? []) found.add(parent)
    const parents = [...found].filter(each => propertyOf(each) !== undefined && each !== schema)
    return [...parents.filter(each => this.maps(each, schema)), ...parents]
  }

  /** Returns what fixes the values of all discriminators above a component. One that has another discriminator between keeps its value. */
  selectorsOf(schema: Schema): Selector[] {
    const above = this.above(schema)
    const selectors = new Map<unknown, Selector>()
    for (const parent of above) {
      const property = propertyOf(parent)
      const between = above.find(each => propertyOf(each) !== property && this.isBelow(each, parent))
      const selector = this.selectorOf(parent, this.maps(parent, schema) ? schema : (between ?? schema))
      if (!selectors.has(property) && selector?.properties !== undefined) selectors.set(property, selector)
    }
    return [...selectors.values()]
  }

  /** True if the mapping of a discriminator names a schema. */
  maps(parent: Schema, schema: Schema): boolean {
    return this.mapped(parent).has(schema)
  }

  /** True if a schema gets its value of this union's property from a parent of its own. */
  keepsValue(union: Schema, schema: Schema): boolean {
    return !this.maps(union, schema) && this.above(schema).some(each => propertyOf(each) === propertyOf(union))
  }

  /**
   * Returns what fixes the value of a parent's discriminator for one alternative: its values in the mapping, else its name. `{}` if the
   * alternative fixes the value itself; undefined if no value is known.
   */
  selectorOf(parent: Schema, schema: Schema): Selector | undefined {
    const property = propertyOf(parent)
    if (property === undefined) return undefined
    const vendor = schema['x-ms-discriminator-value'] ?? this.names.get(schema)
    const values: unknown[] = this.mapped(parent).get(schema) ?? (vendor === undefined ? [] : [vendor])
    const own = this.declared(schema, property)
    const given = own?.const === undefined ? own?.enum : [own.const]
    const chosen = Array.isArray(given)
      ? given.filter(each => values.some(value => textOf(value) === textOf(each)))
      : values.map(each => typed(own?.type, each))
    if (chosen.length === 0) return Array.isArray(given) && given.length === 1 ? {} : undefined
    const value = chosen.length === 1 ? { const: chosen[0] } : { enum: chosen }
    return { type: 'object', properties: { [property]: value }, required: [property] }
  }

  /** Returns the schema of a property that a schema, or a part of its `allOf`, declares with values, or else with a type. */
  private declared(schema: Schema, property: string): Schema | undefined {
    const parts = new Set([schema])
    let found: Schema | undefined
    for (const part of parts) {
      const { properties, allOf } = part
      const own =
        isObject(properties) && Object.hasOwn(properties, property)
          ? this.references.end(properties[property])
          : undefined
      if (own?.const !== undefined || Array.isArray(own?.enum)) return own
      found ??= own
      for (const each of Array.isArray(allOf) ? allOf : []) {
        const end = this.references.end(each)
        if (end !== undefined) parts.add(end)
      }
    }
    return found
  }

  /** Warns of what a discriminator declares and no model can choose. */
  warnOf(schema: Schema, findings: Findings): void {
    const property = propertyOf(schema)
    const at = ['discriminator']
    if (property === undefined) findings.warn('discriminator_unresolved.property', schema, at)
    const { mapping }: Schema = isObject(schema.discriminator) ? schema.discriminator : {}
    const key = schema.oneOf === undefined ? 'anyOf' : 'oneOf'
    const branches = schema[key]
    const ends = Array.isArray(branches) ? branches.map(each => this.references.end(each)) : undefined
    for (const [value, ref] of Object.entries(isObject(mapping) ? mapping : {})) {
      const target = this.named(ref)
      if (target === undefined || ends?.includes(target) === false)
        findings.warn('discriminator_unresolved.mapping', schema, [...at, 'mapping', value], value)
    }
    if (property === undefined) return
    const alternatives = ends ?? this.alternativesOf(schema)
    if (alternatives.length === 0 && !this.isChild(schema))
      findings.warn('discriminator_unresolved.subtypes', schema, at)
    for (const [i, each] of alternatives.entries())
      if (each !== undefined && (!ends || isOpen(each)) && this.selectorOf(schema, each) === undefined)
        findings.warn('discriminator_unresolved.value', schema, ends ? [key, i] : at, property, this.nameOf(each))
  }
}

/** True for a branch that can be an object and has no branches itself. */
function isOpen({ type = 'object', oneOf, anyOf }: Schema): boolean {
  return [type].flat().includes('object') && oneOf === undefined && anyOf === undefined
}

/** Returns the property of a discriminator, which Swagger 2.0 gives as a text. */
function propertyOf({ discriminator }: Schema): string | undefined {
  const name = isObject(discriminator) ? discriminator.propertyName : discriminator
  return typeof name === 'string' ? name : undefined
}

/** Returns a value as the key of a mapping, whatever its case. */
function textOf(value: unknown): string | undefined {
  return typeof value === 'object' ? undefined : String(value).toLowerCase()
}

/** Converts a value of a mapping to the type of the property. */
function typed(type: unknown, value: unknown): unknown {
  if (type === 'boolean') return value === 'true' || (value === 'false' ? false : value)
  return (type === 'integer' || type === 'number') && typeof value === 'string' && Number.isFinite(Number(value))
    ? Number(value)
    : value
}
