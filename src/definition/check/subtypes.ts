import type { Findings } from './findings.js'
import { isObject, type References, type Schema } from './references.js'

/** How a schema is selected: the discriminator's property, and a schema of the values that select it. */
export interface Selector {
  readonly property: string
  readonly value: Schema
}

/** The subtypes declared by `discriminator`s: through `oneOf` or `anyOf`, through a mapping, or through an `allOf` that refers to the parent. */
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

  /** True if the component's `allOf` refers to other components. These then contribute only their own fields. */
  isChild(schema: Schema): boolean {
    return this.parents.has(schema)
  }

  /** True if the component is a subtype of the parent, through `allOf`. */
  isBelow(schema: Schema, parent: Schema): boolean {
    return nearest(this.children, parent).has(schema)
  }

  /** The subtypes that can replace a parent: those in its mapping, and components that extend it. Empty without a discriminator, or with `oneOf` or `anyOf`. */
  alternativesOf(schema: Schema): Schema[] {
    if (propertyOf(schema) === undefined || Array.isArray(schema.oneOf ?? schema.anyOf)) return []
    return [...new Set([...this.mapping(schema).values(), ...nearest(this.children, schema)])].filter(isObject)
  }

  /** The values of a mapping with their schemas, which the mapping names by component name or by reference. */
  private mapping({ discriminator }: Schema): Map<string, Schema | undefined> {
    const { mapping }: Schema = isObject(discriminator) ? discriminator : {}
    const entries = Object.entries(isObject(mapping) ? mapping : {}).map(([value, ref]) => {
      const isName = typeof ref === 'string' && Object.hasOwn(this.schemas, ref)
      return [value, this.references.end(isName ? this.schemas[ref] : { $ref: ref })] as const
    })
    return new Map(entries)
  }

  /** The selectors of a component for the nearest parents that have a discriminator. */
  selectorsOf(schema: Schema): Selector[] {
    return [...nearest(this.parents, schema)].flatMap(parent => this.selectorOf(parent, schema) ?? [])
  }

  /** The selector of an alternative: its mapped values, or else its name, limited to values that the property allows; undefined if none remain. */
  selectorOf(parent: Schema, schema: Schema): Selector | undefined {
    const property = propertyOf(parent)
    const name = this.names.get(schema)
    const mapped = [...this.mapping(parent)].flatMap(([value, target]) => (target === schema ? [value] : []))
    const wanted = mapped.length > 0 || name === undefined ? mapped : [name]
    if (property === undefined) return undefined
    // The selector of the subtype's own parent takes precedence over that of the union.
    const own = mapped.length > 0 || this.isBelow(schema, parent) ? [] : this.selectorsOf(schema)
    const inherited = own.find(each => each.property === property)
    if (inherited !== undefined) return inherited
    const given = this.valuesIn(schema, property)
    const values = given === undefined ? wanted : given.filter(each => wanted.includes(String(each)))
    if (values.length === 0) return undefined
    return { property, value: values.length === 1 ? { const: values[0] } : { enum: values } }
  }

  /** The values that a schema, or a part of its `allOf`, lists for a property. */
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

  /** Warns about alternatives that a model cannot select. */
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
  sets.set(key, (sets.get(key) ?? new Set()).add(value))
}

/** Returns the schemas that can be reached through links. Does not go beyond schemas with their own discriminator. */
function nearest(links: Map<Schema, Set<Schema>>, schema: Schema): Set<Schema> {
  const found = new Set(links.get(schema))
  for (const each of found)
    if (propertyOf(each) === undefined) for (const next of links.get(each) ?? []) if (next !== schema) found.add(next)
  return found
}

/** True if a branch can be an object and has no branches of its own. */
function isOpen({ type = 'object', oneOf, anyOf }: Schema): boolean {
  return [type].flat().includes('object') && oneOf === undefined && anyOf === undefined
}

export function propertyOf({ discriminator }: Schema): string | undefined {
  const { propertyName: name }: Schema = isObject(discriminator) ? discriminator : {}
  return typeof name === 'string' ? name : undefined
}
