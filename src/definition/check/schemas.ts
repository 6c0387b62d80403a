import type { Findings } from './findings.js'
import { checkKeys, KEYS } from './keys.js'
import { isObject, type References, type Schema } from './references.js'
import type { Subtypes } from './subtypes.js'

/**
 * Checks every schema that can become part of a function's input. Follows references and visits each schema once, so recursive schemas are allowed.
 * Ignores properties that only the server sets and, in OpenAPI 3.0, keys next to a `$ref`.
 */
export class SchemaWalk {
  private readonly seen = new Set<object>()
  /** The schemas whose subtypes were visited. */
  private readonly offered = new Set<object>()
  private readonly pending: { schema: Schema; isPart: boolean }[] = []

  constructor(
    private readonly references: References,
    private readonly subtypes: Subtypes,
    private readonly findings: Findings,
    private readonly is30: boolean,
  ) {}

  check(holder: Schema, key: string): void {
    this.visitMember(holder[key], holder, [key])
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop())
      this.visit(next.schema, next.isPart)
  }

  private visitMember(value: unknown, holder: object, tail: (string | number)[], isPart = false): void {
    if (isObject(value)) this.visit(value, isPart)
    else if (value !== undefined && value !== null && typeof value !== 'boolean')
      this.findings.warn('value_ignored', holder, tail, tail.at(-1), 'a schema')
  }

  /** `isPart`: the schema is inside the `allOf` of a subtype, so subtypes of the schema are not visited. */
  private visit(schema: Schema, isPart = false): void {
    if ((schema.discriminator ?? null) !== null && !isPart && !this.offered.has(schema)) {
      this.offered.add(schema)
      this.subtypes.warnOf(schema, this.findings)
      for (const each of this.subtypes.alternativesOf(schema)) this.pending.push({ schema: each, isPart: false })
    }
    if (this.seen.size === this.seen.add(schema).size) return
    if (schema.$dynamicRef !== undefined)
      this.findings.fault('ref_unresolved.name', schema, ['$dynamicRef'], schema.$dynamicRef)
    if (schema.$ref !== undefined) {
      const target = this.references.target(schema, 'schema', this.findings)
      if (isObject(target)) this.pending.push({ schema: target, isPart })
      if (this.is30) return
    }
    checkKeys('schema', schema, this.findings)
    for (const key in schema) {
      const value = schema[key]
      if (typeof value !== 'object' || value === null) continue
      const form = KEYS.schema.get(key)
      const isList = Array.isArray(value)
      if (!isList && form === 'schema') this.visit(value as Schema)
      else if (form === (isList ? 'list' : 'schemas')) {
        const isInside = key === 'allOf' && (isPart || this.subtypes.isChild(schema))
        for (const [name, each] of Object.entries(value))
          if (key !== 'properties' || !isSetByServer(each, this.references))
            this.visitMember(each, value, [isList ? Number(name) : name], isInside)
      }
    }
  }
}

/** True if the property, or the schema that it refers to, is `readOnly`. Only the server sets such a property. */
export function isSetByServer(property: unknown, references: References): boolean {
  return (
    isObject(property) &&
    (property.readOnly === true || (property.$ref !== undefined && references.end(property)?.readOnly === true))
  )
}
