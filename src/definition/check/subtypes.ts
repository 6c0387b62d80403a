import { type Loc, type Place, placeUnder, quote, show } from './findings.js'
import { isObject, isReference, type References, type Target } from './references.js'

type Schema = Record<string, unknown>

/** A parsed `discriminator`: the property that selects a subtype, and the values that its mapping gives to schemas. */
interface Discriminator {
  readonly owner: Schema
  readonly property: string
  readonly mapped: ReadonlyMap<object, { target: Target; values: string[] }>
  /** The schema of `defaultMapping` (OpenAPI 3.2): selected if the value is absent or selects no other schema. */
  readonly fallback: Target | undefined
  /** Broken references, with their path inside the discriminator. */
  readonly lost: readonly [at: Loc, ref: unknown][]
}

const MOST_SCHEMAS_SEARCHED = 100
const MOST_ANCESTORS = 64
const MOST_VALUES_NAMED = 5
const NO_DISCRIMINATORS: readonly Discriminator[] = []

/** Finds the subtypes that a document's discriminators declare: by `oneOf`, by a mapping, or by an `allOf` that refers to the parent. */
export class Subtypes {
  private readonly parents = new Map<object, object[]>()
  private readonly children = new Map<object, Target[]>()
  private readonly components = new Map<string, Target>()
  private readonly names = new Map<object, string>()
  private readonly above = new Map<object, readonly Discriminator[]>()
  private readonly discriminators = new Map<object, Discriminator | undefined>()

  constructor(
    private readonly references: References,
    document: Schema,
    root: Place,
  ) {
    const { schemas } = isObject(document.components) ? document.components : {}
    const up = placeUnder(placeUnder(root, 'components'), 'schemas')
    for (const [name, value] of Object.entries(isObject(schemas) ? schemas : {})) {
      if (!isObject(value)) continue
      const place = placeUnder(up, name)
      const base = typeof value.$id === 'string' ? value : undefined
      this.components.set(name, { value, place, kind: 'schema', base })
      if (!this.names.has(value) || typeof value.$ref !== 'string') this.names.set(value, name)
    }
    for (const target of this.components.values()) this.noteParents(target)
  }

  /** Returns the discriminator of this schema. */
  discriminatorOf(schema: Schema): Discriminator | undefined {
    if (schema.discriminator === undefined) return undefined
    if (!this.discriminators.has(schema)) this.discriminators.set(schema, this.read(schema))
    return this.discriminators.get(schema)
  }

  /** Returns the discriminators of all ancestors of this schema, the nearest first. */
  rootsOf(schema: object): readonly Discriminator[] {
    if (!this.parents.has(schema)) return NO_DISCRIMINATORS
    const known = this.above.get(schema)
    if (known !== undefined) return known
    const found: Discriminator[] = []
    const ancestors = new Set([schema])
    for (const at of ancestors) {
      for (const parent of this.parents.get(at) ?? []) {
        if (ancestors.size > MOST_ANCESTORS) break
        const discriminator = ancestors.has(parent) ? undefined : this.discriminatorOf(parent as Schema) // it contains only objects
        ancestors.add(parent)
        if (discriminator !== undefined) found.push(discriminator)
      }
    }
    this.above.set(schema, found)
    return found
  }

  /** True if this schema is a parent or a subtype in a discriminator's hierarchy. */
  has(schema: Schema): boolean {
    return this.rootsOf(schema).length > 0 || this.discriminatorOf(schema) !== undefined
  }

  /** Returns the component with this schema. */
  targetOf(schema: object): Target | undefined {
    const name = this.names.get(schema)
    return name === undefined ? undefined : this.components.get(name)
  }

  childrenOf(schema: object): readonly Target[] {
    return this.children.get(schema) ?? []
  }

  /** Returns the subtypes of a schema as alternatives for it, without those that its own `oneOf` or `anyOf` names. */
  offeredFor(schema: Schema): Target[] {
    const own = this.discriminatorOf(schema)
    if (own === undefined && this.rootsOf(schema).length === 0) return []
    if (own !== undefined && (schema.oneOf ?? schema.anyOf) !== undefined) return []
    const children = this.childrenOf(schema)
    const values = new Set([schema, ...children.map(each => each.value)])
    const mapped = [...(own?.mapped.values() ?? [])].map(each => each.target)
    if (own?.fallback !== undefined && !own.mapped.has(own.fallback.value as object)) mapped.push(own.fallback)
    const isBelow = (value: unknown) => own !== undefined && this.rootsOf(value as Schema).includes(own) // mapped values are objects
    return [...children, ...mapped.filter(({ value }) => !values.has(value) && !isBelow(value))]
  }

