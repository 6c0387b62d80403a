import type { Loc } from '../../../errors.js'
import type { BodyInput } from '../check/bodies.js'
import { jsonMediaType } from '../check/bodies.js'
import { type CheckOptions, DEFAULT_AT, type Inspection, inspection } from '../check/check.js'
import { locOf, type Place, placeUnder, quote } from '../check/findings.js'
import { DEFAULT_DEFINITION_LIMITS } from '../check/limits.js'
import type { OperationInput } from '../check/operations.js'
import { originsOf } from '../check/origins.js'
import { keyOf, type ParameterInput } from '../check/parameters.js'
import { isObject } from '../check/references.js'
import { areEqual, Structures } from '../check/structures.js'
import { InputSchemas } from '../functions/functions.js'
import type { ConvertedSchema } from '../functions/json-schema.js'
import { type ChangeClass, type Difference, type Ledger, RefPairs, SchemaComparison } from './schema-comparison.js'

export type ChangeKind =
  | 'definition_unreadable'
  | 'server_changed'
  | 'operation_removed'
  | 'operation_renamed'
  | 'operation_added'
  | 'operation_moved'
  | 'parameter_added'
  | 'parameter_removed'
  | 'parameter_required'
  | 'parameter_optional'
  | 'parameter_type_changed'
  | 'parameter_schema_changed'
  | 'body_added'
  | 'body_removed'
  | 'body_required'
  | 'body_optional'
  | 'body_changed'
  | 'body_media_type_changed'
  | 'parameter_style_changed'
  | 'security_changed'
  | 'comparison_incomplete'

export interface DefinitionChange {
  class: ChangeClass
  kind: ChangeKind
  /** The operationId, the one before for what was renamed; empty for what concerns the whole definition. */
  operation: string
  /** Where the change stands in the new definition; absent for what is not there any more. */
  loc?: Loc
  msg: string
}

export interface DefinitionImpact {
  changes: DefinitionChange[]
}

/** Two documents that are read in the same way. */
interface Side {
  readonly operations: readonly OperationInput[]
  readonly schemas: InputSchemas
}

/** Changes told of one definition; the last one says how many more there are. */
const MOST_CHANGES = 10_000
const SHOWN_ORIGINS = 5
const SERVER_CHARACTERS = 2048

/**
 * What changes for the users of a tool when the definition `before` is replaced by `after`: servers and security, then operations, matched
 * by operationId, in the order of the old document. Never throws; work and answer are bounded, and what was left out is said by the last
 * change.
 */
