import { type Address, addressesOf, leadsAway, SECRET } from './addresses.js'
import type { Findings } from './findings.js'
import { type BodyInput, type InputRules, NO_PARAMETERS, type ParameterInput, type ParameterList } from './inputs.js'
import { checkKeys } from './keys.js'
import { isObject, type References, type Schema } from './references.js'
import { DEFINITION_LIMITS } from './rules.js'

export interface MethodRecord {
  name: string
  summary: string
  path: string
  /** The method as in the definition, possibly in upper case. */
  method: string
  spec: Schema
}

export interface OperationInput {
  readonly record: MethodRecord
  readonly body: BodyInput | undefined
  /** The parameters of the path item. Parameters in `own` with the same name and location replace them. */
  readonly shared: ParameterList
  readonly own: ParameterList
  readonly template: PathTemplate | undefined
}

/** The possible parameter names for each placeholder of a path. */
type PathTemplate = ReadonlyMap<string, readonly string[]>

interface PathUse {
  readonly path: string
  readonly item: Schema
  /** Undefined if the path is invalid. */
  readonly template: PathTemplate | undefined
  readonly shared: ParameterList
}

const TOOL_METHODS = new Set(['get', 'put', 'post', 'patch', 'delete'])
const OTHER_METHODS = new Set(['head', 'options', 'trace', 'query', 'additionaloperations'])
const ITEM_KEYS = new Set(['parameters', 'summary', 'description', '$ref'])

/** Checks paths and operations (DECISIONS section 12). Reports a fault of a shared component only once. */
export class OperationRules {
  readonly operations: OperationInput[] = []
  private operationCount = 0
  private readonly ids = new Map<string, { operation: Schema; item: Schema }>()
  /** The operations and path items that were checked. If several paths share one of them, it is checked only once. */
  private readonly seen = new Set<object>()

  constructor(
    private readonly references: References,
    private readonly findings: Findings,
    private readonly inputs: InputRules,
    private readonly addresses: readonly Address[],
    private readonly isStrict: boolean,
  ) {}

  check(paths: Schema, document: Schema): void {
    const { faults } = this.findings.counts
    for (const path in paths) {
      const item = paths[path]
      if (path.startsWith('x-')) continue
      if (isObject(item)) this.checkPath(path, item, paths)
      else this.findings.fault('dict_type', paths, [path])
      if (this.operationCount > DEFINITION_LIMITS.operations) break
    }
    if (this.operationCount > DEFINITION_LIMITS.operations)
      this.findings.fault('too_many_operations', document, ['paths'], DEFINITION_LIMITS.operations)
    else if (this.operations.length === 0 && this.findings.counts.faults === faults)
      this.findings.fault('operations_missing', document, ['paths'])
  }

  private checkPath(path: string, item: Schema, paths: Schema): void {
    const template = this.readPath(path, paths)
    const layers = this.references.chain(item, 'path item', this.findings) ?? [item]
    for (const layer of layers) if (this.isNew(layer)) this.checkItemKeys(layer)
    const methods = methodsOf(layers)
    const holder = layers.find(({ parameters }) => parameters !== undefined)
    const shared = holder && methods.size > 0 ? this.inputs.readList(holder) : NO_PARAMETERS
    if (template && holder) this.warnUnused(shared, template, holder)
    for (const [method, layer] of methods) {
      // Invalid operations count too, because checking them takes time, and many paths can share one operation.
      if (++this.operationCount > DEFINITION_LIMITS.operations) return
      const operation = layer[method]
      if (!isObject(operation) || operation.$ref !== undefined) this.findings.fault('dict_type', layer, [method])
      else this.checkOperation({ path, item, template, shared }, operation, layer, method)
    }
  }

  private readPath(path: string, paths: Schema): PathTemplate | undefined {
    const { findings } = this
    const template = templateOf(path)
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (this.addresses.some(({ text }) => leadsAway(text, path)))
      findings.fault('server_url_invalid.host', paths, [path])
    if (SECRET.test(path)) findings.fault('server_url_invalid.secret', paths, [path])
    if (path.includes('#')) findings.warn('address_incomplete.fragment', paths, [path])
    if (template === undefined) return findings.fault('path_template_invalid', paths, [path])
    return template.size > most ? findings.fault('too_many_parameters.path', paths, [path], most) : template
  }

  private isNew(part: object): boolean {
    return this.seen.size < this.seen.add(part).size
  }

  /** Reports a path item's own servers, unknown keys, and methods that cannot become functions. */
  private checkItemKeys(item: Schema): void {
    for (const key of Object.keys(item)) {
      if (isToolMethod(key) || ITEM_KEYS.has(key) || key.startsWith('x-')) continue
      if (key === 'servers') this.warnOwnServers(item)
      else if (OTHER_METHODS.has(key.toLowerCase())) this.findings.warn('method_passed_over', item, [key], key)
      else this.findings.fault('method_unsupported', item, [key], key)
    }
  }

  private warnOwnServers(holder: Schema): void {
    const [own] = Array.isArray(holder.servers) ? addressesOf(holder.servers[0]) : []
    if (own !== undefined && own.text !== this.addresses[0]?.text)
      this.findings.warn('server_ignored', holder, ['servers'])
  }

