import type { Place } from '../check/findings.js'
import { isDangling, isObject, type References, type Target } from '../check/references.js'

type Schema = Record<string, unknown>

/** What a `discriminator` says: the property that selects a subtype, and the values of the schemas that its mapping names. */
interface Discriminator {
  readonly owner: Schema
  readonly property: string
  readonly mapped: ReadonlyMap<object, { target: Target; values: string[] }>
}

/** The schema that fixes the selector of one subtype, or undefined where nothing names its value. */
export type Selector = Schema | undefined

const MOST_HOPS = 64
const MOST_SCHEMAS_SEARCHED = 100

/** The subtypes that the discriminators of a document declare, by `oneOf`, by a mapping, or by an `allOf` that names the parent. */
export class Subtypes {
  private readonly children = new Map<object, Target[]>()
  private readonly components = new Map<string, Target>()
  private readonly names = new Map<object, string>()
  private readonly roots = new Map<object, Discriminator>()
  private readonly discriminators = new Map<object, Discriminator | undefined>()

  constructor(
    private readonly references: References,
    document: unknown,
  ) {
    const components = isObject(document) && isObject(document.components) ? document.components : {}
    const schemas = isObject(components.schemas) ? components.schemas : {}
    for (const [name, value] of Object.entries(schemas)) {
      if (!isObject(value)) continue
      const place: Place = { up: undefined, key: name }
      const base = typeof value.$id === 'string' ? value : undefined
      this.components.set(name, { value, place, kind: 'schema', base })
      if (!this.names.has(value) || typeof value.$ref !== 'string') this.names.set(value, name)
    }
    for (const target of this.components.values()) this.noteParents(target)
    for (const { value } of this.components.values()) this.noteDescendants(value as Schema) // only objects were noted
  }

  /** The discriminator that stands in this schema. */
  discriminatorOf(schema: Schema): Discriminator | undefined {
    if (schema.discriminator === undefined) return undefined
    if (!this.discriminators.has(schema)) this.discriminators.set(schema, this.read(schema))
    return this.discriminators.get(schema)
  }

  /** The discriminator of the nearest parent above this schema. */
  rootOf(schema: object): Discriminator | undefined {
    return this.roots.get(schema)
  }

  /** True if this schema is the parent or a subtype of others by a discriminator. */
  has(schema: Schema): boolean {
    return this.roots.has(schema) || this.discriminatorOf(schema) !== undefined
  }

  /** The component that this schema is. */
  targetOf(schema: object): Target | undefined {
    const name = this.names.get(schema)
    return name === undefined ? undefined : this.components.get(name)
  }

  childrenOf(schema: object): readonly Target[] {
    return this.children.get(schema) ?? []
  }

  /** Fixes the selector of a schema to its mapped values, or else to the values or the name that it has itself. */
  selectorOf({ property, mapped }: Discriminator, schema: Schema): Selector {
    const given = mapped.get(schema)?.values
    const vendor = schema['x-ms-discriminator-value']
    const name = typeof vendor === 'string' ? vendor : this.names.get(schema)
    const values = given ?? (name === undefined ? [] : [name])
    const allowed = this.allowedValues(schema, property)
    let chosen: unknown[] = values
    if (allowed !== undefined) {
      chosen = allowed.filter(each => values.includes(String(each)))
      const alike = values.map(each => each.toLowerCase())
      if (chosen.length === 0) chosen = allowed.filter(each => alike.includes(String(each).toLowerCase()))
      if (chosen.length === 0) chosen = allowed.length === 1 ? allowed : []
    }
    if (chosen.length === 0) return undefined
    const value = chosen.length === 1 ? { const: chosen[0] } : { enum: chosen }
    return { type: 'object', properties: Object.fromEntries([[property, value]]), required: [property] }
  }

  /** The schema at the end of a chain of references. */
  resolve(ref: string, base: Schema | undefined): Target | undefined {
    let target = this.references.find(ref, base)
    for (let hop = 0; hop < MOST_HOPS && !isDangling(target); hop++) {
      if (!isObject(target.value) || typeof target.value.$ref !== 'string') return target
      target = this.references.find(target.value.$ref, target.base)
    }
    return undefined
  }

  private noteParents(target: Target): void {
    const schema = target.value as Schema // only objects were noted
    for (const part of Array.isArray(schema.allOf) ? schema.allOf : []) {
      if (!isObject(part) || typeof part.$ref !== 'string') continue
      const parent = this.resolve(part.$ref, target.base)?.value
      if (!isObject(parent) || parent === schema) continue
      const known = this.children.get(parent)
      if (known === undefined) this.children.set(parent, [target])
      else if (known.at(-1) !== target) known.push(target)
    }
  }

  private noteDescendants(owner: Schema): void {
    const discriminator = this.discriminatorOf(owner)
    if (discriminator === undefined) return
    const pending: object[] = [owner]
    for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
      for (const { value } of this.childrenOf(at)) {
        const child = value as Schema // only objects were noted
        if (child === owner || this.roots.has(child)) continue
        this.roots.set(child, discriminator)
        if (child.discriminator === undefined) pending.push(child)
      }
    }
  }

  private read(owner: Schema): Discriminator | undefined {
    const given = owner.discriminator
    const { propertyName, mapping } = isObject(given) ? given : { propertyName: given, mapping: undefined }
    if (typeof propertyName !== 'string') return undefined
    const mapped = new Map<object, { target: Target; values: string[] }>()
    const base = typeof owner.$id === 'string' ? owner : undefined
    for (const [value, ref] of Object.entries(isObject(mapping) ? mapping : {})) {
      if (typeof ref !== 'string') continue
      const named = this.components.get(ref)
      const end = isObject(named?.value) && typeof named.value.$ref === 'string' ? named.value.$ref : ref
      const target = named !== undefined && end === ref ? named : this.resolve(end, base)
      if (!isObject(target?.value)) continue
      const known = mapped.get(target.value)
      if (known === undefined) mapped.set(target.value, { target, values: [value] })
      else known.values.push(value)
    }
    return { owner, property: propertyName, mapped }
  }

  /** The values to which a schema, or one that it is composed of, limits a property. */
  private allowedValues(schema: Schema, property: string): unknown[] | undefined {
    const pending: [Schema, Schema | undefined][] = [[schema, undefined]]
    for (let i = 0; i < pending.length && i < MOST_SCHEMAS_SEARCHED; i++) {
      const [at, base] = pending[i] as [Schema, Schema | undefined] // i is inside the list
      const properties = isObject(at.properties) ? at.properties : {}
      const own = Object.hasOwn(properties, property) ? properties[property] : undefined
      const limited = isObject(own) && typeof own.$ref === 'string' ? this.resolve(own.$ref, base)?.value : own
      if (isObject(limited)) {
        if (limited.const !== undefined) return [limited.const]
        if (Array.isArray(limited.enum) && limited.enum.length > 0) return limited.enum
      }
      const parts: unknown[] = Array.isArray(at.allOf) ? at.allOf.slice(0, MOST_SCHEMAS_SEARCHED) : []
      if (typeof at.$ref === 'string') parts.push(this.resolve(at.$ref, base)?.value)
      for (const part of parts) if (isObject(part)) pending.push([part, base])
    }
    return undefined
  }
}
