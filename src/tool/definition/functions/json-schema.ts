import { type Dangling, isDangling, isObject, type References, type Target } from '../check/references.js'
import { Structures } from '../check/structures.js'
import type { Subtypes } from '../check/subtypes.js'

type Schema = Record<string, unknown>

/** A JSON Schema of draft 2020-12. */
export type JsonSchema = Schema | boolean

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
  readonly context: Context
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
  readonly schema: Schema
  readonly target: Schema
  readonly base: Schema | undefined
  readonly context: Context
}

/** What is around a schema, in others that describe the same value. */
interface Context {
  /** True for a parent inside the `allOf` of its subtype: only what it says itself counts, not its subtypes. */
  readonly isParent: boolean
  /** Properties that the server sets. */
  readonly hidden: ReadonlySet<string>
}

const NO_NAMES: ReadonlySet<string> = new Set()
const ALONE: Context = { isParent: false, hidden: NO_NAMES }

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
const MOST_HOPS = 250
const MOST_HIDDEN = 500

const SCHEMA_KEYWORDS = new Set([
  'additionalItems',
  'not',
  'if',
  'contains',
  'propertyNames',
  'additionalProperties',
  'unevaluatedProperties',
  'unevaluatedItems',
  'contentSchema',
])

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
 * Turns the schemas of one OpenAPI document into JSON Schema 2020-12 that every validator compiles. References become `$defs`,
 * `nullable` the type "null", and a `discriminator` alternatives whose selector is fixed. `readOnly` properties are left out, and
 * so is what JSON Schema does not allow. Every schema is converted once and shared by all that use it.
 */
export class SchemaConverter {
  private readonly definitions = new Map<object, Map<string, Definition>>()
  private readonly definitionsByRef = new Map<string, Definition>()
  private readonly taken = new Map<string, number>()
  private readonly pending: PendingDefinition[] = []
  private readonly converted = new Map<object, ConvertedSchema>()
  private readonly circles = new Map<object, boolean>()
  private readonly hidden = new Map<object, ReadonlySet<string>>()

  constructor(
    private readonly references: References,
    private readonly subtypes: Subtypes,
    private readonly is30: boolean,
  ) {}

