import { quote, show } from './findings.js'
import { flagMeant, numberMeant } from './forms.js'
import { isObject } from './references.js'

type Schema = Record<string, unknown>

/** Why no value is valid, and the keyword, or the list item under it, that causes it. */
export interface Contradiction {
  readonly type: 'schema_unsatisfiable' | 'default_invalid' | 'value_ignored'
  readonly at: readonly (string | number)[]
  readonly msg: string
}

/** A bound, whether it is exclusive (`isOpen`), and the keyword that sets it. */
type Bound = { readonly value: number | bigint; readonly isOpen: boolean; readonly key: string } | undefined

/** The combined limits of several schemas on one value. */
interface Limits {
  /** Undefined if all types are allowed. Contains `null` if one schema allows it by `nullable`. */
  readonly types: ReadonlySet<string> | undefined
  readonly bounds: readonly { readonly type: string; readonly low: Bound; readonly high: Bound }[]
}

const BOUNDED = [
  ['number', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  ['string', 'minLength', 'maxLength'],
  ['array', 'minItems', 'maxItems'],
  ['object', 'minProperties', 'maxProperties'],
] as const
const TYPES = new Set<unknown>(['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'])
const VALUES_COMPARED = 200
const PATTERN_CHARACTERS = 256
const VALUES_JUDGED = 10_000

/** Yields the contradictions of schemas that describe the same value. The first schema is the reported one. Of patterns only lists of words are examined. */
export function* contradictionsIn(schemas: readonly Schema[]): Generator<Contradiction> {
  const [schema = {}] = schemas
  const limits = limitsOf(schemas)
  const reason = impossible(limits, schemas)
  if (reason !== undefined) {
    yield { type: 'schema_unsatisfiable', ...reason, msg: `no value is valid for this schema: ${reason.msg}` }
    return
  }
  yield* uselessBounds(schema, limits)
  yield* excludedValues(schemas, limits)
  const { default: value } = schema
  if (value === undefined || value === null) return
  const allowed = valuesOf(schema)
  const isAllowed = allowed === undefined || isListed(value, allowed)
  const problem = misfit(value, limits) ?? (isAllowed ? undefined : 'is not one of the values that are allowed')
  if (problem === undefined) return
  const msg = `the default ${show(value)} ${problem}${isAllowed ? meantHint([value], limits) : ''}`
  yield { type: 'default_invalid', at: ['default'], msg }
}

function impossible({ types, bounds }: Limits, schemas: readonly Schema[]): { at: string[]; msg: string } | undefined {
  if (types?.size === 0) return { at: ['type'], msg: 'no type is allowed by all of its parts' }
  if (schemas.some(({ not }) => not === true || (isObject(not) && Object.keys(not).length === 0)))
    return { at: ['not'], msg: '"not" excludes every value' }
  const isWhole = types !== undefined && !types.has('number')
  const crossed = bounds.filter(
    ({ low, high }) =>
      low !== undefined &&
      high !== undefined &&
      (isBeyond(low.value, high, 1) || isBeyond(high.value, low, -1) || (isWhole && !hasInteger(low, high))),
  )
  const [first] = crossed
  if (first?.low === undefined || first.high === undefined) return undefined
  const open = [...(types ?? ['any'])].filter(
    type => type !== 'null' && !crossed.some(each => each.type === kindOf(type)),
  )
  if (open.length > 0) return undefined
  const { low, high } = first
  const kind = isWhole && first.type === 'number' ? 'integer' : 'value'
  const said = low.value > high.value ? 'is above' : `leaves no ${kind} below`
  return { at: [low.key], msg: `${low.key} ${low.value} ${said} ${high.key} ${high.value}` }
}

/** True if an integer is between two bounds. */
function hasInteger(low: NonNullable<Bound>, high: NonNullable<Bound>): boolean {
  const [above, below] = [Number(low.value), Number(high.value)]
  const first = low.isOpen ? Math.floor(above) + 1 : Math.ceil(above)
  return first <= (high.isOpen ? Math.ceil(below) - 1 : Math.floor(below))
}

/** Yields bounds that do not apply to the schema's types. */
function* uselessBounds(schema: Schema, { types }: Limits): Generator<Contradiction> {
  if (types === undefined) return
  const isOwn = (kind: string) => types.has(kind) || (kind === 'number' && types.has('integer'))
  for (const [kind, lowest, highest] of BOUNDED) {
    if (isOwn(kind) || (schema[lowest] ?? schema[highest]) === undefined) continue
    const own = BOUNDED.find(([each]) => isOwn(each))
    for (const [i, key] of [lowest, highest].entries()) {
      if (typeof schema[key] !== 'number') continue
      const hint = own === undefined ? '' : `; did you mean "${own[i + 1]}"?`
      yield { type: 'value_ignored', at: [key], msg: `"${key}" limits the type ${kind} only: it is ignored${hint}` }
    }
  }
}

/** Yields enumerated values, or a constant, that the schemas exclude: one finding for all, or one for each index. */
function* excludedValues(schemas: readonly Schema[], limits: Limits): Generator<Contradiction> {
  const type = 'schema_unsatisfiable'
  // With several schemas only short lists are compared, because thousands may refer to one long list.
  const most = schemas.length === 1 ? VALUES_JUDGED : VALUES_COMPARED
  const lists = schemas.flatMap(each => [valuesOf(each) ?? []]).filter(({ length }) => length > 0 && length <= most)
  const [values, ...others] = lists
  if (values === undefined) return
  const patterns = schemas.flatMap(({ pattern }) => wordsOf(pattern))
  const excluded: { i: number; value: unknown; reason: string }[] = []
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    const isElsewhere = others.every(list => isListed(value, list))
    const unmatched = typeof value === 'string' && patterns.find(({ words }) => !words.includes(value))
    const reason =
      misfit(value, limits) ??
      (isElsewhere ? undefined : 'is not in the other list of values') ??
      (unmatched ? `does not match the pattern ${quote(unmatched.pattern)}` : undefined)
    if (reason !== undefined) excluded.push({ i, value, reason })
  }
  const [first] = excluded
  if (first === undefined) return
  const key = schemas[0]?.const === undefined ? 'enum' : 'const'
  if (excluded.length === values.length) {
    const isMeantForItems = limits.types?.has('array') && !Array.isArray(first.value)
    const hint = isMeantForItems ? `: put ${quote(key)} into "items"` : meantHint(values, limits)
    yield { type, at: [key], msg: `no value is valid for this schema: ${show(first.value)} ${first.reason}${hint}` }
  } else if (valuesOf(schemas[0] ?? {}) === values)
    for (const { i, value, reason } of excluded.slice(0, VALUES_COMPARED))
      yield { type, at: [key, i], msg: `${show(value)} ${reason} and can never be sent${meantHint([value], limits)}` }
}

