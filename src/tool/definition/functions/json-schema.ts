import type { Place } from '../check/findings.js'
import { isDangling, isObject, type References, type Target } from '../check/references.js'
import { Structures } from '../check/structures.js'

/** A JSON Schema of draft 2020-12. */
export type JsonSchema = Record<string, unknown> | boolean

/** A converted schema and the definitions that it refers to. */
export interface ConvertedSchema {
  readonly schema: JsonSchema
  readonly uses: ReadonlySet<Definition>
  readonly size: Size
}

/** A schema that others refer to. */
export interface Definition {
  readonly name: string
  /** What refers to it: one text, however many schemas hold it, for a name may have thousands of letters. */
  readonly ref: string
  /** Undefined until its turn has come. */
  readonly converted: ConvertedSchema | undefined
}

interface PendingDefinition extends Definition {
  readonly target: Target
  converted: ConvertedSchema | undefined
}

/** How large a JSON value is. */
export interface Size {
  /** Objects, lists, strings, numbers, booleans and nulls. */
  values: number
  /** Bytes of all keys and strings. */
  bytes: number
  /** Bytes of what stands between them in JSON: quotes, colons, commas, brackets, numbers and words. */
  otherBytes: number
}

/** A schema of the document that becomes the object `target`, which stands in its parent already. */
interface Task {
  readonly schema: Record<string, unknown>
  readonly target: Record<string, unknown>
  readonly base: Record<string, unknown> | undefined
}

