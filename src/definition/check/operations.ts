import { type Address, addressOf, hasSecret, leadsAway } from './addresses.js'
import type { Findings } from './findings.js'
import { type BodyInput, type InputRules, NO_PARAMETERS, type ParameterInput, type ParameterList } from './inputs.js'
import { checkKeys } from './keys.js'
import { DEFINITION_LIMITS } from './limits.js'
import { isObject, type References } from './references.js'

type Schema = Record<string, unknown>

/** One operation in the answer of a check. */
export interface MethodRecord {
  /** The operationId as written. */
  name: string
  /** The summary, or else the description. */
  summary: string
  path: string
  /** As written, so it may be in capitals. */
  method: string
  /** The operation object itself, verbatim. */
  spec: Schema
}

/** The input of the function made from an operation. */
export interface OperationInput {
  readonly record: MethodRecord
  readonly body: BodyInput | undefined
  /** The parameters of the path; those of the operation replace the ones with the same name and place. */
  readonly shared: ParameterList
  readonly own: ParameterList
  readonly template: PathTemplate | undefined
}

/** The names in the braces of a path, the keys of parameters that declare each, and the keys of all. */
interface PathTemplate {
  readonly keys: ReadonlyMap<string, readonly string[]>
  readonly declared: ReadonlySet<string>
}

/** One path and what all its operations share. */
interface PathUse {
  readonly path: string
  /** Undefined if the path itself has a fault. */
  readonly template: PathTemplate | undefined
  /** The path item and the path items that it refers to, in order of precedence. */
  readonly layers: readonly Schema[]
  readonly shared: ParameterList
}

const TOOL_METHODS = new Set(['get', 'put', 'post', 'patch', 'delete'])
const OTHER_METHODS = new Set(['head', 'options', 'trace', 'query', 'additionaloperations'])
const ITEM_KEYS = new Set(['parameters', 'summary', 'description'])

/** Checks paths and operations (DECISIONS section 12). A fault inside a component is reported once, however many operations use it. */
export class OperationRules {
  readonly operations: OperationInput[] = []
  private operationCount = 0
  private readonly ids = new Map<string, { use: string; operation: Schema; item: Schema }>()
  /** What is known of operations and path items that several paths share. */
  private readonly known = new Map<object, { id: string | undefined; summary: string | undefined }>()
  /** The keys of path items that lead to operations. Thousands of paths may share an item of many keys. */
  private readonly keys = new Map<Schema, string[]>()

  constructor(
    private readonly references: References,
    private readonly findings: Findings,
    private readonly inputs: InputRules,
    private readonly address: Address | undefined,
  ) {}

  /** Checks `paths`. */
  check(paths: Schema, document: Schema): void {
    const faults = this.findings.faultCount
    for (const path of Object.keys(paths)) {
      if (path.startsWith('x-')) continue
      this.checkPath(path, paths)
      if (this.operationCount > DEFINITION_LIMITS.operations) break
    }
    if (this.operationCount > DEFINITION_LIMITS.operations)
      this.findings.fault('too_many_operations', document, ['paths'], DEFINITION_LIMITS.operations)
    else if (this.operations.length === 0 && this.findings.faultCount === faults)
      this.findings.fault('operations_missing', document, ['paths'])
  }

  private checkPath(path: string, paths: Schema): void {
    const item = paths[path]
    if (!isObject(item)) {
      this.findings.fault('dict_type', paths, [path])
      return
    }
    const template = this.readPath(path, paths)
    const layers = this.references.chain(item, 'path item', this.findings) ?? [item]
    const holder = layers.find(({ parameters }) => parameters !== undefined)
    const isUsed = layers.some(layer => this.keysOf(layer).some(isToolMethod))
    const shared = holder && isUsed ? this.inputs.readList(holder) : NO_PARAMETERS
    if (template) this.warnUnused(shared, template, holder)
    this.checkLayer({ path, template, layers, shared }, 0)
  }

