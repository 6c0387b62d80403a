import type { Place } from '../check/findings.js'
import { isDangling, isObject, type References, type Target } from '../check/references.js'

/** A JSON Schema of draft 2020-12. */
export type JsonSchema = Record<string, unknown> | boolean

/** A schema that others refer to, and the names of those that it refers to itself. */
interface Definition {
  readonly schema: JsonSchema
  readonly uses: ReadonlySet<string>
}

const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'])
/** Say something about a value without limiting it; what stays of the neighbours of a `$ref` in 3.0. */
const ANNOTATIONS = new Set([
  'title',
  'description',
  'default',
  'example',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
])
const COMPOSITES = ['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'const']
const LONGEST_PATTERN_CHARACTERS = 2000

/** What a keyword's value must be to be taken over unchanged. */
const PLAIN_KEYWORDS = new Map<string, (value: unknown) => boolean>([
  ...['title', 'description', 'format', 'contentEncoding', 'contentMediaType'].map(key => [key, isText] as const),
  ...['uniqueItems', 'deprecated', 'readOnly', 'writeOnly'].map(key => [key, isFlag] as const),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map(key => [key, Number.isFinite] as const),
  ...[
    'minLength',
    'maxLength',
    'minItems',
    'maxItems',
    'minProperties',
    'maxProperties',
    'minContains',
    'maxContains',
  ].map(key => [key, isCount] as const),
  ['multipleOf', value => typeof value === 'number' && Number.isFinite(value) && value > 0],
  ['pattern', isPattern],
  ['examples', Array.isArray],
  ['const', () => true],
  ['default', () => true],
])

/**
 * Turns the schemas of one OpenAPI document (3.0, 3.1, 3.2) into JSON Schema 2020-12 that every validator compiles.
 *
 * - Every reference becomes `#/$defs/NAME`, NAME being the component's name (or the last step of the pointer); nothing is inlined,
 *   so circular schemas stay references. A schema that is nothing but a circle of references says nothing and becomes `{}`.
 * - 3.0's `nullable` becomes the type "null" (also in later versions, where people go on writing it); boolean `exclusiveMinimum`
 *   and `exclusiveMaximum` become numbers; `example` becomes `examples`; a list as `items` becomes `prefixItems`.
 * - `required: true` on a property (draft 3, common in hand-written documents) becomes an entry of `required` around it.
 * - Beside `$ref`, 3.0 keeps only what describes (a description, a default); later versions keep everything.
 * - A keyword whose value JSON Schema does not allow is left out, and so are keywords that mean nothing to a model (`discriminator`,
 *   `xml`, extensions, identifiers). A pattern that is no ECMAScript pattern is moved to the description. Here, and only here, a
 *   pattern is parsed; none is ever run.
 */
export class SchemaConverter {
  private readonly names = new Map<object, string>()
  private readonly circles = new Map<object, boolean>()
  private readonly taken = new Set<string>()
  private readonly definitions = new Map<string, Definition>()
  private readonly pending: { name: string; target: Target }[] = []

  constructor(
    private readonly references: References,
    private readonly is30: boolean,
  ) {}

  /** Converts one schema; the names of the definitions that it refers to are added to `uses`. */
  convert(schema: unknown, uses: Set<string>, base?: Record<string, unknown>): JsonSchema {
    const converted = this.convertOne(schema, uses, base)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop()) {
      const used = new Set<string>()
      const definition = this.convertOne(next.target.value, used, next.target.base)
      this.definitions.set(next.name, { schema: definition, uses: used })
    }
    return converted
  }

  /** All definitions that those named in `uses` need, themselves included, by name. The schemas are shared between calls. */
  closure(uses: ReadonlySet<string>): Record<string, JsonSchema> {
    const all = new Set(uses)
    const result: Record<string, JsonSchema> = {}
    for (const name of all) {
      const definition = this.definitions.get(name)
      if (definition === undefined) continue
      result[name] = definition.schema
      for (const used of definition.uses) all.add(used)
    }
    return result
  }

  /** The definition that `ref` (as this class writes it) names. */
  definition(ref: string): JsonSchema | undefined {
    return this.definitions.get(ref.slice('#/$defs/'.length))?.schema
  }

  private convertOne(schema: unknown, uses: Set<string>, outer: Record<string, unknown> | undefined): JsonSchema {
    if (typeof schema === 'boolean') return schema
    if (!isObject(schema)) return {}
    const base = typeof schema.$id === 'string' ? schema : outer
    const ref = schema.$ref ?? schema.$dynamicRef
    const result: Record<string, unknown> = {}
    if (typeof ref === 'string') {
      const name = this.nameOf(ref, base)
      if (name !== undefined) {
        uses.add(name)
        result.$ref = `#/$defs/${name}`
      }
    }
    for (const key of Object.keys(schema)) {
      if (typeof ref === 'string' && this.is30 && !ANNOTATIONS.has(key)) continue
      this.convertKeyword(key, schema[key], result, uses, base)
    }
    finishTuple(schema, result)
    finishBounds(schema, result)
    finishRequired(schema, result)
    if (isText(schema.pattern) && typeof ref !== 'string' && !isPattern(schema.pattern))
      describePattern(schema.pattern, result)
    return schema.nullable === true ? nullable(result) : result
  }

  private convertKeyword(
    key: string,
    value: unknown,
    result: Record<string, unknown>,
    uses: Set<string>,
    base: Record<string, unknown> | undefined,
  ): void {
    const isAllowed = PLAIN_KEYWORDS.get(key)
    if (isAllowed !== undefined) {
      if (isAllowed(value)) result[key] = value
      return
    }
    const convert = (each: unknown) => this.convertOne(each, uses, base)
    switch (key) {
      case 'type':
        setType(value, result)
        break
      case 'enum':
        if (Array.isArray(value) && value.length > 0) result.enum = withoutRepeats(value)
        break
      case 'required':
        if (Array.isArray(value)) result.required = withoutRepeats(value.filter(isText))
        break
      case 'example':
        if (!Array.isArray(result.examples)) result.examples = [value]
        break
      case 'properties':
      case 'dependentSchemas':
        if (isObject(value)) result[key] = mapValues(value, convert)
        break
      case 'patternProperties':
        if (isObject(value)) result[key] = mapValues(value, convert, isPattern)
        break
      case 'dependentRequired':
        if (isObject(value))
          result[key] = mapValues(value, each => (Array.isArray(each) ? withoutRepeats(each.filter(isText)) : []))
        break
      case 'allOf':
      case 'anyOf':
      case 'oneOf':
      case 'prefixItems':
        if (Array.isArray(value) && value.length > 0) result[key] = value.map(convert)
        break
      case 'items':
        if (Array.isArray(value)) {
          if (value.length > 0) result.prefixItems = value.map(convert)
        } else if (value !== null) result.items = convert(value)
        break
      case 'additionalItems':
      case 'not':
      case 'if':
      case 'then':
      case 'else':
      case 'contains':
      case 'propertyNames':
      case 'additionalProperties':
      case 'unevaluatedProperties':
      case 'unevaluatedItems':
      case 'contentSchema':
        if (isObject(value) || typeof value === 'boolean') result[key] = convert(value)
        break
    }
  }

  /** The name under which the schema that `ref` means is defined; undefined if it means none. */
  private nameOf(ref: string, base: Record<string, unknown> | undefined): string | undefined {
    const target = this.references.find(ref, base)
    if (isDangling(target) || this.isCircle(target)) return undefined
    const { value } = target
    if (!isObject(value) && typeof value !== 'boolean') return undefined
    const known = isObject(value) ? this.names.get(value) : undefined
    if (known !== undefined) return known
    const name = this.newName(target.place)
    if (isObject(value)) this.names.set(value, name)
    this.pending.push({ name, target })
    return name
  }

  private newName(place: Place): string {
    const plain = String(place.key).replace(/[^A-Za-z0-9._-]/g, '_') || '_'
    let name = plain
    for (let i = 2; this.taken.has(name); i++) name = `${plain}_${i}`
    this.taken.add(name)
    return name
  }

  /** True if the target is a reference that leads only to references. Every step of a chain is judged once. */
  private isCircle(first: Target): boolean {
    const passed = new Set<object>()
    let at: Target = first
    let answer: boolean | undefined
    while (answer === undefined) {
      const { value } = at
      if (!isObject(value) || typeof value.$ref !== 'string') answer = false
      else if (passed.has(value)) answer = true
      else {
        answer = this.circles.get(value)
        passed.add(value)
        const next = this.references.find(value.$ref, at.base)
        if (isDangling(next)) answer ??= false
        else at = next
      }
    }
    for (const value of passed) this.circles.set(value, answer)
    return answer
  }
}