  /**
   * Returns a schema that fixes the value of each discriminator above a schema. If several use the same property, the one whose mapping
   * names the schema wins, else the nearest.
   */
  selectorsAbove(schema: Schema): Schema[] {
    const byProperty = new Map<string, Discriminator>()
    for (const each of this.rootsOf(schema)) {
      const known = byProperty.get(each.property)
      if (known === undefined || (!known.mapped.has(schema) && each.mapped.has(schema)))
        byProperty.set(each.property, each)
    }
    return [...byProperty.values()].flatMap<Schema>(each => this.selectorOf(each, schema) ?? [])
  }

  /**
   * Fixes the discriminator value of a `oneOf` branch. `instead`: it replaces the value inherited from a parent with the same property.
   * Undefined if no value is known, or if the branch or its subtypes fix the value themselves.
   */
  selectorIn(union: Discriminator, end: Schema): { selector: Schema; instead: boolean } | undefined {
    const instead = this.rootsOf(end).some(each => each.property === union.property && each.owner !== union.owner)
    if ((instead && !union.mapped.has(end) && end !== union.fallback?.value) || this.splitsBy(union.property, end))
      return undefined
    const selector = this.selectorOf(union, end)
    return selector && { selector, instead }
  }

  /** True if the alternatives of a schema are selected by this property. */
  private splitsBy(property: string, schema: Schema): boolean {
    const by = [this.discriminatorOf(schema), ...this.rootsOf(schema)]
    return by.some(each => each?.property === property) && this.offeredFor(schema).length > 0
  }

  /** Returns the property that would have to select several subtypes at once in an `allOf`. */
  mixedBy(schema: Schema, base: Schema | undefined): string | undefined {
    if (!Array.isArray(schema.allOf) || this.parents.size === 0 || this.has(schema)) return undefined
    const seen = new Set<Discriminator>()
    for (const part of schema.allOf.slice(0, MOST_SCHEMAS_SEARCHED)) {
      for (const root of this.rootsOf(this.endOf(part, base) ?? {})) {
        if (seen.has(root)) return root.property
        seen.add(root)
      }
    }
    return undefined
  }

  /** Fixes the discriminator value of a schema to its mapped values, else to the schema's own values or name; undefined if no value is known. */
  selectorOf(discriminator: Discriminator, schema: Schema): Schema | undefined {
    const { property, mapped, fallback } = discriminator
    if (schema === fallback?.value) return this.fallbackSelector(discriminator)
    const isUnion = this.discriminatorOf(schema)?.property === property && schema !== discriminator.owner
    if (isUnion && !mapped.has(schema) && !this.rootsOf(schema).includes(discriminator)) return undefined
    // If a nearer discriminator has another property, the mapping may also name the owner of that one.
    const between = this.rootsOf(schema).filter(
      each => each.property !== property && this.rootsOf(each.owner).includes(discriminator),
    )
    const values = mapped.has(schema)
      ? this.valuesOf(discriminator, schema)
      : [schema, ...between.map(each => each.owner)].flatMap(each => this.valuesOf(discriminator, each))
    const { allowed, type } = this.declared(schema, property)
    let chosen: unknown[] = values.map(each => asTyped(type, each))
    if (allowed !== undefined) {
      chosen = allowed.filter(each => values.includes(textOf(each)))
      const alike = values.map(each => each.toLowerCase())
      if (chosen.length === 0) chosen = allowed.filter(each => alike.includes(textOf(each).toLowerCase()))
      if (chosen.length === 0) chosen = allowed.length === 1 ? allowed : []
    }
    if (chosen.length === 0) return undefined
    const value = chosen.length === 1 ? { const: chosen[0] } : { enum: [...new Set(chosen)] }
    return { type: 'object', properties: Object.fromEntries([[property, value]]), required: [property] }
  }

  /** Returns the selector of the default schema: no value, or any value that selects no other schema. */
  private fallbackSelector({ owner, property, mapped, fallback, ...others }: Discriminator): Schema {
    const alone = { owner, property, mapped, ...others, fallback: undefined }
    const base = typeof owner.$id === 'string' ? owner : undefined
    const branches = [owner.oneOf ?? owner.anyOf ?? []].flat().flatMap(each => this.endOf(each, base) ?? [])
    const rivals = new Set<unknown>([...branches, ...mapped.keys(), ...this.childrenOf(owner).map(each => each.value)])
    rivals.delete(fallback?.value)
    const values = [...rivals].flatMap(each => {
      const { const: only, enum: some = [only] } = this.selectorValue(alone, each as Schema) // it contains only objects
      return some.filter(value => value !== undefined)
    })
    const value = values.length === 0 ? {} : { not: { enum: [...new Set(values)] } }
    return { type: 'object', properties: Object.fromEntries([[property, value]]) }
  }

