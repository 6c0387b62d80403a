import { isDeepStrictEqual } from 'node:util'
import { originsOf, serverOf } from './check/addresses.js'
import { type CheckOptions, DEFAULT_AT } from './check/check.js'
import { type Loc, quote } from './check/findings.js'
import type { Schema } from './check/references.js'
import { type ReadFunction, readableFunctions } from './functions/functions.js'
import { asObject, comparable, type JsonSchema } from './functions/json-schema.js'

export const CHANGE_KINDS = [
  ...(['operation_added', 'operation_removed', 'argument_added', 'argument_removed', 'argument_required'] as const),
  ...(['argument_type_changed', 'argument_values_changed', 'origin_changed', 'changed'] as const),
]

/** A difference in the functions that a model gets, or in the calls of these functions. */
export interface DefinitionChange {
  /** `changed` is a difference that fits no other kind. */
  kind: (typeof CHANGE_KINDS)[number]
  /** The operationId. Empty if the change is not in an operation. */
  operation: string
  /** The argument or one of its properties, for example `requestBody.name`. */
  argument?: string
  /** The previous type, address or function. `to` is the new value. A new argument has only `to`, which is `required` or `optional`. */
  from?: string
  to?: string
  /** The values that the schema no longer lists. `added` has the newly listed values, or new origins of calls. Each list has at most 100. */
  removed?: unknown[]
  added?: unknown[]
  /** The path of the changed part in the new definition. Absent if this definition has no such part, for example for a removed operation. */
  loc?: Loc
  msg: string
}

type Report = (kind: DefinitionChange['kind'], msg: string, details?: Partial<DefinitionChange>) => void
type Schemas = Record<string, JsonSchema>

const MOST_CHANGES = 10_000
const MOST_LISTED = 100
const SHOWN = 5
const DEFINITIONS = '#/$defs/'

/**
 * Lists what changes if `after` replaces `before`. Matches operations by operationId, and arguments by the name that the model uses. `headerNames`
 * has the names of the tool's custom headers. If these headers change too, `headerNamesBefore` has the previous names.
 */
export function definitionChanges(
  before: unknown,
  after: unknown,
  { headerNamesBefore, ...options }: CheckOptions & { headerNamesBefore?: readonly string[] } = {},
): DefinitionChange[] {
  const changes: DefinitionChange[] = []
  const reportOf =
    (operation: string, loc?: Loc): Report =>
    (kind, msg, details) => {
      changes.push({ kind, operation, ...details, ...(loc && { loc }), msg })
    }
  const { at = DEFAULT_AT } = options
  const old = readableFunctions(before, headerNamesBefore ? { ...options, headerNames: headerNamesBefore } : options)
  const next = readableFunctions(after, options)
  if (old === undefined || next === undefined) {
    const which = old === undefined ? 'old' : 'new'
    reportOf('')('changed', `no functions can be made from the ${which} definition, so nothing is compared`)
    return changes
  }
  const reportServer = reportOf('', [...at, 'servers', 0, 'url'])
  const [from, to] = [serverOf(before), serverOf(after)]
  const ofFirst = (each: unknown) => [...originsOf({ servers: [Object(Object(each).servers)[0]] })]
  const [origins, nextOrigins] = [ofFirst(before), ofFirst(after)]
  const others = nextOrigins.slice(1).filter(each => !origins.includes(each))
  if (from !== to) {
    const kind = origins[0] === nextOrigins[0] ? 'changed' : 'origin_changed'
    reportServer(kind, `calls go to ${quote(to)} instead of ${quote(from)}`, { from, to })
  }
  if (others.length > 0)
    reportServer('origin_changed', `calls ${shown('can also go to', others)}`, { added: others.slice(0, MOST_LISTED) })
  const security = (each: unknown) => [Object(each).security, Object(Object(each).components).securitySchemes]
  if (!isDeepStrictEqual(security(before), security(after)))
    reportOf('', [...at, 'security'])('changed', 'the security schemes or security requirements changed')
  const byId = new Map(next.map(each => [each.operationId, each]))
  for (const each of old) {
    const same = byId.get(each.operationId)
    byId.delete(each.operationId)
    if (same === undefined) reportOf(each.operationId)('operation_removed', 'the operation was removed')
    else compareFunctions(each, same, reportOf(each.operationId, same.loc))
  }
  for (const each of byId.values()) reportOf(each.operationId, each.loc)('operation_added', 'the operation is new')
  const omitted = changes.splice(MOST_CHANGES).length
  if (omitted > 0) changes.push({ kind: 'changed', operation: '', msg: `changes not listed: ${omitted}` })
  return changes
}