function setType(value: unknown, result: Record<string, unknown>): void {
  if (typeof value === 'string') {
    if (TYPES.has(value)) result.type = value
  } else if (Array.isArray(value)) {
    const types = withoutRepeats(value.filter(each => TYPES.has(each)))
    if (types.length > 0) result.type = types
  }
}

/** What followed a tuple before 2020-12 (`additionalItems`) is `items` now. */
function finishTuple(schema: Record<string, unknown>, result: Record<string, unknown>): void {
  const { additionalItems } = result
  delete result.additionalItems
  if (Array.isArray(schema.items) && additionalItems !== undefined) result.items = additionalItems
}

function finishBounds(schema: Record<string, unknown>, result: Record<string, unknown>): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (schema[exclusive] !== true || result[bound] === undefined) continue
    result[exclusive] = result[bound]
    delete result[bound]
  }
}

function finishRequired(schema: Record<string, unknown>, result: Record<string, unknown>): void {
  if (!isObject(schema.properties) || result.properties === undefined) return
  const { properties } = schema
  const flagged = Object.keys(properties).filter(name => {
    const property = properties[name]
    return isObject(property) && property.required === true
  })
  if (flagged.length === 0) return
  const required = Array.isArray(result.required) ? result.required : []
  result.required = withoutRepeats([...required, ...flagged])
}