  private valuesOf({ mapped }: Discriminator, schema: Schema): string[] {
    const vendor = schema['x-ms-discriminator-value']
    const name = typeof vendor === 'string' ? vendor : this.names.get(schema)
    return mapped.get(schema)?.values ?? (name === undefined ? [] : [name])
  }

  /** Warns about discriminator entries that cannot become alternatives, with their path in the schema and the effect for a model. */
  warnUnresolved(schema: Schema, base: Schema | undefined, warn: (msg: string, at: Loc) => void): void {
    if (schema.discriminator === undefined) return
    const discriminator = this.discriminatorOf(schema)
    if (discriminator === undefined) {
      warn('the discriminator names no property: the model does not see how they differ', ['discriminator'])
      return
    }
    const { property, mapped, lost } = discriminator
    for (const [at, ref] of lost) {
      const what = typeof ref === 'string' ? `${quote(ref)} is no schema of this document` : 'this is not a reference'
      const loss = at.length > 1 ? quote(String(at[1])) : 'other values'
      warn(`${what}: the model cannot choose ${loss}`, ['discriminator', ...at])
    }
    const key = Array.isArray(schema.oneOf) ? 'oneOf' : 'anyOf'
    const branches = schema[key]
    if (Array.isArray(branches)) {
      const ends = branches.map(each => this.endOf(each, base))
      for (const [i, end] of ends.entries()) {
        if (end !== undefined && end !== schema && mapped.has(end) && this.splitsBy(property, end)) {
          const own = (mapped.get(end)?.values ?? []).map(quote).join(', ')
          warn(`this alternative has subtypes by ${quote(property)} itself: the model cannot choose ${own}`, [key, i])
        } else if (end !== undefined && !this.isFixed(discriminator, end))
          warn(`nothing says which ${quote(property)} selects this alternative: the model may send any`, [key, i])
      }
      const offered = new Set<unknown>([...ends, schema])
      const msg = 'the mapping names a schema that is not an alternative: the model cannot choose it'
      for (const [value, { values }] of mapped)
        for (const name of offered.has(value) ? [] : values) warn(msg, ['discriminator', 'mapping', name])
      if (discriminator.fallback && !offered.has(discriminator.fallback.value))
        warn(msg, ['discriminator', 'defaultMapping'])
      return
    }
    const subtypes = this.offeredFor(schema)
    if (subtypes.length === 0 && !this.rootsOf(schema).some(each => each.property === property)) {
      const msg = `no schema of this document is a subtype by ${quote(property)}: the model sees only the fields of this schema`
      warn(msg, ['discriminator'])
    }
    const lostValues = this.valuesNotOffered(discriminator, schema, subtypes)
    if (lostValues.length > 0)
      warn(`no subtype is selected by ${lostValues.map(show).join(', ')}: the model cannot choose it`, [
        'discriminator',
      ])
    for (const { value } of subtypes) {
      if (this.isFixed(discriminator, value as Schema)) continue // a subtype's target is always an object
      const name = quote(this.names.get(value as Schema) ?? '')
      warn(`nothing says which ${quote(property)} selects ${name}: the model may send any`, ['discriminator'])
    }
  }

  /** Returns values, up to a limit, that a parent allows and no subtype has; none if a subtype has no known selector. */
  private valuesNotOffered(discriminator: Discriminator, schema: Schema, subtypes: readonly Target[]): unknown[] {
    const { allowed = [] } = this.declared(schema, discriminator.property)
    const below = new Set(subtypes.map(each => each.value as Schema)) // a subtype's target is always an object
    if (allowed.length === 0 || below.size === 0) return []
    const offered = new Set<unknown>(discriminator.mapped.get(schema)?.values)
    for (const each of below) {
      for (const child of this.childrenOf(each)) below.add(child.value as Schema)
      const { const: only, enum: some = [only] } = this.selectorValue(discriminator, each)
      if (below.size > MOST_SCHEMAS_SEARCHED || some[0] === undefined) return []
      for (const value of some) offered.add(value)
    }
    return allowed.filter(each => !offered.has(each)).slice(0, MOST_VALUES_NAMED)
  }

