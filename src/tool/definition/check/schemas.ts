import { type Findings, type Place, placeUnder, quote } from './findings.js'
import { isReference, type MisplacedReferences } from './misplaced.js'
import { isDangling, isObject, messageOf, type References, type Target } from './references.js'
import { warnUnknownType } from './schema-types.js'
import type { Subtypes } from './subtypes.js'

/** What the value of a schema keyword holds. Keywords that are not listed hold no schema: their content is never read. */
const KEYWORD_SHAPES = new Map<string, 'schema' | 'list' | 'map' | 'schema-or-list'>([
  ['properties', 'map'],
  ['patternProperties', 'map'],
  ['dependentSchemas', 'map'],
  ['items', 'schema-or-list'],
  ['prefixItems', 'list'],
  ['allOf', 'list'],
  ['anyOf', 'list'],
  ['oneOf', 'list'],
  ['not', 'schema'],
  ['if', 'schema'],
  ['then', 'schema'],
  ['else', 'schema'],
  ['additionalProperties', 'schema'],
  ['additionalItems', 'schema'],
  ['unevaluatedProperties', 'schema'],
  ['unevaluatedItems', 'schema'],
  ['contains', 'schema'],
  ['propertyNames', 'schema'],
  ['contentSchema', 'schema'],
])

/** Keywords that hold neither a schema nor data. */
const PLAIN_KEYWORDS = new Set([
  'type',
  'format',
  'title',
  'description',
  'required',
  'enum',
  'pattern',
  'minimum',
  'maximum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'nullable',
  'readOnly',
  'writeOnly',
  'deprecated',
  'discriminator',
  'externalDocs',
  'xml',
])

/** Parts of one `allOf` that are compared, and names that each requires. */
const MEMBERS_COMPARED = 50
const NAMES_COMPARED = 200

/** One schema, list of schemas or map of schemas whose members are being visited. */
interface Frame {
  readonly node: Record<string, unknown> | unknown[]
  /** For a schema only its keywords that hold schemas; undefined for a list. */
  readonly keys: string[] | undefined
  readonly isSchema: boolean
  /** True for the members of an `allOf`: of a parent among them no subtypes are offered. */
  readonly isParts: boolean
  readonly place: Place
  readonly base: Record<string, unknown> | undefined
  next: number
}

/**
 * Visits every schema that can become part of a tool's input, following references, each schema once, in document order,
 * without recursion; can stop after any number of schemas and go on later.
 *
 * It looks for one thing: references that lead nowhere useful (`ref_unresolved`, `ref_external`, `ref_target_type`,
 * `ref_cycle` for more hops than allowed), at the place of the wrong `$ref`. Circular schemas are legal. A `$ref` counts only
 * where a schema stands: one inside `example`, `examples`, `default`, `enum`, `const`, `discriminator`, an extension or as the
 * name of a property is not a reference. Schemas under `$defs` count when something refers to them.
 * Beside a `$ref`, 3.0 ignores everything; from 3.1 on its neighbours are part of the schema and are visited too.
 * `$dynamicRef` is followed like `$ref` to where it leads at first.
 *
 * A malformed schema (a string where a schema belongs) is not a fault: it constrains nothing, becomes "any value" and is the
 * warning `schema_ignored`.
 */
export class SchemaWalk {
  private readonly seen = new Set<object>()
  /** Schemas whose subtypes are visited. */
  private readonly offered = new Set<object>()
  /**
   * A schema in its own place is met once. Only what a reference leads to can be met again, so that alone is remembered, until a
   * reference leads into the middle of some schema: from then on everything is.
   */
  private remembersAll = false
  private readonly stack: Frame[] = []

  constructor(
    private readonly references: References,
    private readonly subtypes: Subtypes,
    private readonly misplaced: MisplacedReferences,
    private readonly siblingsCount: boolean,
    private readonly hops: number,
  ) {}

  /** Begins with the schema that `key` holds in the object at `up`; `step` visits what is inside it. */
  enter(
    value: unknown,
    up: Place,
    key: string | number,
    findings: Findings,
    base?: Record<string, unknown>,
    isPart = false,
  ): void {
    if (!isObject(value)) {
      if (typeof value !== 'boolean') this.reportIgnored(up, key, findings)
      return
    }
    if (this.remembersAll) {
      if (this.seen.has(value)) return
      this.seen.add(value)
    }
    this.scan(value, up, key, findings, typeof value.$id === 'string' ? value : base, isPart)
  }