function nullable(schema: Record<string, unknown>): Record<string, unknown> {
  if (COMPOSITES.some(key => schema[key] !== undefined)) {
    const outside: Record<string, unknown> = {}
    const inside: Record<string, unknown> = {}
    for (const [key, value] of Object.entries(schema)) {
      if (ANNOTATIONS.has(key)) outside[key] = value
      else inside[key] = value
    }
    return { ...outside, anyOf: [inside, { type: 'null' }] }
  }
  const types = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? [] : [schema.type]
  if (types.length > 0) schema.type = withoutRepeats([...types, 'null'])
  if (Array.isArray(schema.enum) && !schema.enum.includes(null)) schema.enum = [...schema.enum, null]
  return schema
}

function describePattern(pattern: string, result: Record<string, unknown>): void {
  const note = `Pattern: ${pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
  result.description = typeof result.description === 'string' ? `${result.description}\n${note}` : note
}

function mapValues(
  map: Record<string, unknown>,
  convert: (value: unknown) => unknown,
  keeps: (key: string) => boolean = () => true,
): Record<string, unknown> {
  const result: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(map)) {
    if (keeps(key)) result[key] = convert(value)
  }
  return result
}

function withoutRepeats<T>(values: readonly T[]): T[] {
  const seen = new Set<string>()
  return values.filter(value => {
    const text = JSON.stringify(value)
    if (seen.has(text)) return false
    seen.add(text)
    return true
  })
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

function isFlag(value: unknown): boolean {
  return typeof value === 'boolean'
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** True if this is a pattern as JSON Schema wants it (ECMAScript, Unicode). It is parsed, not run. */
function isPattern(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > LONGEST_PATTERN_CHARACTERS) return false
  try {
    new RegExp(value, 'u')
    return true
  } catch {
    return false
  }
}