  /** Converts one schema and every definition that it needs. The result is shared and not to be changed. */
  convert(schema: unknown): ConvertedSchema {
    const known = isObject(schema) ? this.converted.get(schema) : undefined
    if (known !== undefined) return known
    const converted = this.convertTree(schema, undefined, ALONE)
    if (isObject(schema)) this.converted.set(schema, converted)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop()) {
      next.converted = this.convertTree(next.target.value, next.target.base, next.context)
    }
    return converted
  }

  /** The definition that `ref` (as this class writes it) names. */
  definition(ref: string): JsonSchema | undefined {
    return this.definitionsByRef.get(ref)?.converted?.schema
  }

  private convertTree(schema: unknown, base: Schema | undefined, context: Context): ConvertedSchema {
    const run: Run = { tasks: [], uses: new Set(), size: { values: 1, bytes: 0, otherBytes: '{}'.length } }
    const result = begin(schema, base, context, run.tasks)
    for (let task = run.tasks.pop(); task !== undefined; task = run.tasks.pop()) this.convertOne(task, run)
    return { schema: result, uses: run.uses, size: run.size }
  }

  private convertOne({ schema, target, base: outer, context }: Task, run: Run): void {
    const base = typeof schema.$id === 'string' ? schema : outer
    const inner = { isParent: false, hidden: this.hiddenIn(schema, base, context.hidden) }
    const alternatives = context.isParent ? undefined : this.alternativesOf(schema, base, inner.hidden, run)
    const result: Schema = {}
    const ref = schema.$ref ?? schema.$dynamicRef
    if (alternatives !== undefined) result.oneOf = alternatives
    else if (typeof ref === 'string')
      Object.assign(result, this.reference(this.references.find(ref, base), { ...context, hidden: inner.hidden }, run))
    const children: Task[] = []
    const discriminator = this.subtypes.discriminatorOf(schema)
    const convert: Converters = {
      inside: each => begin(each, base, ALONE, children),
      beside: each => begin(each, base, inner, children),
      parent: each => begin(each, base, { ...inner, isParent: this.subtypes.has(schema) }, children),
      alternative: each => {
        const part = begin(each, base, inner, children)
        if (discriminator === undefined || !isObject(each)) return part
        const end = typeof each.$ref === 'string' ? this.subtypes.resolve(each.$ref, base)?.value : each
        const selector = isObject(end) ? this.subtypes.selectorOf(discriminator, end) : undefined
        return selector === undefined ? part : { allOf: [part, selector] }
      },
    }
    for (const key of Object.keys(schema)) {
      if (alternatives !== undefined && !ANNOTATIONS.has(key)) continue
      if (typeof ref === 'string' && this.is30 && !ANNOTATIONS.has(key)) continue
      // The alternatives of a parent lead back to the subtype that names it.
      if (context.isParent && discriminator !== undefined && (key === 'oneOf' || key === 'anyOf')) continue
      const isAllowed = PLAIN_KEYWORDS.get(key)
      if (isAllowed === undefined) this.convertKeyword(key, schema[key], result, inner.hidden, convert)
      else if (isAllowed(schema[key])) result[key] = schema[key]
    }
    for (const child of children.reverse()) run.tasks.push(child)
    if (alternatives === undefined) {
      finishTuple(schema, result)
      finishBounds(schema, result)
      finishRequired(schema, result, inner.hidden)
      if (isText(schema.pattern) && typeof ref !== 'string' && result.pattern === undefined)
        describePattern(schema.pattern, result)
      const selectors = context.isParent ? [] : this.subtypes.selectorsAbove(schema)
      if (selectors.length > 0) result.allOf = [...(Array.isArray(result.allOf) ? result.allOf : []), ...selectors]
    }
    Object.assign(target, schema.nullable === true ? nullable(result) : result)
    measure(target, run.size)
  }

  private convertKeyword(
    key: string,
    value: unknown,
    result: Schema,
    hidden: ReadonlySet<string>,
    convert: Converters,
  ): void {
    const isList = Array.isArray(value) && value.length > 0
    switch (key) {
      case 'type':
        setType(value, result)
        break
      case 'enum':
        if (isList) result.enum = withoutRepeats(value)
        break
      case 'required':
        if (Array.isArray(value)) result.required = withoutRepeats(value.filter(isText))
        break
      case 'example':
        if (!Array.isArray(result.examples)) result.examples = [value]
        break
      case 'properties':
        if (isObject(value)) result.properties = mapValues(value, convert.inside, name => !hidden.has(name))
        break
      case 'dependentSchemas':
        if (isObject(value)) result[key] = mapValues(value, convert.beside)
        break
      case 'pattern':
        if (isPattern(value)) result[key] = value
        break
      case 'patternProperties':
        if (isObject(value)) result[key] = mapValues(value, convert.inside, isPattern)
        break
      case 'dependentRequired':
        if (isObject(value))
          result[key] = mapValues(value, names =>
            Array.isArray(names) ? withoutRepeats(names.filter(name => isText(name) && !hidden.has(name))) : [],
          )
        break
      case 'allOf':
        if (isList) result[key] = value.map(convert.parent)
        break
      case 'anyOf':
      case 'oneOf':
        if (isList) result[key] = value.map(convert.alternative)
        break
      case 'prefixItems':
        if (isList) result[key] = value.map(convert.inside)
        break
      case 'items':
        if (isList) result.prefixItems = value.map(convert.inside)
        else if (!Array.isArray(value) && value !== null) result.items = convert.inside(value)
        break
      default:
        if (!isObject(value) && typeof value !== 'boolean') break
        if (key === 'then' || key === 'else') result[key] = convert.beside(value)
        else if (SCHEMA_KEYWORDS.has(key)) result[key] = convert.inside(value)
    }
  }

  /** What stands for a parent of subtypes: one alternative for each. Undefined for any other schema. */
  private alternativesOf(
    schema: Schema,
    base: Schema | undefined,
    hidden: ReadonlySet<string>,
    run: Run,
  ): JsonSchema[] | undefined {
    const subtypes = this.subtypes.offeredFor(schema)
    if (subtypes.length === 0) return undefined
    const own = this.subtypes.discriminatorOf(schema)
    const self = () => {
      const place = subtypes[0]?.place
      const known = this.subtypes.targetOf(schema) ?? { value: schema, place, kind: undefined, base }
      return this.reference(known as Target, { isParent: true, hidden }, run)
    }
    const all = (...parts: JsonSchema[]) => (parts.length === 1 ? (parts[0] as JsonSchema) : { allOf: parts })
    const selectorOf = (value: Schema) => (own === undefined ? [] : (this.subtypes.selectorOf(own, value) ?? []))
    const result: JsonSchema[] = []
    const roots = this.subtypes.rootsOf(schema)
    const hasOther = own !== undefined && roots.every(each => each.property !== own.property)
    // Its own value too, so that no other alternative fits the same.
    if (roots.length > 0 || own?.mapped.has(schema))
      result.push(
        all(self(), ...this.subtypes.selectorsAbove(schema), ...(hasOther ? [selectorOf(schema)].flat() : [])),
      )
    for (const target of subtypes) {
      const value = target.value as Schema // a target of subtypes is an object
      const part = this.reference(target, { isParent: false, hidden }, run)
      const isBelow = own === undefined || this.subtypes.rootsOf(value).includes(own)
      // What only a mapping names says nothing of the parent's fields.
      result.push(isBelow ? part : all(self(), part, ...[selectorOf(value)].flat()))
    }
    return result
  }

  /** A reference to the definition of a target; `{}` where it means no schema. */
  private reference(target: Target | Dangling, context: Context, run: Run): Schema {
    const definition = this.definitionOf(target, context)
    if (definition === undefined) return {}
    run.uses.add(definition)
    return { $ref: definition.ref }
  }

  private definitionOf(target: Target | Dangling, { isParent, hidden }: Context): Definition | undefined {
    if (isDangling(target) || this.isCircle(target)) return undefined
    const { value } = target
    if (!isObject(value)) return typeof value === 'boolean' ? this.newDefinition(target, ALONE) : undefined
    const own = this.hiddenIn(value, target.base, NO_NAMES)
    const added = [...hidden].filter(name => !own.has(name)).sort()
    const isBare = isParent && (this.subtypes.has(value) || typeof value.$ref === 'string')
    const key = `${isBare}${added.length === 0 ? '' : JSON.stringify(added)}`
    const known = this.definitions.get(value) ?? new Map<string, Definition>()
    this.definitions.set(value, known)
    const definition =
      known.get(key) ?? this.newDefinition(target, { isParent: isBare, hidden: added.length === 0 ? NO_NAMES : hidden })
    known.set(key, definition)
    return definition
  }

  private newDefinition(target: Target, context: Context): Definition {
    const name = this.newName(`${target.place.key}${context.isParent ? '_parent' : ''}`)
    const definition: PendingDefinition = { name, ref: `#/$defs/${name}`, target, context, converted: undefined }
    this.definitionsByRef.set(definition.ref, definition)
    this.pending.push(definition)
    return definition
  }

  private newName(key: string): string {
    const written = key.replace(/[^A-Za-z0-9._-]/g, '_')
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

  /** True if the target is a reference that leads only to references, or through too many. */
  private isCircle(first: Target): boolean {
    const passed: object[] = []
    let at: Target | Dangling = first
    let answer: boolean | undefined
    while (answer === undefined) {
      if (isDangling(at) || !isObject(at.value) || typeof at.value.$ref !== 'string') answer = false
      else if (passed.length > MOST_HOPS) answer = true
      else {
        answer = this.circles.get(at.value)
        passed.push(at.value)
        at = this.references.find(at.value.$ref, at.base)
      }
    }
    // Those at the end of a long chain may be near its end.
    const known = answer && passed.length > MOST_HOPS ? passed.slice(0, MOST_HOPS / 2) : passed
    for (const value of known) this.circles.set(value, answer)
    return answer
  }

  /** The names that are hidden from outside, and those that this schema or a part of it leaves to the server. */
  private hiddenIn(schema: Schema, base: Schema | undefined, outer: ReadonlySet<string>): ReadonlySet<string> {
    const own = this.hidden.get(schema) ?? this.findHidden(schema, base)
    return united(outer, own)
  }

  /** Goes through the parts of a schema, each before what it is a part of. */
  private findHidden(schema: Schema, base: Schema | undefined): ReadonlySet<string> {
    const stack: [Schema, Schema | undefined][] = [[schema, base]]
    const open = new Set<Schema>()
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const [at, around] = top
      const isNew = !open.has(at) && !this.hidden.has(at)
      if (isNew) open.add(at)
      else stack.pop()
      if (this.hidden.has(at)) continue
      const parts = this.partsOf(at, around)
      const unknown = isNew ? parts.filter(([part]) => !open.has(part) && !this.hidden.has(part)) : []
      stack.push(...unknown)
      if (isNew) continue
      const entries = isObject(at.properties) ? Object.entries(at.properties) : []
      const own = entries.filter(([, property]) => this.isSetByServer(property, around)).map(([name]) => name)
      let names: ReadonlySet<string> = own.length === 0 ? NO_NAMES : new Set(own)
      for (const [part] of parts) names = united(names, this.hidden.get(part) ?? NO_NAMES)
      this.hidden.set(at, names)
    }
    return this.hidden.get(schema) ?? NO_NAMES
  }

  /** The schemas that describe the same value whatever it is, each with the `$id` around it. */
  private partsOf(schema: Schema, base: Schema | undefined): [Schema, Schema | undefined][] {
    const parts: [Schema, Schema | undefined][] = []
    for (const each of Array.isArray(schema.allOf) ? schema.allOf : []) if (isObject(each)) parts.push([each, base])
    if (typeof schema.$ref !== 'string') return parts
    const target = this.references.find(schema.$ref, base)
    if (!isDangling(target) && isObject(target.value)) parts.push([target.value, target.base])
    return parts
  }

  /** True for a property that says of itself, or by the schema it refers to, that only the server sets it. */
  private isSetByServer(property: unknown, base: Schema | undefined): boolean {
    if (!isObject(property)) return false
    // 3.0 gives what stands beside a reference no meaning, but its author means it.
    if (property.readOnly === true) return true
    if (typeof property.$ref !== 'string') return false
    const target = this.references.find(property.$ref, base)
    return !isDangling(target) && isObject(target.value) && target.value.readOnly === true
  }
}