  /** Visits everything that is inside the schemas that were entered. */
  run(findings: Findings): void {
    const { stack } = this
    while (stack.length > 0) {
      // The loop's condition says that there is one.
      const frame = stack.at(-1) as Frame
      const { node, keys, base, place } = frame
      const key = keys === undefined ? frame.next : (keys[frame.next] as string)
      frame.next++
      // Nobody comes back to it: references that each lead on by their last member are no deep stack.
      if (frame.next >= (keys ?? (node as unknown[])).length) stack.pop()
      const value = (node as Record<string | number, unknown>)[key]
      if (frame.isSchema) this.visitKeyword(key as string, value, place, findings, base)
      else this.enter(value, place, key, findings, base, frame.isParts)
    }
  }

  /** Looks at one schema's own keys. Only a schema that holds schemas or a reference costs more than that. */
  private scan(
    schema: Record<string, unknown>,
    up: Place,
    key: string | number,
    findings: Findings,
    base: Record<string, unknown> | undefined,
    isPart: boolean,
  ): void {
    const ref = schema.$ref
    const dynamicRef = schema.$dynamicRef
    if (ref === undefined || this.siblingsCount) {
      let keys: string[] | undefined
      for (const keyword of Object.keys(schema)) {
        if (!KEYWORD_SHAPES.has(keyword)) {
          if (PLAIN_KEYWORDS.has(keyword) && isReference(schema[keyword])) {
            const place = placeUnder(placeUnder(up, key), keyword)
            this.misplaced.report(schema[keyword], place, quote(keyword), findings)
          }
          continue
        }
        if (keys === undefined) keys = [keyword]
        else keys.push(keyword)
      }
      if (keys !== undefined)
        this.stack.push({
          node: schema,
          keys,
          isSchema: true,
          isParts: false,
          place: placeUnder(up, key),
          base,
          next: 0,
        })
    }
    if (ref === undefined || this.siblingsCount) {
      warnUnknownType(schema, placeUnder(up, key), findings)
      if (Array.isArray(schema.allOf)) this.warnClosed(schema, schema.allOf, placeUnder(up, key), findings, base)
      for (const { at, msg } of this.subtypes.unresolvedIn(schema, base))
        findings.warn('discriminator_unresolved', msg, placeUnder(up, key), ...at)
    }
    if (ref !== undefined) this.followRef(ref, '$ref', placeUnder(up, key), findings, base, isPart)
    if (dynamicRef !== undefined) this.followRef(dynamicRef, '$dynamicRef', placeUnder(up, key), findings, base, isPart)
    if (!isPart) this.enterSubtypes(schema)
  }

  /** Visits what is offered for the parent of subtypes. */
  private enterSubtypes(parent: Record<string, unknown>): void {
    if (this.offered.has(parent)) return
    this.offered.add(parent)
    const frames: Frame[] = []
    for (const { value, place, base } of this.subtypes.offeredFor(parent)) {
      const { up, key } = place
      if (!isObject(value) || up === undefined || this.seen.has(value)) continue
      this.remembersAll = true
      frames.push({
        node: { [key]: value },
        keys: [String(key)],
        isSchema: false,
        isParts: false,
        place: up,
        base,
        next: 0,
      })
    }
    this.stack.push(...frames.reverse())
  }

  /** `schema_unsatisfiable`: a member that allows no other properties than its own, where another one requires more. */
  private warnClosed(
    schema: Record<string, unknown>,
    members: unknown[],
    place: Place,
    findings: Findings,
    base: Record<string, unknown> | undefined,
  ): void {
    const parts = [schema, ...members.slice(0, MEMBERS_COMPARED).map(each => this.meantBy(each, base))].filter(isObject)
    const required = parts.flatMap(each => (Array.isArray(each.required) ? each.required.slice(0, NAMES_COMPARED) : []))
    for (const each of parts) {
      if (each.additionalProperties !== false || each.patternProperties !== undefined) continue
      const properties = isObject(each.properties) ? each.properties : {}
      const missing = required.find(name => typeof name === 'string' && !Object.hasOwn(properties, name))
      if (missing === undefined) continue
      const msg = `nothing satisfies this schema: ${quote(missing)} is required, and one part allows no properties but its own`
      findings.warn('schema_unsatisfiable', msg, place, 'allOf')
      return
    }
  }