/** What the conversion of one schema and of all that is inside it collects. */
interface Run {
  /** The next task stands last, so that schemas are visited in document order. */
  readonly tasks: Task[]
  readonly uses: Set<Definition>
  readonly size: Size
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
/** References followed in one step; and how far from its end one that is not a circle is not taken for one. */
const HOPS_A_STEP = 250
const HOPS_TOLD = 100
/** Members that are converted while a pattern is parsed, and while so many of its characters are: one that is none makes an error. */
const PATTERN_MEMBERS = 10
const PATTERN_CHARACTERS_OF_MEMBER = 20

/** What a keyword's value must be to be taken over unchanged. */
const PLAIN_KEYWORDS = new Map<string, (value: unknown) => boolean>([
  ...['title', 'description', 'format', 'contentEncoding', 'contentMediaType'].map(key => [key, isText] as const),
  ...['uniqueItems', 'deprecated', 'readOnly', 'writeOnly'].map(key => [key, isFlag] as const),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map(key => [key, isNumber] as const),
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
  ['multipleOf', value => isNumber(value) && value > 0],
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
 * - A property that is `readOnly` is left out: the server sets it, so a model must not fill it in. A list without `items` takes
 *   any, which some providers want said.
 * - A keyword whose value JSON Schema does not allow is left out, and so are keywords that mean nothing to a model (`discriminator`,
 *   `xml`, extensions, identifiers). A pattern that is not ECMAScript is moved to the description. Here, and only here, a pattern
 *   is parsed; none is ever run.
 *
 * Every schema of the document is converted once and shared by all that use it.
 */
export class SchemaConverter {
  private readonly definitions = new Map<object, Definition>()
  private readonly definitionsByRef = new Map<string, Definition>()
  private readonly circles = new Map<object, boolean>()
  private readonly taken = new Map<string, number>()
  private readonly pending: PendingDefinition[] = []
  private readonly converted = new Map<object, ConvertedSchema>()
  /** Members converted since the last look at the clock: a hundred thousand definitions may have one each. */
  private sinceYield = 0

  constructor(
    private readonly references: References,
    private readonly is30: boolean,
  ) {}

  /** Converts one schema and every definition that it needs. The result is shared and not to be changed. */
  convert(schema: unknown): ConvertedSchema {
    const known = isObject(schema) ? this.converted.get(schema) : undefined
    if (known !== undefined) return known
    const converted = this.convertTree(schema, undefined)
    if (isObject(schema)) this.converted.set(schema, converted)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop()) {
      next.converted = this.convertTree(next.target.value, next.target.base)
    }
    return converted
  }

  /** The definition that `ref` (as this class writes it) names. */
  definition(ref: string): JsonSchema | undefined {
    return this.definitionsByRef.get(ref)?.converted?.schema
  }

  private convertTree(schema: unknown, base: Record<string, unknown> | undefined): ConvertedSchema {
    const run: Run = { tasks: [], uses: new Set(), size: { values: 1, bytes: 0, otherBytes: '{}'.length } }
    const result = begin(schema, base, run.tasks)
    for (let task = run.tasks.pop(); task !== undefined; task = run.tasks.pop()) {
      const before = run.size.values
      this.convertOne(task, run)
      this.sinceYield += 1 + run.size.values - before
    }
    return { schema: result, uses: run.uses, size: run.size }
  }

  private convertOne({ schema, target, base: outer }: Task, run: Run): void {
    const base = typeof schema.$id === 'string' ? schema : outer
    const ref = schema.$ref ?? schema.$dynamicRef
    const result: Record<string, unknown> = {}
    if (typeof ref === 'string') {
      const definition = this.definitionOf(ref, base)
      if (definition !== undefined) {
        run.uses.add(definition)
        result.$ref = definition.ref
      }
    }
    const children: Task[] = []
    const convert = (each: unknown) => begin(each, base, children)
    for (const key of Object.keys(schema)) {
      if (typeof ref === 'string' && this.is30 && !ANNOTATIONS.has(key)) continue
      const isAllowed = PLAIN_KEYWORDS.get(key)
      if (isAllowed === undefined) this.convertKeyword(key, schema[key], result, base, convert)
      else if (isAllowed(schema[key])) result[key] = schema[key]
    }
    for (let i = children.length - 1; i >= 0; i--) {
      run.tasks.push(children[i] as Task) // i is inside the list
    }
    finishTuple(schema, result)
    finishBounds(schema, result)
    if (isObject(schema.properties)) finishRequired(schema.properties, result)
    if (isText(schema.pattern) && typeof ref !== 'string' && result.pattern === undefined)
      describePattern(schema.pattern, result)
    Object.assign(target, schema.nullable === true ? nullable(result) : result)
    measure(target, run.size)
  }

  private convertKeyword(
    key: string,
    value: unknown,
    result: Record<string, unknown>,
    base: Record<string, unknown> | undefined,
    convert: (value: unknown) => JsonSchema,
  ): void {
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
        if (isObject(value)) result.properties = mapValues(value, convert, (_, each) => !this.isSetByServer(each, base))
        break
      case 'dependentSchemas':
        if (isObject(value)) result[key] = mapValues(value, convert)
        break
      case 'pattern':
        if (this.isPattern(value)) result[key] = value
        break
      case 'patternProperties':
        if (isObject(value)) {
          result[key] = mapValues(value, convert, each => this.isPattern(each))
        }
        break
      case 'dependentRequired':
        if (isObject(value)) result[key] = namesOfEach(value)
        break
      case 'allOf':
      case 'anyOf':
      case 'oneOf':
      case 'prefixItems':
        if (Array.isArray(value) && value.length > 0) result[key] = mapped(value, convert)
        break
      case 'items':
        if (Array.isArray(value)) {
          if (value.length > 0) result.prefixItems = mapped(value, convert)
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

  /** As the function of this name, which takes the time of many members. */
  private isPattern(value: unknown): value is string {
    if (isText(value))
      this.sinceYield +=
        PATTERN_MEMBERS + Math.min(value.length, LONGEST_PATTERN_CHARACTERS) / PATTERN_CHARACTERS_OF_MEMBER
    return isPattern(value)
  }

  /** True for a property that says of itself, or by the schema it refers to, that only the server sets it. */
  private isSetByServer(property: unknown, base: Record<string, unknown> | undefined): boolean {
    if (!isObject(property)) return false
    // 3.0 gives what stands beside a reference no meaning, but whoever writes it there means it.
    if (property.readOnly === true) return true
    if (typeof property.$ref !== 'string') return false
    const target = this.references.find(property.$ref, base)
    return !isDangling(target) && isObject(target.value) && target.value.readOnly === true
  }

  /** The definition of the schema that `ref` means; undefined if it means none. */
  private definitionOf(ref: string, base: Record<string, unknown> | undefined): Definition | undefined {
    const target = this.references.find(ref, base)
    if (isDangling(target) || this.isCircle(target)) return undefined
    const { value } = target
    if (!isObject(value) && typeof value !== 'boolean') return undefined
    const known = isObject(value) ? this.definitions.get(value) : undefined
    if (known !== undefined) return known
    const name = this.newName(target.place)
    const definition: PendingDefinition = { name, ref: `#/$defs/${name}`, target, converted: undefined }
    if (isObject(value)) this.definitions.set(value, definition)
    this.definitionsByRef.set(definition.ref, definition)
    this.pending.push(definition)
    return definition
  }

  private newName(place: Place): string {
    const written = String(place.key).replace(/[^A-Za-z0-9._-]/g, '_')
    const plain = written === '' || written === '__proto__' ? '_' : written
    // Where many schemas have the same name, the search goes on where it ended.
    let number = this.taken.get(plain) ?? 0
    let name = plain
    do {
      number++
      name = number === 1 ? plain : `${plain}_${number}`
    } while (number > 1 && this.taken.has(name))
    this.taken.set(plain, number)
    if (name !== plain) this.taken.set(name, 1)
    return name
  }

  /** True if the target is a reference that leads only to references. Every step of a chain is judged once. */
  private isCircle(first: Target): boolean {
    if (!isObject(first.value) || typeof first.value.$ref !== 'string') return false
    const passed = new Set<object>()
    let at: Target = first
    let answer: boolean | undefined
    while (answer === undefined) {
      const { value } = at
      if (!isObject(value) || typeof value.$ref !== 'string') answer = false
      else if (passed.has(value)) answer = true
      else {
        // A definition with so long a chain is refused; what is compared with one may have it all the same.
        answer = this.circles.get(value) ?? (passed.size > HOPS_A_STEP ? true : undefined)
        passed.add(value)
        const next = this.references.find(value.$ref, at.base)
        if (isDangling(next)) answer ??= false
        else at = next
      }
    }
    let isFar = passed.size > HOPS_A_STEP ? passed.size - HOPS_TOLD : passed.size
    for (const value of passed) if (isFar-- > 0) this.circles.set(value, answer)
    return answer
  }
}

/** What stands for a schema in its parent; an object is filled in later by its task. */
function begin(schema: unknown, base: Record<string, unknown> | undefined, tasks: Task[]): JsonSchema {
  if (typeof schema === 'boolean') return schema
  const target: Record<string, unknown> = {}
  if (isObject(schema)) tasks.push({ schema, target, base })
  return target
}

function setType(value: unknown, result: Record<string, unknown>): void {
  if (typeof value === 'string') {
    if (TYPES.has(value)) result.type = value
  } else if (Array.isArray(value)) {
    const types = [...new Set(value.filter(each => TYPES.has(each)))]
    if (types.length > 0) result.type = types
  }
}

/** What followed a tuple before 2020-12 (`additionalItems`) is `items` now; a list of which nothing is said holds anything. */
function finishTuple(schema: Record<string, unknown>, result: Record<string, unknown>): void {
  const { additionalItems } = result
  delete result.additionalItems
  if (Array.isArray(schema.items) && additionalItems !== undefined) result.items = additionalItems
  const isList = result.type === 'array' || (Array.isArray(result.type) && result.type.includes('array'))
  if (isList && result.items === undefined) result.items = {}
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

/** Adds properties that are flagged as required, takes away those that were left out. */
function finishRequired(given: Record<string, unknown>, result: Record<string, unknown>): void {
  if (!isObject(result.properties)) return
  const kept = result.properties
  const names = new Set<string>()
  let isChanged = false
  for (const name of Array.isArray(result.required) ? result.required.filter(isText) : []) {
    if (Object.hasOwn(given, name) && !Object.hasOwn(kept, name)) isChanged = true
    else names.add(name)
  }
  for (const name of Object.keys(kept)) {
    const property = given[name]
    if (!isObject(property) || property.required !== true || names.has(name)) continue
    names.add(name)
    isChanged = true
  }
  if (!isChanged) return
  if (names.size > 0) result.required = [...names]
  else delete result.required
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
  if (types.length > 0) schema.type = [...new Set([...types, 'null'])]
  if (Array.isArray(schema.enum) && !schema.enum.includes(null)) schema.enum = [...schema.enum, null]
  return schema
}

function describePattern(pattern: string, result: Record<string, unknown>): void {
  const note = `Pattern: ${pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
  result.description = typeof result.description === 'string' ? `${result.description}\n${note}` : note
}

function mapped(values: readonly unknown[], convert: (value: unknown) => unknown): unknown[] {
  const result: unknown[] = []
  for (const value of values) {
    result.push(convert(value))
  }
  return result
}

function mapValues(
  map: Record<string, unknown>,
  convert: (value: unknown) => unknown,
  keeps: (key: string, value: unknown) => boolean = () => true,
): Record<string, unknown> {
  const result: Record<string, unknown> = {}
  for (const key of Object.keys(map)) {
    if (keeps(key, map[key])) result[key] = convert(map[key])
  }
  return result
}

/** The names that each member lists. */
function namesOfEach(map: Record<string, unknown>): Record<string, string[]> {
  const result: Record<string, string[]> = {}
  for (const key of Object.keys(map)) {
    const names = map[key]
    result[key] = Array.isArray(names) ? withoutRepeats(names.filter(isText)) : []
  }
  return result
}

function withoutRepeats<T>(values: readonly T[]): T[] {
  const seen = new Set<string>()
  const result: T[] = []
  const structures = new Structures()
  for (const value of values) {
    const text = typeof value === 'string' ? `"${value}` : structures.keyOf(value)
    if (seen.has(text)) continue
    seen.add(text)
    result.push(value)
  }
  return result
}

/**
 * Adds the size of what is written with a converted schema: its own keywords and, for values that are not schemas (a default,
 * examples, a list of values), all that is inside. Schemas inside are measured when their own turn comes: they are empty now.
 */
export function measure(value: object, size: Size): void {
  const pending: object[] = [value]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    for (const key of Array.isArray(at) ? at.keys() : Object.keys(at)) {
      const member = (at as Record<string | number, unknown>)[key]
      size.values++
      size.otherBytes += ','.length
      if (typeof key === 'string') {
        size.bytes += Buffer.byteLength(key)
        size.otherBytes += '"":'.length
      }
      if (typeof member === 'string') {
        size.bytes += Buffer.byteLength(member)
        size.otherBytes += '""'.length
      } else if (typeof member === 'object' && member !== null) {
        size.otherBytes += '{}'.length
        pending.push(member)
      } else size.otherBytes += String(member).length
    }
  }
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

function isFlag(value: unknown): boolean {
  return typeof value === 'boolean'
}

/** An integer that no double holds may be a BigInt. */
function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || Number.isFinite(value)
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** True if this is an ECMAScript pattern, with the Unicode flag that JSON Schema wants or, as people write them, without. It is parsed, not run. */
function isPattern(value: unknown): value is string {
  return (
    typeof value === 'string' &&
    value.length <= LONGEST_PATTERN_CHARACTERS &&
    (parses(value, '') || (FOR_UNICODE.test(value) && parses(value, 'u')))
  )
}

/** Without the flag more is a pattern, but for what means something else then: a range of surrogates may run backwards. */
const FOR_UNICODE = /\\[upP]|[\ud800-\udfff]/

function parses(pattern: string, flags: string): boolean {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0 // nobody sees where it was thrown, and a definition may hold a hundred thousand of them
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}