/** How the schemas at the keywords of one schema are converted. */
interface Converters {
  /** A schema of another value, inside this one. */
  inside(schema: unknown): JsonSchema
  /** A schema that describes the same value. */
  beside(schema: unknown): JsonSchema
  parent(schema: unknown): JsonSchema
  alternative(schema: unknown): JsonSchema
}

/** The names in either set; beyond some hundreds only those of the first. */
function united(one: ReadonlySet<string>, other: ReadonlySet<string>): ReadonlySet<string> {
  if (other.size === 0 || one === other || one.size >= MOST_HIDDEN) return one
  return one.size === 0 ? other : new Set([...one, ...other])
}

/** What stands for a schema in its parent; an object is filled in later by its task. */
function begin(schema: unknown, base: Schema | undefined, context: Context, tasks: Task[]): JsonSchema {
  if (typeof schema === 'boolean') return schema
  const target: Schema = {}
  if (isObject(schema)) tasks.push({ schema, target, base, context })
  return target
}

function setType(value: unknown, result: Schema): void {
  if (typeof value === 'string') {
    if (TYPES.has(value)) result.type = value
  } else if (Array.isArray(value)) {
    const types = [...new Set(value.filter(each => TYPES.has(each)))]
    if (types.length > 0) result.type = types
  }
}

