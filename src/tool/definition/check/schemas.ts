import { type Place, placeUnder, quote, type Resolved } from './findings.js'
import { DEFINITION_LIMITS } from './limits.js'
import type { Reader } from './reader.js'
import { isDangling, isObject, isReference } from './references.js'
import type { Subtypes } from './subtypes.js'

type Schema = Record<string, unknown>

/** What keywords hold: a map of schemas, a list of them, one, or neither schema nor data. The content of all others is never read. */
const KEYWORDS = new Map(
  Object.entries({
    map: 'properties patternProperties dependentSchemas',
    list: 'prefixItems allOf anyOf oneOf',
    single: `items not if then else additionalProperties additionalItems unevaluatedProperties unevaluatedItems contains
      propertyNames contentSchema`,
    plain: `type format title description required enum pattern minimum maximum minLength maxLength minItems maxItems nullable
      readOnly writeOnly deprecated discriminator dependentRequired`,
  }).flatMap(([kind, names]) => names.split(/\s+/).map(name => [name, kind] as const)),
)

const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']
/** Names that types have in other languages. */
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
const MISSPELT_TYPE = ['typ', 'Type', 'TYPE', 'types', 'tpye']

/** Parts of one `allOf` that are compared, and names that each requires. */
const MEMBERS_COMPARED = 50
const NAMES_COMPARED = 200

/** A schema that is to be visited, or what stands in the place of one. */
interface Task {
  readonly value: unknown
  readonly place: Place
  /** The nearest schema around it with an `$id`. */
  readonly base: Schema | undefined
  /** True for a member of an `allOf`: of a parent there no subtypes are offered. */
  readonly isPart: boolean
}

/**
 * Visits every schema that can become part of a tool's input, following references, each schema once, in document order, without
 * recursion.
 *
 * References that lead nowhere useful are at fault at the place of the `$ref`. Circular schemas are legal. A `$ref` counts only where
 * a schema stands: one inside an example, a default, an extension or as the name of a property is not a reference. Beside a `$ref`,
 * 3.0 ignores everything; from 3.1 on its neighbours are visited too. `$dynamicRef` is followed like `$ref` to where it leads at first.
 * What is no schema constrains nothing, becomes "any value" and is the warning `schema_ignored`.
 */
export class SchemaWalk {
  private readonly seen = new Set<object>()
  /** Schemas whose subtypes are visited. */
  private readonly offered = new Set<object>()
  /** The next one stands last. */
  private readonly tasks: Task[] = []

  constructor(
    private readonly reader: Reader,
    private readonly subtypes: Subtypes,
    private readonly is30: boolean,
  ) {}

  /** Visits what `key` holds in the object at `up`, if it holds anything, and all that is inside. */
  check(value: unknown, up: Place, key: string): void {
    if (value === undefined || value === null) return
    this.tasks.push({ value, place: placeUnder(up, key), base: undefined, isPart: false })
    for (let task = this.tasks.pop(); task !== undefined; task = this.tasks.pop()) this.visit(task)
  }

  private visit({ value: schema, place, base: outer, isPart }: Task): void {
    if (!isObject(schema)) {
      const msg = 'this is not a schema; it is read as "any value"'
      if (typeof schema !== 'boolean') this.reader.findings.warn('schema_ignored', msg, place)
      return
    }
    const from = this.tasks.length
    const offered = isPart ? [] : this.subtypes.offeredFor(schema)
    if (offered.length > 0 && !this.offered.has(schema)) {
      this.offered.add(schema)
      for (const { value, place, base } of offered) this.tasks.push({ value, place, base, isPart: false })
    }
    if (!this.seen.has(schema)) {
      this.seen.add(schema)
      const base = typeof schema.$id === 'string' ? schema : outer
      if (schema.$ref !== undefined) this.follow({ value: schema, place }, '$ref', base, isPart)
      if (schema.$dynamicRef !== undefined) this.follow({ value: schema, place }, '$dynamicRef', base, isPart)
      if (schema.$ref === undefined || !this.is30) this.readKeywords(schema, place, base)
    }
    if (this.tasks.length > from + 1) for (const task of this.tasks.splice(from).reverse()) this.tasks.push(task)
  }

