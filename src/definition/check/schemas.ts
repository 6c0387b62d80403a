import { type Place, placeUnder, quote, show } from './findings.js'
import { flagMeant, SCHEMA_FORMS, warnForm } from './forms.js'
import { DEFINITION_LIMITS } from './limits.js'
import type { Reader } from './reader.js'
import { isDangling, isObject, isReference } from './references.js'
import { contradictionsIn } from './satisfiable.js'
import type { Subtypes } from './subtypes.js'

type Schema = Record<string, unknown>

/** The form of each keyword that holds schemas: a map, a list, or one schema. The content of other keywords is never read. */
const KEYWORDS = new Map(
  Object.entries({
    map: 'properties patternProperties dependentSchemas',
    list: 'prefixItems allOf anyOf oneOf',
    single: `items not if then else additionalProperties additionalItems unevaluatedProperties unevaluatedItems contains
      propertyNames contentSchema`,
    plain: `type discriminator dependentRequired ${[...SCHEMA_FORMS.keys()].join(' ')}`,
  }).flatMap(([kind, names]) => names.split(/\s+/).map(name => [name, kind] as const)),
)

const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']
/** Names of types in other languages, and the JSON Schema types that they mean. */
const OTHER_NAMES = new Map(
  Object.entries({
    string: 'str text char varchar uuid date datetime date-time timestamp time email uri url enum binary byte file',
    integer: 'int int32 int64 long short bigint',
    number: 'float double decimal numeric real',
    boolean: 'bool',
    array: 'list tuple set',
    object: 'dict map hash json struct',
    null: 'none nil undefined',
  }).flatMap(([type, names]) => names.split(' ').map(name => [name, type] as const)),
)
const REQUIRED_FALSE = 'no value is valid for the schema false, and one is required'
const MISSPELT_TYPE = ['typ', 'Type', 'TYPE', 'types', 'tpye']

/** A schema without one of these keywords cannot contradict itself. */
const LIMITING = new Set(
  `enum const default not minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems
  minProperties maxProperties`.split(/\s+/),
)
/** The most schemas of one value, and the most required names in each, that are compared. */
const PARTS_COMPARED = 50
const NAMES_COMPARED = 200

/** A value to visit where a schema is expected. */
interface Task {
  readonly value: unknown
  readonly place: Place
  /** The nearest enclosing schema with an `$id`. */
  readonly base: Schema | undefined
  /** True for a member of an `allOf`: the subtypes of a parent there are not visited. */
  readonly isPart: boolean
  /** True inside a property that only the server sets. It is not part of the input, so only its references are checked. */
  readonly isHidden: boolean
}

/**
 * Visits, in document order and without recursion, every schema that can become part of a tool's input. References are followed; each
 * schema is visited once, so cycles are legal. A broken reference is a fault at the place of its `$ref`. A `$ref` counts only where a
 * schema is expected: inside an example, a default or an extension, or as the name of a property, it is not a reference. OpenAPI 3.0
 * ignores the keywords next to a `$ref`; from 3.1 on they are visited too. `$dynamicRef` is treated like `$ref`. A value that is not a
 * schema allows any value, with the warning `schema_ignored`.
 */
export class SchemaWalk {
  private readonly seen = new Set<object>()
  private readonly seenHidden = new Set<object>()
  /** Schemas whose subtypes are visited already. */
  private readonly offered = new Set<object>()
  /** A stack: the last one is next. */
  private readonly tasks: Task[] = []

  constructor(
    private readonly reader: Reader,
    private readonly subtypes: Subtypes,
    private readonly is30: boolean,
  ) {}

  /** Visits the schema under `key` of the object at `up`, if there is one, and every schema inside. */
  check(value: unknown, up: Place, key: string, isRequired = false): void {
    if (value === undefined || value === null) return
    if (value === false && isRequired) this.reader.findings.warn('schema_unsatisfiable', REQUIRED_FALSE, up, key)
    this.tasks.push({ value, place: placeUnder(up, key), base: undefined, isPart: false, isHidden: false })
    for (let task = this.tasks.pop(); task !== undefined; task = this.tasks.pop()) this.visit(task)
  }

  private visit(task: Task): void {
    const { value: schema, place, isPart, isHidden } = task
    if (!isObject(schema)) {
      if (typeof schema !== 'boolean' && !isHidden)
        this.reader.findings.warn('schema_ignored', `this is not a schema; ${schemaMeant(schema)}`, place)
      return
    }
    const from = this.tasks.length
    const offered = isPart ? [] : this.subtypes.offeredFor(schema)
    if (offered.length > 0 && !this.offered.has(schema)) {
      this.offered.add(schema)
      for (const { value, place, base } of offered) this.tasks.push({ value, place, base, isPart: false, isHidden })
    }
    if (!this.seen.has(schema) && !(isHidden && this.seenHidden.has(schema))) {
      this.seenHidden.add(schema)
      if (!isHidden) this.seen.add(schema)
      const inside = typeof schema.$id === 'string' ? { ...task, base: schema } : task
      if (schema.$ref !== undefined) this.follow(schema, '$ref', inside)
      if (schema.$dynamicRef !== undefined) this.follow(schema, '$dynamicRef', inside)
      if (schema.$ref === undefined || !this.is30) {
        this.readKeywords(schema, inside)
        if (!isHidden) this.warnOf(schema, inside)
      }
    }
    if (this.tasks.length > from + 1) for (const task of this.tasks.splice(from).reverse()) this.tasks.push(task)
  }