  private selectorValue(discriminator: Discriminator, schema: Schema): { const?: unknown; enum?: unknown[] } {
    const { properties } = this.selectorOf(discriminator, schema) ?? {}
    return isObject(properties) ? (properties[discriminator.property] as object) : {}
  }

  /** True if the discriminator of a `oneOf` branch has or can get a fixed value, or if the branch is not an object. */
  private isFixed(discriminator: Discriminator, schema: Schema): boolean {
    const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? 'object']
    if (!types.includes('object')) return true
    const isUnion = this.discriminatorOf(schema)?.property === discriminator.property
    return isUnion || this.selectorOf(discriminator, schema) !== undefined
  }

  /** Follows the references of a schema; undefined if they lead to none, which is reported elsewhere. */
  endOf(schema: unknown, base?: Schema): Schema | undefined {
    if (!isObject(schema)) return undefined
    const end = typeof schema.$ref === 'string' ? this.references.resolve(schema.$ref, base)?.value : schema
    return isObject(end) ? end : undefined
  }

  private noteParents(target: Target): void {
    const schema = target.value as Schema // it contains only objects
    const parts: unknown[] = Array.isArray(schema.allOf) ? schema.allOf : []
    const parents = new Set(parts.filter(isReference).flatMap<Schema>(part => this.endOf(part, target.base) ?? []))
    parents.delete(schema)
    if (parents.size > 0) this.parents.set(schema, [...parents])
    for (const parent of parents) {
      const known = this.children.get(parent)
      if (known === undefined) this.children.set(parent, [target])
      else known.push(target)
    }
  }

  private read(owner: Schema): Discriminator | undefined {
    const given = owner.discriminator
    const { propertyName, mapping, defaultMapping }: Schema = isObject(given) ? given : { propertyName: given }
    if (typeof propertyName !== 'string') return undefined
    const mapped = new Map<object, { target: Target; values: string[] }>()
    const lost: [Loc, unknown][] = []
    const base = typeof owner.$id === 'string' ? owner : undefined
    const targetOf = (at: Loc, ref: unknown) => {
      const target = typeof ref === 'string' ? this.mappedTo(ref, base) : undefined
      if (target !== undefined && isObject(target.value)) return target
      lost.push([at, ref])
      return undefined
    }
    for (const [value, ref] of Object.entries(isObject(mapping) ? mapping : {})) {
      const target = targetOf(['mapping', value], ref)
      if (target === undefined) continue
      const named = target.value as Schema // the search only matches objects
      const known = mapped.get(named)
      if (known === undefined) mapped.set(named, { target, values: [value] })
      else known.values.push(value)
    }
    const fallback = defaultMapping === undefined ? undefined : targetOf(['defaultMapping'], defaultMapping)
    return { owner, property: propertyName, mapped, fallback, lost }
  }

  /** Resolves the value of a mapping: the name of a component, or a reference. */
  private mappedTo(ref: string, base: Schema | undefined): Target | undefined {
    const named = this.components.get(ref)
    const next = isObject(named?.value) ? named.value.$ref : undefined
    return named !== undefined && typeof next !== 'string'
      ? named
      : this.references.resolve(typeof next === 'string' ? next : ref, base)
  }

  /** Returns the values that a schema, or one of its `allOf` parts, allows for a property, or else the property's type. */
  private declared(schema: Schema, property: string): { allowed?: unknown[]; type?: unknown } {
    let type: unknown
    const pending = [schema]
    for (const [i, at] of pending.entries()) {
      if (i >= MOST_SCHEMAS_SEARCHED) break
      const { properties, allOf } = at
      const own = isObject(properties) && Object.hasOwn(properties, property) ? this.endOf(properties[property]) : {}
      if (own?.const !== undefined) return { allowed: [own.const] }
      if (Array.isArray(own?.enum) && own.enum.length > 0) return { allowed: own.enum }
      type ??= own?.type
      if (Array.isArray(allOf)) pending.push(...allOf.slice(0, MOST_SCHEMAS_SEARCHED).filter(isObject))
      const end = typeof at.$ref === 'string' ? this.endOf(at) : undefined
      if (end !== undefined) pending.push(end)
    }
    return { type }
  }
}

/** Returns a value as the text that is its key in a mapping. */
function textOf(value: unknown): string {
  return typeof value === 'string' ? value : show(value)
}

/** Converts the key of a mapping to the type of the discriminator property. */
function asTyped(type: unknown, text: string): unknown {
  if (type === 'boolean') return text === 'true' || (text === 'false' ? false : text)
  const isNumber = (type === 'integer' || type === 'number') && text.trim() !== '' && Number.isFinite(Number(text))
  return isNumber ? Number(text) : text
}