  private readPath(path: string, paths: Schema): PathTemplate | undefined {
    const { findings } = this
    const template = templateOf(path)
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (this.address && leadsAway(this.address.text, path))
      findings.fault('server_url_invalid.host', paths, [path], path, this.address.text)
    if (hasSecret(path)) findings.fault('server_url_invalid.secret', paths, [path])
    if (path.includes('#')) findings.warn('address_incomplete.fragment', paths, [path])
    if (template === undefined) findings.fault('path_template_invalid', paths, [path], path)
    else if (template.keys.size > most) findings.fault('too_many_parameters', paths, [path], most)
    else return template
    return undefined
  }

  /** Checks the keys of a path item in document order. A `$ref` stands for the keys of its target. */
  private checkLayer(use: PathUse, depth: number): void {
    const layer = use.layers[depth]
    if (layer === undefined) return
    for (const key of this.keysOf(layer)) {
      if (key === '$ref') this.checkLayer(use, depth + 1)
      else if (!use.layers.slice(0, depth).some(each => Object.hasOwn(each, key))) {
        this.checkOperation(use, layer, key)
        if (this.operationCount > DEFINITION_LIMITS.operations) return
      }
    }
  }

  /** Returns the methods and the `$ref` of a path item, and reports what its other keys lose. */
  private keysOf(layer: Schema): string[] {
    let keys = this.keys.get(layer)
    if (keys === undefined) {
      keys = []
      for (const key of Object.keys(layer))
        if (key === '$ref' || isToolMethod(key)) keys.push(key)
        else if (!ITEM_KEYS.has(key) && !key.startsWith('x-')) this.reportKey(key, layer)
      this.keys.set(layer, keys)
    }
    return keys
  }

  private warnOwnServers(holder: Schema): void {
    const own = Array.isArray(holder.servers) ? addressOf(holder.servers[0]) : undefined
    if (own !== undefined && own.text !== this.address?.text)
      this.findings.warn('server_ignored.own', holder, ['servers'])
  }

  private reportKey(key: string, layer: Schema): void {
    if (key === 'servers') {
      if (Array.isArray(layer.servers) && layer.servers.length > 0)
        this.findings.warn('server_ignored.own', layer, [key])
    } else if (OTHER_METHODS.has(key.toLowerCase())) this.findings.warn('method_passed_over', layer, [key], key)
    else this.findings.fault('method_unsupported', layer, [key], key)
  }

  private checkOperation(use: PathUse, layer: Schema, method: string): void {
    const { findings, inputs } = this
    // Every method counts, also one that has a fault, so that a shared path item stays within the limit.
    if (++this.operationCount > DEFINITION_LIMITS.operations) return
    const operation = layer[method]
    if (!isObject(operation) || operation.$ref !== undefined) {
      findings.fault('dict_type', layer, [method])
      return
    }
    let facts = this.known.get(operation)
    const isNew = facts === undefined
    facts ??= { id: this.readId(operation), summary: this.readSummary(operation) }
    this.known.set(operation, facts)
    const { id, summary } = facts
    const isFirst = id !== undefined && this.claimId(id, operation, method, use)
    const { path, shared, template } = use
    const own = inputs.readList(operation)
    const body = inputs.readBody(operation, method)
    if (isNew) {
      checkKeys('operation', operation, findings)
      this.warnOwnServers(operation)
      if (template) this.warnUnused(own, template, operation)
    }
    this.checkTogether(own, use, operation)
    const lost = body && 'lost' in body ? body.lost : (own.lost ?? shared.lost)
    if (lost !== undefined) {
      const [rule, ...values] = lost
      findings.warn(rule, layer, [method], ...values)
    } else if (isFirst && summary !== undefined) {
      const record = { name: id, summary, path, method, spec: operation }
      this.operations.push({ record, body: body as BodyInput | undefined, shared, own, template })
    }
  }

  private readId(operation: Schema): string | undefined {
    const { operationId: id } = operation
    if (typeof id === 'string' && id.trim() !== '') return id
    const isMissing = id === undefined || typeof id === 'string'
    this.findings.fault(isMissing ? 'operation_id_missing' : 'string_type', operation, ['operationId'])
    return undefined
  }