  /** Follows the references of a schema, and adds the schemas in its keywords as tasks. */
  private readKeywords(schema: Schema, { place, base, isHidden }: Task): void {
    for (const keyword in schema) {
      const kind = KEYWORDS.get(keyword)
      if (kind === undefined) continue
      const value = schema[keyword]
      const form = isHidden || kind !== 'plain' ? undefined : SCHEMA_FORMS.get(keyword)
      if (form !== undefined) warnForm(keyword, value, form, place, this.reader.findings)
      if (kind === 'plain' && typeof value !== 'object') continue
      const at = placeUnder(place, keyword)
      if (kind === 'plain') {
        if (isReference(value)) this.reader.isMisplaced(value, at, quote(keyword))
        else if (Array.isArray(value) && (keyword === 'required' || keyword === 'type'))
          for (const i of value.keys()) this.reader.isMisplaced(value[i], placeUnder(at, i), quote(keyword))
      } else if (kind === 'single' && !(keyword === 'items' && Array.isArray(value))) {
        this.tasks.push({ value, place: at, base, isPart: false, isHidden })
      } else if (kind === 'map' ? isObject(value) && !isReference(value) : Array.isArray(value)) {
        const members = value as Record<string | number, unknown> // the keyword's form is a map or a list
        for (const key of Array.isArray(value) ? value.keys() : Object.keys(members)) {
          if (members[key] === false && keyword === 'properties' && requiredOf(schema).includes(key))
            this.reader.findings.warn('schema_unsatisfiable', REQUIRED_FALSE, at, key)
          this.tasks.push({
            value: members[key],
            place: placeUnder(at, key),
            base,
            isPart: keyword === 'allOf',
            isHidden: isHidden || (keyword === 'properties' && this.isSetByServer(members[key], base)),
          })
        }
      } else if (!this.reader.isMisplaced(value, at, quote(keyword)))
        this.tasks.push({ value: null, place: at, base, isPart: false, isHidden })
    }
  }

  /** Warns about what is accepted in a schema although it loses something. */
  private warnOf(schema: Schema, { place, base, isPart }: Task): void {
    const { findings } = this.reader
    this.warnUnknownType(schema, place)
    this.warnUnsatisfiable(schema, place, base, isPart)
    const mixed = this.subtypes.mixedBy(schema, base)
    if (mixed !== undefined) {
      const msg = `these are several subtypes by ${quote(mixed)} at once: the model does not see how they differ`
      findings.warn('discriminator_unresolved', msg, place, 'allOf')
    }
    if (schema.discriminator !== undefined)
      this.subtypes.warnUnresolved(schema, base, (msg, tail) =>
        findings.warn('discriminator_unresolved', msg, place, ...tail),
      )
  }

  /** Adds the target of a reference as a task. */
  private follow(schema: Schema, key: string, { place: at, base, isPart, isHidden }: Task): void {
    const { references, findings } = this.reader
    const target = this.reader.target({ value: schema, place: at }, key, 'schema', base)
    if (target === undefined) return
    const { value, place } = target
    if (isObject(value) && !this.seen.has(value) && references.endOf(target) === 'too far') {
      const msg = `the reference ${show(schema[key])} leads through more than ${DEFINITION_LIMITS.referenceHops} references`
      findings.fault('ref_cycle', msg, at, key)
    } else this.tasks.push({ value, place, base: target.base, isPart, isHidden })
  }

  private warnUnsatisfiable(schema: Schema, place: Place, base: Schema | undefined, isPart: boolean): void {
    const { findings } = this.reader
    let isLimited = false
    for (const key in schema) isLimited ||= LIMITING.has(key)
    if (!isLimited && schema.allOf === undefined && schema.additionalProperties !== false) return
    const alone = isLimited ? [...contradictionsIn([schema])] : []
    for (const { type, at, msg } of alone) findings.warn(type, msg, place, ...at)
    const parts = this.partsOf(schema, base)
    const schemas = parts.map(each => each.schema)
    const [first] = alone.length > 0 || parts.length === 1 ? [] : contradictionsIn(schemas)
    const together = schema.allOf === undefined ? '$ref' : 'allOf'
    if (first !== undefined)
      findings.warn(first.type, first.msg, place, first.type === 'default_invalid' ? 'default' : together)
    // A name that one part requires may be a property of another part.
    const missing = first === undefined && !isPart ? this.missingName(parts) : undefined
    if (missing === undefined) return
    const msg = `no value is valid for this schema: ${quote(missing)} is required, and one part allows no other properties than its own`
    findings.warn('schema_unsatisfiable', msg, place, parts.length === 1 ? 'required' : together)
  }