  /** A schema, or the one that it refers to. */
  private meantBy(schema: unknown, base: Record<string, unknown> | undefined): unknown {
    if (!isObject(schema) || typeof schema.$ref !== 'string') return schema
    const target = this.references.find(schema.$ref, base)
    return isDangling(target) ? undefined : target.value
  }

  private visitKeyword(
    keyword: string,
    value: unknown,
    place: Place,
    findings: Findings,
    base: Record<string, unknown> | undefined,
  ): void {
    const shape = KEYWORD_SHAPES.get(keyword)
    if (Array.isArray(value) && (shape === 'list' || shape === 'schema-or-list')) {
      this.push(value, undefined, placeUnder(place, keyword), base, keyword === 'allOf')
    } else if (shape === 'schema' || shape === 'schema-or-list') {
      this.enter(value, place, keyword, findings, base)
    } else if (
      (shape === 'map' || shape === 'list') &&
      this.misplaced.report(value, placeUnder(place, keyword), quote(keyword), findings)
    ) {
      // said
    } else if (shape === 'map' && isObject(value)) {
      const keys = Object.keys(value)
      this.push(value, keys, placeUnder(place, keyword), base)
    } else {
      this.reportIgnored(place, keyword, findings)
    }
  }

  /** A list or map of schemas, if it has any. */
  private push(
    node: Frame['node'],
    keys: string[] | undefined,
    place: Place,
    base: Record<string, unknown> | undefined,
    isParts = false,
  ): void {
    if ((keys ?? (node as unknown[])).length > 0)
      this.stack.push({ node, keys, isSchema: false, isParts, place, base, next: 0 })
  }

  private followRef(
    ref: unknown,
    key: string,
    place: Place,
    findings: Findings,
    base: Record<string, unknown> | undefined,
    isPart: boolean,
  ): void {
    if (typeof ref !== 'string') {
      findings.faultOf('string_type', place, key)
      return
    }
    const target = this.references.find(ref, base)
    if (isDangling(target)) {
      findings.fault(target.type, () => messageOf(target) + this.references.hintFor(ref, place), place, key)
    } else if (
      (target.kind !== undefined && target.kind !== 'schema' && target.kind !== 'schemaPart') ||
      (!isObject(target.value) && typeof target.value !== 'boolean')
    ) {
      findings.fault(
        'ref_target_type',
        `the reference ${quote(ref)} points at something that is not a schema`,
        place,
        key,
      )
    } else if (isObject(target.value) && !this.seen.has(target.value)) {
      if (this.isTooFar(target)) {
        findings.fault(
          'ref_cycle',
          `the reference ${quote(ref)} leads through more than ${this.hops} references`,
          place,
          key,
        )
        return
      }
      this.seen.add(target.value)
      if (target.kind !== 'schema') this.remembersAll = true
      if (target.place.up !== undefined)
        this.scan(target.value, target.place.up, target.place.key, findings, target.base, isPart)
    } else if (isObject(target.value) && !isPart) this.enterSubtypes(target.value)
  }

  /** True if the target is a reference to a reference, and so on, beyond the limit; a chain that closes on itself is a circular schema. */
  private isTooFar(first: Target): boolean {
    const passed = new Set<object>()
    for (let at = first; isObject(at.value) && typeof at.value.$ref === 'string'; ) {
      if (passed.has(at.value)) return false
      if (passed.size >= this.hops - 1) return true
      passed.add(at.value)
      const next = this.references.find(at.value.$ref, at.base)
      if (isDangling(next)) return false
      at = next
    }
    return false
  }

  private reportIgnored(place: Place, key: string | number, findings: Findings): void {
    findings.warn('schema_ignored', 'this is not a schema; it is read as "any value"', place, key)
  }
}