  /** Records an operationId. False, with a fault, if an earlier operation has it. */
  private claimId(id: string, operation: Schema, method: string, { path, layers }: PathUse): boolean {
    const owner = this.ids.get(id)
    const [item = {}] = layers
    if (owner === undefined) this.ids.set(id, { use: `${method} ${path}`, operation, item })
    else if (owner.operation === operation && owner.item !== item)
      // A second path reaches the same operation by its reference.
      this.findings.fault('operation_id_duplicate', item, ['$ref'], id, owner.use)
    else this.findings.fault('operation_id_duplicate', operation, ['operationId'], id, owner.use)
    return owner === undefined
  }

  private readSummary(operation: Schema): string | undefined {
    for (const key of ['summary', 'description']) {
      const text = operation[key]
      if (typeof text === 'string' ? text.trim() !== '' : text !== undefined && text !== null) {
        if (typeof text === 'string') return text
        this.findings.fault('string_type', operation, [key])
        return undefined
      }
    }
    this.findings.fault('summary_missing', operation, ['summary'])
    return undefined
  }

  private warnUnused(list: ParameterList, { declared }: PathTemplate, holder: Schema | undefined): void {
    for (const { in: location, key, name } of list.byKey.values())
      if (location === 'path' && !declared.has(key))
        this.findings.warn('parameter_ignored.unused', holder ?? {}, ['parameters'], name)
  }

  /** Checks the rules that need the path and both parameter lists. */
  private checkTogether(own: ParameterList, { shared, template }: PathUse, operation: Schema): void {
    if (own.isBroken || shared.isBroken) return
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (own.byKey.size + shared.byKey.size > most && merged(own, shared).length > most)
      this.findings.fault('too_many_parameters', operation, ['parameters'], most)
    for (const [name, keys] of template?.keys ?? [])
      if (!keys.some(key => own.byKey.has(key) || shared.byKey.has(key)))
        this.findings.fault('path_parameter_undeclared', operation, ['parameters'], name)
  }
}

/** Returns the parameters that a model fills in. A path parameter without a placeholder is never sent. */
export function parametersOf({ own, shared, template }: OperationInput): ParameterInput[] {
  return merged(own, shared).filter(each => each.isArgument && (each.in !== 'path' || template?.declared.has(each.key)))
}

function merged(own: ParameterList, shared: ParameterList): ParameterInput[] {
  return [...[...shared.byKey.values()].filter(({ key }) => !own.byKey.has(key)), ...own.byKey.values()]
}

/** `get post put patch delete` in any case. */
export function isToolMethod(key: string): boolean {
  return TOOL_METHODS.has(key) || TOOL_METHODS.has(key.toLowerCase())
}

const NO_TEMPLATE: PathTemplate = { keys: new Map(), declared: new Set() }
/** A name, which may have a pattern with braces of its own: `{year:[0-9]{4}}`. */
const PLACEHOLDER = /\{([^{}:]+|[^{}:]*:(?:[^{}]|\{[^{}]*\})+)\}/g

/** Parses the placeholders of a path; undefined if braces do not pair. A parameter may leave out the operators `{+name}`, `{name*}` and `{name+}`. */
export function templateOf(path: string): PathTemplate | undefined {
  if (!/[{}]/.test(path)) return NO_TEMPLATE
  if (/[{}]/.test(path.replace(PLACEHOLDER, ''))) return undefined
  const keys = new Map<string, readonly string[]>()
  const declared = new Set<string>()
  for (const placeholder of path.match(PLACEHOLDER) ?? []) {
    const name = placeholder.slice(1, -1)
    const bare = name.replace(/^\+|[*+]$/g, '')
    const own = bare === name ? [`path ${name}`] : [`path ${name}`, `path ${bare}`]
    keys.set(name, own)
    for (const key of own) declared.add(key)
  }
  return { keys, declared }
}