/** What followed a tuple before 2020-12 (`additionalItems`) is `items` now; a list of which nothing is said holds anything. */
function finishTuple(schema: Schema, result: Schema): void {
  const { additionalItems } = result
  delete result.additionalItems
  if (Array.isArray(schema.items) && additionalItems !== undefined) result.items = additionalItems
  const isList = result.type === 'array' || (Array.isArray(result.type) && result.type.includes('array'))
  if (isList && result.items === undefined) result.items = {}
}

function finishBounds(schema: Schema, result: Schema): void {
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
function finishRequired(schema: Schema, result: Schema, hidden: ReadonlySet<string>): void {
  const names = new Set(Array.isArray(result.required) ? result.required.filter(name => !hidden.has(name)) : [])
  const isShorter = Array.isArray(result.required) && names.size < result.required.length
  const before = names.size
  for (const [name, property] of Object.entries(isObject(schema.properties) ? schema.properties : {}))
    if (isObject(property) && property.required === true && !hidden.has(name)) names.add(name)
  if (names.size > 0 && (isShorter || names.size > before)) result.required = [...names]
  else if (names.size === 0 && isShorter) delete result.required
}

function nullable(schema: Schema): Schema {
  if (COMPOSITES.some(key => schema[key] !== undefined)) {
    const outside: Schema = {}
    const inside: Schema = {}
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

function describePattern(pattern: string, result: Schema): void {
  const note = `Pattern: ${pattern.slice(0, LONGEST_PATTERN_CHARACTERS)}`
  result.description = typeof result.description === 'string' ? `${result.description}\n${note}` : note
}

function mapValues(
  map: Schema,
  convert: (value: unknown) => unknown,
  keeps: (key: string) => boolean = () => true,
): Schema {
  const result: Schema = {}
  for (const key of Object.keys(map)) if (keeps(key)) result[key] = convert(map[key])
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
