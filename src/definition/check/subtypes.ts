import { type Findings, quote } from './findings.js'
import { isObject, type References, type Schema } from './references.js'

/** Selects a subtype: the discriminator's property, and a schema for the property's value. */
export interface Selector {
  readonly property: string
  readonly value: Schema
}

/** The subtypes that a parent's `discriminator` distinguishes. The parent lists them in `oneOf`, `anyOf` or a mapping, or they extend the parent. */
export class Subtypes {
  private readonly names = new Map<object, string>()
  private readonly parents = new Map<Schema, Set<Schema>>()
  private readonly children = new Map<Schema, Set<Schema>>()
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
        addTo(this.parents, schema, parent)
        addTo(this.children, parent, schema)
      }
    }
  }

  nameOf(schema: object): string {
    return this.names.get(schema) ?? ''
  }

  /** True if the component extends another schema through `allOf`. */
  isChild(schema: Schema): boolean {
    return this.parents.has(schema)
  }

  /** True if the component extends the parent through `allOf`. */
  isBelow(schema: Schema, parent: Schema): boolean {
    return nearest(this.children, parent).has(schema)
  }

  /**
   * Returns the subtypes that can replace a parent: those in the parent's mapping and those that extend the parent. Returns none if
   * the parent has no discriminator, or has `oneOf` or `anyOf`.
   */
  alternativesOf(schema: Schema): Schema[] {
    if (propertyOf(schema) === undefined || Array.isArray(schema.oneOf ?? schema.anyOf)) return []
    return [...new Set([...this.mapping(schema).values(), ...nearest(this.children, schema)])].filter(isObject)
  }

  /** Returns the schema for each value in a parent's mapping; undefined for a broken reference. A mapping has component names or references. */
  private mapping({ discriminator }: Schema): Map<string, Schema | undefined> {
    const { mapping }: Schema = isObject(discriminator) ? discriminator : {}
    const entries = Object.entries(isObject(mapping) ? mapping : {}).map(([value, ref]) => {
      const isName = typeof ref === 'string' && Object.hasOwn(this.schemas, ref)
      return [value, this.references.end(isName ? this.schemas[ref] : { $ref: ref })] as const
    })
    return new Map(entries)
  }

  /** Returns the selectors that a component gets from its nearest parents with a discriminator. */
  selectorsOf(schema: Schema): Selector[] {
    return [...nearest(this.parents, schema)].flatMap(parent => this.selectorOf(parent, schema) ?? [])
  }

  /**
   * Returns the selector of a subtype. Its values are those in the parent's mapping or, if the mapping does not list the subtype, the component
   * name. Omits values that the subtype's schema does not allow. Returns undefined if the parent has no discriminator or no value is left.
   */
  selectorOf(parent: Schema, schema: Schema): Selector | undefined {
    const property = propertyOf(parent)
    const name = this.names.get(schema)
    const mapped = [...this.mapping(parent)].flatMap(([value, target]) => (target === schema ? [value] : []))
    const wanted = mapped.length > 0 || name === undefined ? mapped : [name]
    if (property === undefined) return undefined
    // If the parent lists the subtype in `oneOf` or `anyOf` only, the selector comes from the schema that the subtype extends.
    const own = mapped.length > 0 || this.isBelow(schema, parent) ? [] : this.selectorsOf(schema)
    const inherited = own.find(each => each.property === property)
    if (inherited !== undefined) return inherited
    const given = this.valuesIn(schema, property)
    const values = given === undefined ? wanted : given.filter(each => wanted.includes(String(each)))
    if (values.length === 0) return undefined
    return { property, value: values.length === 1 ? { const: values[0] } : { enum: values } }
  }

  /** Returns the values that `const` or `enum` allows for a property of a schema or its `allOf`; undefined if neither exists. */
  private valuesIn(schema: Schema, property: string): unknown[] | undefined {
    const parts = new Set([schema])
    for (const { properties, allOf } of parts) {
      const isOwn = isObject(properties) && Object.hasOwn(properties, property)
      const own = isOwn ? this.references.end(properties[property]) : undefined
      if (own?.const !== undefined) return [own.const]
      if (Array.isArray(own?.enum)) return own.enum
      for (const part of Array.isArray(allOf) ? allOf : []) {
        const end = this.references.end(part)
        if (end !== undefined) parts.add(end)
      }
    }
    return undefined
  }

  /** Warns about parts of a discriminator that cannot be resolved, and about subtypes that a model cannot select. */
  warnOf(schema: Schema, findings: Findings): void {
    const property = propertyOf(schema)
    const at = ['discriminator']
    const key = schema.oneOf === undefined ? 'anyOf' : 'oneOf'
    const list = schema[key]
    const branches = Array.isArray(list) ? list.map(each => this.references.end(each)) : undefined
    for (const [value, target] of this.mapping(schema))
      if (target === undefined || branches?.includes(target) === false)
        findings.warn('discriminator_unresolved.mapping', schema, [...at, 'mapping', value], value)
    if (property === undefined) findings.warn('discriminator_unresolved.property', schema, at)
    if (property === undefined) return
    const alternatives = branches ?? this.alternativesOf(schema)
    if (alternatives.length === 0 && !this.isChild(schema))
      findings.warn('discriminator_unresolved.subtypes', schema, at)
    for (const [i, each] of alternatives.entries()) {
      const isFixed = each === undefined || (branches && !isOpen(each)) || this.valuesIn(each, property)?.length === 1
      if (isFixed || this.selectorOf(schema, each) !== undefined) continue
      const name = this.nameOf(each) === '' ? 'an unnamed schema' : quote(this.nameOf(each))
      findings.warn('discriminator_unresolved.value', schema, branches ? [key, i] : at, property, name)
    }
  }
}

function addTo(sets: Map<Schema, Set<Schema>>, key: Schema, value: Schema): void {
  sets.set(key, (sets.get(key) ?? new Set()).add(value))
}

/** Returns all schemas that are reachable through `links`. Does not follow the links of schemas with a discriminator. */
function nearest(links: Map<Schema, Set<Schema>>, schema: Schema): Set<Schema> {
  const found = new Set(links.get(schema))
  for (const each of found)
    if (propertyOf(each) === undefined) for (const next of links.get(each) ?? []) if (next !== schema) found.add(next)
  return found
}

/** True if the schema can be an object and has no `oneOf` or `anyOf`. */
function isOpen({ type = 'object', oneOf, anyOf }: Schema): boolean {
  return [type].flat().includes('object') && oneOf === undefined && anyOf === undefined
}

export function propertyOf({ discriminator }: Schema): string | undefined {
  const { propertyName: name }: Schema = isObject(discriminator) ? discriminator : {}
  return typeof name === 'string' ? name : undefined
}