function valuesOf({ const: only, enum: listed }: Schema): readonly unknown[] | undefined {
  if (only !== undefined) return [only]
  return Array.isArray(listed) && listed.length > 0 ? listed : undefined
}

/** Parses a pattern that only lists words, such as `^(a|b)$`. No pattern is run. */
function wordsOf(pattern: unknown): { pattern: string; words: string[] }[] {
  if (typeof pattern !== 'string' || pattern.length > PATTERN_CHARACTERS) return []
  const [, group, word = group] = /^\^(?:\((?:\?:)?([\w -]+(?:\|[\w -]+)*)\)|([\w -]+))\$$/.exec(pattern) ?? []
  return word === undefined ? [] : [{ pattern, words: word.split('|') }]
}

function limitsOf(schemas: readonly Schema[]): Limits {
  let types: ReadonlySet<string> | undefined
  for (const schema of schemas) {
    const { type = null } = schema
    const named: unknown[] = Array.isArray(type) ? type : [type]
    if (named.length === 0 || !named.every(each => TYPES.has(each))) continue
    const own = new Set(named as string[])
    if (schema.nullable === true) own.add('null')
    types = types === undefined ? own : common(types, own)
  }
  const bounds: Limits['bounds'][number][] = []
  for (const [type, lowest, highest, aboveAll, belowAll] of BOUNDED) {
    let [low, high]: Bound[] = []
    for (const schema of schemas) {
      low = tighter(low, schema, lowest, aboveAll, 1)
      high = tighter(high, schema, highest, belowAll, -1)
    }
    if (low !== undefined || high !== undefined) bounds.push({ type, low, high })
  }
  return { types, bounds }
}

