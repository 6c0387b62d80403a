import type { Findings } from './findings.js'
import { isObject, type References, type Schema } from './references.js'

/** What selects a schema: the property of a discriminator, and the values that it takes. */
export interface Selector {
  readonly property: string
  readonly value: Schema
}

/** The subtypes that `discriminator`s declare: by `oneOf` or `anyOf`, by a mapping, or by an `allOf` that refers to the parent. */
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

  /** True for a component whose `allOf` refers to other components, which then contribute only their own fields. */
  isChild(schema: Schema): boolean {
    return this.parents.has(schema)
  }

  /** True for a component whose `allOf` leads to the parent: a subtype. */
  isBelow(schema: Schema, parent: Schema): boolean {
    return nearest(this.children, parent).has(schema)
  }

  /** Returns the schemas that stand for a parent: those of its mapping, and components below it. Empty for other schemas. */
  alternativesOf(schema: Schema): Schema[] {
    if (propertyOf(schema) === undefined || Array.isArray(schema.oneOf ?? schema.anyOf)) return []
    return [...new Set([...this.mapping(schema).values(), ...nearest(this.children, schema)])].filter(isObject)
  }

  /** Returns the values of a mapping with the schemas that they name: by a component's name, or by a reference. */
  private mapping({ discriminator }: Schema): Map<string, Schema | undefined> {
    const { mapping }: Schema = isObject(discriminator) ? discriminator : {}
    const entries = Object.entries(isObject(mapping) ? mapping : {}).map(([value, ref]) => {
      const isName = typeof ref === 'string' && Object.hasOwn(this.schemas, ref)
      return [value, this.references.end(isName ? this.schemas[ref] : { $ref: ref })] as const
    })
    return new Map(entries)
  }

  /** Returns what selects a component for the nearest parents with a discriminator. */
  selectorsOf(schema: Schema): Selector[] {
    const above = [...nearest(this.parents, schema)].filter(each => propertyOf(each) !== undefined)
    return above.flatMap(parent => this.selectorOf(parent, schema) ?? [])
  }

  /** The values that select an alternative: mapped ones, else its name, as far as its property allows them; undefined if none is left. */
  selectorOf(parent: Schema, schema: Schema): Selector | undefined {
    const property = propertyOf(parent)
    const name = this.names.get(schema)
    const mapped = [...this.mapping(parent)].flatMap(([value, target]) => (target === schema ? [value] : []))
    const wanted = mapped.length > 0 || name === undefined ? mapped : [name]
    if (property === undefined) return undefined
    // A value from the subtype's own parent takes precedence over the union's.
    const own = mapped.length > 0 || this.isBelow(schema, parent) ? [] : this.selectorsOf(schema)
    const inherited = own.find(each => each.property === property)
    if (inherited !== undefined) return inherited
    const given = this.valuesIn(schema, property)
    const values = given === undefined ? wanted : given.filter(each => wanted.includes(String(each)))
    if (values.length === 0) return undefined
    return { property, value: values.length === 1 ? { const: values[0] } : { enum: values } }
  }

  /** Returns the values of a property that a schema, or a part of its `allOf`, lists. */
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

  /** Warns about alternatives that no model can select. */
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
      if (!isFixed && this.selectorOf(schema, each) === undefined)
        findings.warn('discriminator_unresolved.value', schema, branches ? [key, i] : at, property, this.nameOf(each))
    }
  }
}

function addTo(sets: Map<Schema, Set<Schema>>, key: Schema, value: Schema): void {
  const known = sets.get(key)
  if (known === undefined) sets.set(key, new Set([value]))
  else known.add(value)
}

/** Follows the links of a schema and returns what it reaches. It stops at schemas with a discriminator of their own. */
function nearest(links: Map<Schema, Set<Schema>>, schema: Schema): Set<Schema> {
  const found = new Set(links.get(schema))
  for (const each of found)
    if (propertyOf(each) === undefined) for (const next of links.get(each) ?? []) if (next !== schema) found.add(next)
  return found
}

/** True for a branch that can be an object and has no branches itself. */
function isOpen({ type = 'object', oneOf, anyOf }: Schema): boolean {
  return [type].flat().includes('object') && oneOf === undefined && anyOf === undefined
}

export function propertyOf({ discriminator }: Schema): string | undefined {
  const { propertyName: name }: Schema = isObject(discriminator) ? discriminator : {}
  return typeof name === 'string' ? name : undefined
}