  /** Returns a required name that a part with `additionalProperties: false` does not allow. */
  private missingName(parts: readonly { schema: Schema; base: Schema | undefined }[]): string | undefined {
    if (!parts.some(({ schema }) => schema.additionalProperties === false)) return undefined
    const required = new Set(parts.flatMap(({ schema }) => requiredOf(schema)))
    const isSetByServer = (name: string) =>
      parts.some(({ schema, base }) => this.isSetByServer(ownProperty(schema.properties, name), base))
    for (const { schema } of parts) {
      if (schema.additionalProperties !== false || schema.patternProperties !== undefined) continue
      for (const name of required)
        if (typeof name === 'string' && ownProperty(schema.properties, name) === undefined && !isSetByServer(name))
          return name
    }
    return undefined
  }

  /** Returns a schema and those that describe the same value through `allOf` and references, up to a limit. */
  private partsOf(schema: Schema, base: Schema | undefined): { schema: Schema; base: Schema | undefined }[] {
    const parts = [{ schema, base }]
    for (const { schema: part, base } of parts) {
      const within = Array.isArray(part.allOf) ? part.allOf.slice(0, PARTS_COMPARED) : []
      const target = typeof part.$ref === 'string' ? this.reader.references.find(part.$ref, base) : undefined
      const found = target === undefined || isDangling(target) ? [] : [{ schema: target.value, base: target.base }]
      for (const each of [...found, ...within.map(each => ({ schema: each, base }))])
        if (
          parts.length < PARTS_COMPARED &&
          isObject(each.schema) &&
          !parts.some(({ schema }) => schema === each.schema)
        )
          parts.push({ schema: each.schema, base: each.base })
    }
    return parts
  }

  /** True for a property that only the server sets: it, or the schema it refers to, is `readOnly`. */
  private isSetByServer(property: unknown, base: Schema | undefined): boolean {
    if (!isObject(property)) return false
    const target = typeof property.$ref === 'string' ? this.reader.references.find(property.$ref, base) : undefined
    const end = target !== undefined && !isDangling(target) && isObject(target.value) ? target.value : {}
    return property.readOnly === true || end.readOnly === true
  }

  /** Warns `schema_type_unknown`: an unknown type constrains nothing. Also reports a misspelt keyword such as `typ`. */
  private warnUnknownType(schema: Schema, place: Place): void {
    const { findings } = this.reader
    const { type } = schema
    if (type === undefined) {
      const typo = MISSPELT_TYPE.find(key => typeof schema[key] === 'string' && knownType(schema[key]) !== undefined)
      const msg = `${quote(typo ?? '')} is not a keyword; did you mean "type"?`
      if (typo !== undefined) findings.warn('schema_type_unknown', msg, place, typo)
    } else if (!Array.isArray(type)) {
      if (!TYPES.includes(type as string)) findings.warn('schema_type_unknown', unknownType(type), place, 'type')
    } else {
      for (const [i, each] of type.entries())
        if (!TYPES.includes(each)) findings.warn('schema_type_unknown', unknownType(each), place, 'type', i)
    }
  }
}

/** Returns the JSON Schema type that a name means, if any. */
export function knownType(name: string): string | undefined {
  const text = name.trim().toLowerCase()
  return TYPES.includes(text) ? text : OTHER_NAMES.get(text)
}

function requiredOf({ required }: Schema): unknown[] {
  return Array.isArray(required) ? required.slice(0, NAMES_COMPARED) : []
}

function ownProperty(holder: unknown, name: string): unknown {
  return isObject(holder) && Object.hasOwn(holder, name) ? holder[name] : undefined
}

/** Returns a hint for a value that is not a schema. */
function schemaMeant(value: unknown): string {
  const type = typeof value === 'string' ? knownType(value) : undefined
  const meant = type === undefined ? flagMeant(value) : `{"type": "${type}"}`
  return meant === undefined ? 'it is read as "any value"' : `did you mean ${meant}?`
}

function unknownType(name: unknown): string {
  if (typeof name !== 'string')
    return 'a type is one of the words string, number, integer, boolean, array, object and null'
  const parts = name.slice(0, 100).split('|').map(knownType)
  const meant = parts.length > 1 && parts.every(each => each !== undefined) ? JSON.stringify(parts) : parts[0]
  const hint = meant === undefined ? 'it is read as "any value"' : `did you mean \`${meant}\`?`
  return `there is no type ${quote(name)}; ${hint}`
}