  /** Looks at a schema's own keywords; the schemas that they hold become tasks. */
  private readKeywords(schema: Schema, place: Place, base: Schema | undefined): void {
    for (const keyword of Object.keys(schema)) {
      const kind = KEYWORDS.get(keyword)
      if (kind === undefined) continue
      const value = schema[keyword]
      if (kind === 'plain') {
        const at = placeUnder(place, keyword)
        if (isReference(value)) this.reader.isMisplaced(value, at, quote(keyword))
        else if (Array.isArray(value) && (keyword === 'required' || keyword === 'type'))
          for (const i of value.keys()) this.reader.isMisplaced(value[i], placeUnder(at, i), quote(keyword))
      } else if (kind === 'single' && !(keyword === 'items' && Array.isArray(value))) {
        this.tasks.push({ value, place: placeUnder(place, keyword), base, isPart: false })
      } else {
        const at = placeUnder(place, keyword)
        const isPart = keyword === 'allOf'
        if (kind === 'map' ? isObject(value) && !isReference(value) : Array.isArray(value)) {
          const members = value as Record<string | number, unknown> // a map or a list, as the keyword wants it
          for (const key of Array.isArray(value) ? value.keys() : Object.keys(members))
            this.tasks.push({ value: members[key], place: placeUnder(at, key), base, isPart })
        } else if (!this.reader.isMisplaced(value, at, quote(keyword))) {
          this.tasks.push({ value: null, place: at, base, isPart: false })
        }
      }
    }
    this.warnUnknownType(schema, place)
    if (Array.isArray(schema.allOf)) this.warnUnsatisfiable(schema, schema.allOf, place, base)
    const mixed = this.subtypes.mixedBy(schema, base)
    if (mixed !== undefined) {
      const msg = `these are several subtypes by ${quote(mixed)} at once: the model is told of no selector`
      this.reader.findings.warn('discriminator_unresolved', msg, place, 'allOf')
    }
    if (schema.discriminator !== undefined)
      this.subtypes.warnUnresolved(schema, base, (msg, tail) =>
        this.reader.findings.warn('discriminator_unresolved', msg, place, ...tail),
      )
  }

  /** Adds what a reference of a schema leads to. */
  private follow(schema: Resolved, key: string, base: Schema | undefined, isPart: boolean): void {
    const { references, findings } = this.reader
    const target = this.reader.target(schema, key, 'schema', base)
    if (target === undefined) return
    const { value, place } = target
    if (isObject(value) && !this.seen.has(value) && references.endOf(target) === 'too far') {
      const msg = `the reference ${quote(String(schema.value[key]))} leads through more than ${DEFINITION_LIMITS.referenceHops} references`
      findings.fault('ref_cycle', msg, schema.place, key)
    } else this.tasks.push({ value, place, base: target.base, isPart })
  }

  /** `schema_unsatisfiable`: a member that allows no other properties than its own, where another one requires more. */
  private warnUnsatisfiable(schema: Schema, members: unknown[], place: Place, base: Schema | undefined): void {
    const meant = members.slice(0, MEMBERS_COMPARED).map(each => {
      if (!isObject(each) || typeof each.$ref !== 'string') return each
      const target = this.reader.references.find(each.$ref, base)
      return isDangling(target) ? undefined : target.value
    })
    const parts = [schema, ...meant].filter(isObject)
    const required = parts.flatMap(each => (Array.isArray(each.required) ? each.required.slice(0, NAMES_COMPARED) : []))
    for (const each of parts) {
      if (each.additionalProperties !== false || each.patternProperties !== undefined) continue
      const properties = isObject(each.properties) ? each.properties : {}
      const missing = required.find(name => typeof name === 'string' && !Object.hasOwn(properties, name))
      if (missing === undefined) continue
      const msg = `nothing satisfies this schema: ${quote(missing)} is required, and one part allows no properties but its own`
      this.reader.findings.warn('schema_unsatisfiable', msg, place, 'allOf')
      return
    }
  }

  /** `schema_type_unknown`: a type that JSON Schema does not have constrains nothing. A word such as `typ` for the keyword is one too. */
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

/** The type of JSON Schema that a name means, if it means one. */
export function knownType(name: string): string | undefined {
  const text = name.trim().toLowerCase()
  return TYPES.includes(text) ? text : OTHER_NAMES.get(text)
}

function unknownType(name: unknown): string {
  if (typeof name !== 'string')
    return 'a type is one of the words string, number, integer, boolean, array, object and null'
  const parts = name.slice(0, 100).split('|').map(knownType)
  const meant = parts.length > 1 && parts.every(each => each !== undefined) ? JSON.stringify(parts) : parts[0]
  const hint = meant === undefined ? 'it is read as "any value"' : `did you mean \`${meant}\`?`
  return `there is no type ${quote(name)}; ${hint}`
}