/**
 * Returns the tighter of `best` and the schema's bound under `key`: a lower one (`side` 1) or an upper one (-1). `exclusive` names the
 * exclusive keyword, which is a flag in OpenAPI 3.0.
 */
function tighter(best: Bound, schema: Schema, key: string, exclusive: string | undefined, side: 1 | -1): Bound {
  const [value, twin] = [schema[key], exclusive && schema[exclusive]]
  let bound = best
  if (isNumber(value) && (bound === undefined || isBeyond(value, bound, side)))
    bound = { value, isOpen: twin === true, key }
  if (exclusive !== undefined && isNumber(twin) && (bound === undefined || isBeyond(twin, bound, side)))
    bound = { value: twin, isOpen: true, key: exclusive }
  return bound
}

function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'number' || typeof value === 'bigint'
}

function common(one: ReadonlySet<string>, other: ReadonlySet<string>): Set<string> {
  const within = (types: ReadonlySet<string>, type: string) =>
    types.has(type) || (type === 'integer' && types.has('number'))
  return new Set([...[...one].filter(type => within(other, type)), ...[...other].filter(type => within(one, type))])
}

/** Returns why a value is outside the limits, or undefined. */
function misfit(value: unknown, { types, bounds }: Limits): string | undefined {
  const type = typeOf(value)
  if (types !== undefined && !isOf(types, value)) return `is not of the type ${[...types].join(' or ')}`
  const { low, high } = bounds.find(each => each.type === kindOf(type)) ?? {}
  if (low === undefined && high === undefined) return undefined
  const size = sizeOf(value)
  const [smaller, larger] = type === 'string' ? ['shorter than', 'longer than'] : ['below', 'above']
  if (low !== undefined && isBeyond(size, low, -1)) return `is ${smaller} ${low.key} ${low.value}`
  return high !== undefined && isBeyond(size, high, 1) ? `is ${larger} ${high.key} ${high.value}` : undefined
}

function isOf(types: ReadonlySet<string>, value: unknown): boolean {
  const type = typeOf(value)
  return types.has(type) || (type === 'integer' && types.has('number'))
}

/** True if a size is outside a bound, or equal to an exclusive one. */
function isBeyond(size: number | bigint, bound: Bound, side: 1 | -1): boolean {
  if (bound === undefined) return false
  return size === bound.value ? bound.isOpen : size > bound.value === (side === 1)
}

function kindOf(type: string): string {
  return type === 'integer' ? 'number' : type
}

function typeOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  if (typeof value === 'bigint') return 'integer'
  return typeof value === 'number' && Number.isInteger(value) ? 'integer' : typeof value
}

function sizeOf(value: unknown): number | bigint {
  if (typeof value === 'number' || typeof value === 'bigint') return value
  if (typeof value === 'string') return [...value].length
  return Array.isArray(value) ? value.length : Object.keys(value ?? {}).length
}

/** True if the list contains the value. Objects and lists are not compared. */
function isListed(value: unknown, list: readonly unknown[]): boolean {
  return typeof value === 'object' && value !== null ? true : list.includes(value)
}

/** Returns a hint for values of a wrong type: the converted values, or the type to declare. */
function meantHint(values: readonly unknown[], { types = new Set() }: Limits): string {
  const [type, ...others] = types
  if (type === undefined || others.length > 0 || values.some(value => isOf(types, value))) return ''
  const meant = values.slice(0, 5).map(value => {
    if (type === 'array') return `[${show(value)}]`
    if (type === 'string') return typeof value === 'object' ? undefined : show(String(value))
    if (type === 'boolean') return flagMeant(value)
    return type === 'number' || type === 'integer' ? numberMeant(value) : undefined
  })
  if (!meant.includes(undefined)) return `; did you mean ${meant.join(', ')}${values.length > 5 ? ', ...' : ''}?`
  const [first, ...rest] = new Set(values.map(typeOf))
  return first !== undefined && rest.length === 0 ? `; did you mean the type ${first}?` : ''
}