  private checkOperation(use: PathUse, operation: Schema, layer: Schema, method: string): void {
    const { findings, inputs } = this
    const { path, shared, template } = use
    const { operationId: id } = operation
    const summary = [operation.summary, operation.description].find(each => !isBlank(each))
    const own = inputs.readList(operation)
    const body = inputs.readBody(operation, method)
    if (this.isNew(operation)) {
      this.checkTexts(operation, summary)
      checkKeys('operation', operation, findings)
      this.warnOwnServers(operation)
      if (template) this.warnUnused(own, template, operation)
    }
    const isFirst = typeof id === 'string' && !isBlank(id) && this.claimId(id, operation, use)
    this.checkTogether(own, use, operation)
    const lost = body && 'lost' in body ? body.lost : (own.lost ?? shared.lost)
    if (lost !== undefined) {
      const [rule, ...values] = lost
      findings[this.isStrict ? 'fault' : 'warn'](rule, layer, [method], ...values)
    } else if (isFirst && typeof summary === 'string') {
      const record = { name: id, summary, path, method, spec: operation }
      this.operations.push({ record, body: body as BodyInput | undefined, shared, own, template })
    }
  }

  private checkTexts(operation: Schema, summary: unknown): void {
    const { operationId: id } = operation
    if (isBlank(id)) this.findings.fault('operation_id_missing', operation, ['operationId'])
    else if (typeof id !== 'string') this.findings.fault('string_type', operation, ['operationId'])
    const key = summary === operation.summary ? 'summary' : 'description'
    if (summary === undefined) this.findings.fault('summary_missing', operation, ['summary'])
    else if (typeof summary !== 'string') this.findings.fault('string_type', operation, [key])
  }

  /** Records an operationId. If another operation already has this id, reports a fault and returns false. */
  private claimId(id: string, operation: Schema, { item }: PathUse): boolean {
    const owner = this.ids.get(id)
    if (owner === undefined) this.ids.set(id, { operation, item })
    else if (owner.operation === operation && owner.item !== item)
      // Both paths refer to the same operation, so the fault is reported at the second path.
      this.findings.fault('operation_id_duplicate', item, ['$ref'], id)
    else this.findings.fault('operation_id_duplicate', operation, ['operationId'], id)
    return owner === undefined
  }

  private warnUnused(list: ParameterList, template: PathTemplate, holder: Schema): void {
    for (const each of list.byKey.values())
      if (!isSent(each, template)) this.findings.warn('parameter_ignored.unused', holder, ['parameters'], each.name)
  }

  private checkTogether(own: ParameterList, { shared, template }: PathUse, operation: Schema): void {
    if (own.isBroken || shared.isBroken) return
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (own.byKey.size + shared.byKey.size > most && merged(own, shared).length > most)
      this.findings.fault('too_many_parameters', operation, ['parameters'], most)
    for (const [placeholder, names] of template ?? [])
      if (!names.some(name => own.byKey.has(`path ${name}`) || shared.byKey.has(`path ${name}`)))
        this.findings.fault('path_parameter_undeclared', operation, ['parameters'], placeholder)
  }
}

export function parametersOf({ own, shared, template }: OperationInput): ParameterInput[] {
  return merged(own, shared).filter(each => each.isArgument && isSent(each, template ?? new Map()))
}

/** False for a path parameter without a placeholder. */
function isSent({ in: location, name }: ParameterInput, template: PathTemplate): boolean {
  return location !== 'path' || [...template.values()].some(names => names.includes(name))
}

function merged(own: ParameterList, shared: ParameterList): ParameterInput[] {
  return [...[...shared.byKey.values()].filter(({ key }) => !own.byKey.has(key)), ...own.byKey.values()]
}

/** Maps each method that can become a function to the first path item in `layers` that contains the method. */
export function methodsOf(layers: readonly Schema[]): Map<string, Schema> {
  const methods = new Map<string, Schema>()
  for (const layer of layers.toReversed()) for (const key in layer) if (isToolMethod(key)) methods.set(key, layer)
  return methods
}

function isToolMethod(key: string): boolean {
  return TOOL_METHODS.has(key) || TOOL_METHODS.has(key.toLowerCase())
}

export function isBlank(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === 'string' && value.trim() === '')
}

/** Matches a placeholder, for example `{year}` or, with a pattern, `{year:[0-9]{4}}`. */
const PLACEHOLDER = /\{([^{}:]+|[^{}:]*:(?:[^{}]|\{[^{}]*\})+)\}/
export const OPERATORS = /^\+|[*+]$/g // of RFC 6570, for example in `{+name}`

/** Returns the placeholders of a path; undefined if braces are empty or unpaired. The parameter of `{+id}`, `{id*}` or `{id+}` can be named `id`. */
export function templateOf(path: string): PathTemplate | undefined {
  const parts = path.split(PLACEHOLDER) // literal text and placeholder names alternate
  const names = parts.filter((_, i) => i % 2 === 1)
  if (parts.some((each, i) => i % 2 === 0 && /[{}]/.test(each))) return undefined
  return new Map(names.map(name => [name, [name, name.replace(OPERATORS, '')]]))
}