function compareFunctions(old: ReadFunction, next: ReadFunction, report: Report): void {
  const target = ({ name, method, path }: ReadFunction) => `${name}, ${method.toUpperCase()} ${path}`
  const [from, to] = [target(old), target(next)]
  if (from !== to) report('changed', `the function is ${quote(to)} instead of ${quote(from)}`, { from, to })
  if (old.description !== next.description) report('changed', 'the summary or description of the operation changed')
  if (!isDeepStrictEqual(old.operation.record.spec.security, next.operation.record.spec.security))
    report('changed', 'the security requirements of the operation changed')
  for (const form of next.arguments) {
    const { argument } = form
    const before = old.arguments.find(each => each.argument === argument)
    if (before && !isDeepStrictEqual(before, form))
      report('changed', `the location, name or encoding of the argument ${quote(argument)} changed`, { argument })
  }
  const $defs: Schemas = Object(old.parameters.$defs)
  const next$defs: Schemas = Object(next.parameters.$defs)
  const compared = new Set<unknown>()
  for (const [argument, one, other] of sharedMembers(old.parameters, next.parameters, '', report)) {
    if (asObject(one).$ref === asObject(other).$ref) compared.add(asObject(other).$ref)
    const [whole, nextWhole] = [resolved(one, $defs), resolved(other, next$defs)]
    const hasMembers = whole.properties !== undefined && nextWhole.properties !== undefined
    compareSchemas(whole, nextWhole, argument, report, hasMembers ? ['properties', 'required'] : [])
    for (const [inner, member, nextMember] of hasMembers ? sharedMembers(whole, nextWhole, `${argument}.`, report) : [])
      compareSchemas(asObject(member), asObject(nextMember), inner, report)
  }
  for (const [name, schema] of Object.entries(next$defs))
    if (!compared.has(`${DEFINITIONS}${name}`) && Object.hasOwn($defs, name) && !isDeepStrictEqual($defs[name], schema))
      report('changed', `the schema ${quote(name)}, to which arguments refer, changed`)
}

/** Replaces a `$ref` with the schema that it refers to. Keywords next to the `$ref` take precedence. */
function resolved(schema: JsonSchema, $defs: Schemas): Schema {
  const { $ref, ...others } = asObject(schema)
  return $ref === undefined ? others : { ...asObject($defs[String($ref).slice(DEFINITIONS.length)] ?? true), ...others }
}

/** Reports properties that were added or removed, or that became required or optional. Returns the path and both schemas of each common property. */
function sharedMembers(old: Schema, next: Schema, path: string, report: Report): [string, JsonSchema, JsonSchema][] {
  const from = new Map<string, JsonSchema>(Object.entries(Object(old.properties)))
  const to = new Map<string, JsonSchema>(Object.entries(Object(next.properties)))
  const [needed, nextNeeded] = [old, next].map(({ required }) => new Set(Array.isArray(required) ? required : []))
  return [...new Set([...from.keys(), ...to.keys()])].flatMap(name => {
    const argument = `${path}${name}`
    const need = nextNeeded?.has(name) ? 'required' : 'optional'
    const tell = (kind: DefinitionChange['kind'], what: string, details?: Partial<DefinitionChange>) =>
      report(kind, `the argument ${quote(argument)} is ${what}`, { argument, ...details })
    const [before, now] = [from.get(name), to.get(name)]
    if (now === undefined) tell('argument_removed', 'gone')
    else if (before === undefined) tell('argument_added', `new and ${need}`, { to: need })
    else if (needed?.has(name) !== nextNeeded?.has(name))
      tell(need === 'required' ? 'argument_required' : 'changed', `${need} now`)
    return before === undefined || now === undefined ? [] : [[argument, before, now]]
  })
}

/** Reports how the schema of an argument changed. Ignores the keywords in `reported`, which are compared elsewhere. */
function compareSchemas(old: Schema, next: Schema, argument: string, report: Report, reported: string[] = []): void {
  const subject = `the argument ${quote(argument)}`
  const [from, to] = [typeOf(old), typeOf(next)]
  if (from !== to)
    report('argument_type_changed', `the type of ${subject} is "${to}" instead of "${from}"`, { argument, from, to })
  const [removed, added] = [missing(old, next), missing(next, old)]
  const parts = [...shown('no longer lists', removed), ...shown('now lists', added)]
  if (parts.length > 0)
    report('argument_values_changed', `${subject} ${parts.join(', and ')}`, { argument, removed, added })
  const compared = ['type', 'enum', 'const', ...reported]
  const keywords = [...new Set([...Object.keys(old), ...Object.keys(next)])].filter(key => !compared.includes(key))
  const differing = keywords.filter(key => !isDeepStrictEqual(old[key], next[key]))
  if (differing.length > 0) report('changed', `the ${differing.join(' and ')} of ${subject} changed`, { argument })
}

function typeOf({ type }: Schema): string {
  return type === undefined ? 'any' : [type].flat().sort().join(' or ')
}

/** Returns the values that only the first schema lists. */
function missing(one: Schema, other: Schema): unknown[] {
  const valuesOf = ({ const: only, enum: listed }: Schema): unknown[] =>
    only === undefined ? (Array.isArray(listed) ? listed : []) : [only]
  const known = new Set(valuesOf(other).map(comparable))
  return valuesOf(one)
    .filter(each => !known.has(comparable(each)))
    .slice(0, MOST_LISTED)
}

function shown(verb: string, values: readonly unknown[]): string[] {
  const texts = values.slice(0, SHOWN).map(each => quote(typeof each === 'string' ? each : comparable(each)))
  return texts.length === 0 ? [] : [`${verb} ${texts.join(', ')}${values.length > SHOWN ? ' and more' : ''}`]
}