export function compareDefinitions(before: unknown, after: unknown, options: CheckOptions = {}): DefinitionImpact {
  const old = inspection(before, options, true)
  const next = inspection(after, options, true)
  const oldSide = sideOf(old)
  const nextSide = sideOf(next)
  if (oldSide === undefined || nextSide === undefined) {
    const which = oldSide === undefined ? 'old' : 'new'
    const msg = `the ${which} definition cannot be read, so nothing can be compared`
    return { changes: [{ class: 'unknown', kind: 'definition_unreadable', operation: '', msg }] }
  }
  // Both were walked and nest no deeper than the limit, so that comparing them as they stand comes to an end.
  if (areEqual(before, after)) return { changes: [] }
  const { functionValues } = { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const comparison = new Comparison(oldSide, nextSide, functionValues)
  comparison.changes.push(...serverChanges(before, after, options), ...securityChanges(before, after, options))
  comparison.run()
  return { changes: comparison.result() }
}

function sideOf({ operations, readings }: Inspection): Side | undefined {
  if (readings === undefined) return undefined
  return { operations, schemas: new InputSchemas(readings, []) }
}

/** Another first server, and origins that the definitions do not share: the values of server variables count. */
function serverChanges(before: unknown, after: unknown, options: CheckOptions): DefinitionChange[] {
  const [old, next] = [firstServer(before), firstServer(after)]
  const reasons = old === next ? [] : [`calls go to ${quote(next)} instead of ${quote(old)}`]
  const [oldOrigins, nextOrigins] = [originsOf(before), originsOf(after)]
  const added = [...nextOrigins].filter(each => !oldOrigins.has(each))
  const gone = [...oldOrigins].filter(each => !nextOrigins.has(each))
  if (added.length > 0) reasons.push(`calls may go to ${shownOrigins(added)}`)
  if (gone.length > 0) reasons.push(`no call goes to ${shownOrigins(gone)} any more`)
  if (reasons.length === 0) return []
  const loc: Loc = [...(options.at ?? DEFAULT_AT), 'servers', 0, 'url']
  return [{ class: 'unknown', kind: 'server_changed', operation: '', loc, msg: reasons.join('; ') }]
}

function shownOrigins(origins: readonly string[]): string {
  const more = origins.length > SHOWN_ORIGINS ? ` and ${origins.length - SHOWN_ORIGINS} more` : ''
  return `${origins.slice(0, SHOWN_ORIGINS).map(quote).join(', ')}${more}`
}

/** The address of the first server, its variables by their defaults. */
function firstServer(definition: unknown): string {
  if (!isObject(definition) || !Array.isArray(definition.servers)) return ''
  const [server] = definition.servers
  if (!isObject(server) || typeof server.url !== 'string') return ''
  const variables = isObject(server.variables) ? server.variables : {}
  return server.url.slice(0, SERVER_CHARACTERS).replace(/\{([^{}]*)\}/g, (whole, name: string) => {
    const variable = Object.hasOwn(variables, name) ? variables[name] : undefined
    return isObject(variable) && typeof variable.default === 'string'
      ? variable.default.slice(0, SERVER_CHARACTERS)
      : whole
  })
}

function securityChanges(before: unknown, after: unknown, options: CheckOptions): DefinitionChange[] {
  if (areEqual(securityOf(before), securityOf(after))) return []
  const loc: Loc = [...(options.at ?? DEFAULT_AT), 'security']
  return [
    { class: 'unknown', kind: 'security_changed', operation: '', loc, msg: 'calls are authorized in another way' },
  ]
}

function securityOf(definition: unknown): unknown {
  if (!isObject(definition)) return null
  const components = isObject(definition.components) ? definition.components : {}
  return [definition.security ?? null, components.securitySchemes ?? null]
}

class Comparison {
  readonly changes: DefinitionChange[] = []
  private omitted = 0
  private readonly ledger: Ledger
  /** What was found in a pair of schemas that more than one operation uses. */
  private readonly compared = new Map<object, Map<object, Difference[]>>()

  constructor(
    private readonly old: Side,
    private readonly next: Side,
    mostValues: number,
  ) {
    this.ledger = { equal: new RefPairs(), structures: new Structures(), valuesLeft: mostValues }
  }

  /** The changes that were found, the last one saying if there is more. */
  result(): DefinitionChange[] {
    const reasons: string[] = []
    if (this.ledger.valuesLeft <= 0) reasons.push('the definitions are too large to be compared to the end')
    if (this.omitted > 0) reasons.push(`${this.omitted} more changes are left out`)
    if (reasons.length === 0) return this.changes
    return [
      ...this.changes,
      { class: 'unknown', kind: 'comparison_incomplete', operation: '', msg: reasons.join('; ') },
    ]
  }

  run(): void {
    const byId = new Map<string, OperationInput>()
    const oldIds = new Set<string>()
    const newcomers = new Map<string, OperationInput>()
    // Of ids of thousands of letters each one takes its time.
    for (const each of this.next.operations) {
      byId.set(each.record.name, each)
    }
    for (const { record } of this.old.operations) {
      oldIds.add(record.name)
    }
    for (const each of this.next.operations) {
      if (!oldIds.has(each.record.name)) newcomers.set(targetOf(each), each)
    }
    for (const operation of this.old.operations) {
      const same = byId.get(operation.record.name)
      const renamed = same === undefined ? newcomers.get(targetOf(operation)) : undefined
      if (same !== undefined) this.compareMoved(operation, same)
      else if (renamed !== undefined) this.compareRenamed(operation, renamed, newcomers)
      else this.add('breaking', 'operation_removed', operation, undefined, 'the operation is gone')
    }
    for (const operation of newcomers.values()) {
      this.add('safe', 'operation_added', operation, operation.place, 'the operation is new')
    }
  }

  private compareMoved(old: OperationInput, next: OperationInput): void {
    if (targetOf(old) !== targetOf(next)) {
      const msg = `the operation is ${quote(targetOf(next))} instead of ${quote(targetOf(old))}`
      this.add('unknown', 'operation_moved', old, next.place, msg)
    }
    this.compareInputs(old, next)
  }

  private compareRenamed(old: OperationInput, next: OperationInput, newcomers: Map<string, OperationInput>): void {
    newcomers.delete(targetOf(next))
    const msg = `the operation is called ${quote(next.record.name)} now`
    this.add('breaking', 'operation_renamed', old, placeUnder(next.place, 'operationId'), msg)
    this.compareInputs(old, next)
  }

  private compareInputs(old: OperationInput, next: OperationInput): void {
    const [security, nextSecurity] = [old.record.spec.security ?? null, next.record.spec.security ?? null]
    if (!areEqual(security, nextSecurity))
      this.add('unknown', 'security_changed', old, next.place, 'the operation is authorized in another way')
    const before = old.parameters
    const now = next.parameters
    this.ledger.valuesLeft -= before.length + now.length
    if (this.ledger.valuesLeft <= 0) return
    const nextByKey = new Map(now.map(each => [keyOf(each), each]))
    for (const parameter of before) {
      const key = keyOf(parameter)
      const same = nextByKey.get(key)
      nextByKey.delete(key)
      if (same !== undefined) this.compareParameter(old, parameter, same)
      else this.add('breaking', 'parameter_removed', old, undefined, `the ${nameOf(parameter)} is gone`)
    }
    for (const parameter of nextByKey.values()) {
      const required = isRequired(parameter)
      const msg = `the ${nameOf(parameter)} is new and ${required ? 'required' : 'optional'}`
      const kind = required ? 'parameter_required' : 'parameter_added'
      this.add(required ? 'breaking' : 'safe', kind, old, parameter.place, msg)
    }
    this.compareBody(old, next)
  }

  private compareParameter(operation: OperationInput, old: ParameterInput, next: ParameterInput): void {
    if (isRequired(next) !== isRequired(old)) {
      const [kind, how] = isRequired(next)
        ? (['parameter_required', 'required'] as const)
        : (['parameter_optional', 'optional'] as const)
      const weight = isRequired(next) ? 'breaking' : 'safe'
      this.add(weight, kind, operation, next.place, `the ${nameOf(next)} is now ${how}`)
    }
    const [style, nextStyle] = [styleOf(old), styleOf(next)]
    if (style !== nextStyle) {
      const msg = `the ${nameOf(next)} is written as ${nextStyle} instead of ${style}`
      this.add('unknown', 'parameter_style_changed', operation, next.place, msg)
    }
    const differences = this.compareSchemas(
      this.old.schemas.parameterSchema(old),
      this.next.schemas.parameterSchema(next),
    )
    for (const { class: weight, isType, msg } of differences) {
      const kind = isType ? 'parameter_type_changed' : 'parameter_schema_changed'
      this.add(weight, kind, operation, next.place, `the ${nameOf(next)}: ${msg}`)
    }
  }

  /** Operations share schemas: each pair is compared once. */
  private compareSchemas(old: ConvertedSchema, next: ConvertedSchema): readonly Difference[] {
    const known = this.compared.get(old)?.get(next)
    if (known !== undefined) return known
    if (this.ledger.valuesLeft <= 0) return []
    const comparison = new SchemaComparison(this.old.schemas.converter, this.next.schemas.converter, this.ledger)
    comparison.run(old.schema, next.schema)
    const results = this.compared.get(old) ?? new Map<object, Difference[]>()
    this.compared.set(old, results.set(next, comparison.differences))
    return comparison.differences
  }

  private compareBody(old: OperationInput, next: OperationInput): void {
    const place = next.body?.place
    if (old.body === undefined || next.body === undefined) {
      if (old.body !== undefined) this.add('breaking', 'body_removed', old, undefined, 'the request body is gone')
      if (next.body === undefined) return
      const required = next.body.value.required === true
      const msg = `the request body is new and ${required ? 'required' : 'optional'}`
      this.add(required ? 'breaking' : 'safe', required ? 'body_required' : 'body_added', old, place, msg)
      return
    }
    const [type, nextType] = [mediaTypeOf(old.body), mediaTypeOf(next.body)]
    if (type !== nextType) {
      const msg = `the request body is sent as ${quote(nextType)} instead of ${quote(type)}`
      this.add('unknown', 'body_media_type_changed', old, place, msg)
    }
    const isNowRequired = next.body.value.required === true
    if (isNowRequired !== (old.body.value.required === true)) {
      const msg = `the request body is now ${isNowRequired ? 'required' : 'optional'}`
      this.add(isNowRequired ? 'breaking' : 'safe', isNowRequired ? 'body_required' : 'body_optional', old, place, msg)
    }
    const differences = this.compareSchemas(
      this.old.schemas.bodySchema(old.body),
      this.next.schemas.bodySchema(next.body),
    )
    for (const { class: weight, msg } of differences)
      this.add(weight, 'body_changed', old, place, `the request body: ${msg}`)
  }

  private add(
    weight: ChangeClass,
    kind: ChangeKind,
    operation: OperationInput,
    place: Place | undefined,
    msg: string,
  ): void {
    if (this.changes.length >= MOST_CHANGES) {
      this.omitted++
      return
    }
    this.changes.push({
      class: weight,
      kind,
      operation: operation.record.name,
      ...(place === undefined ? {} : { loc: locOf(place) }),
      msg,
    })
  }
}

function targetOf({ record }: OperationInput): string {
  return `${record.method.toLowerCase()} ${record.path}`
}

function nameOf(parameter: ParameterInput): string {
  return `${parameter.in} parameter ${quote(parameter.name)}`
}

/** How the value of a parameter is written in a request, defaults filled in. */
function styleOf({ in: place, value }: ParameterInput): string {
  if (isObject(value.content)) return `the media type ${quote(Object.keys(value.content)[0] ?? '')}`
  const isForm = place === 'query' || place === 'cookie'
  const style = typeof value.style === 'string' ? value.style : isForm ? 'form' : 'simple'
  const explode = typeof value.explode === 'boolean' ? value.explode : style === 'form'
  return `${quote(style)}${explode ? ', exploded' : ''}${value.allowReserved === true ? ', reserved characters as they are' : ''}`
}

/** Of several media types for JSON the one that is used. */
function mediaTypeOf({ value: { content } }: BodyInput): string {
  return (isObject(content) ? jsonMediaType(content) : undefined) ?? ''
}

function isRequired(parameter: ParameterInput): boolean {
  return parameter.in === 'path' || parameter.value.required === true
}
