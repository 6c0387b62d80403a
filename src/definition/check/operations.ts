import { type Place, placeUnder, quote, type Resolved, SENTENCES } from './findings.js'
import { OPERATION_FORMS, warnForms } from './forms.js'
import {
  type BodyInput,
  type InputRules,
  isNear,
  NO_PARAMETERS,
  type ParameterInput,
  type ParameterList,
} from './inputs.js'
import { DEFINITION_LIMITS } from './limits.js'
import type { Reader } from './reader.js'
import { isObject } from './references.js'
import { hasSecret, quoteAddress } from './secrets.js'
import { checkServers, hostOf, leadsAway, openAddresses, partAfterPath } from './servers.js'
import { isOrdinaryName, meantBy, type PathTemplate, routesOf, templateOf } from './templates.js'
import { MERGE_KEY } from './walk.js'

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
  spec: Record<string, unknown>
}

/** The input of the tool made from an operation. A parameter of the operation replaces the path's one with the same name and place. */
export class OperationInput {
  constructor(
    readonly record: MethodRecord,
    readonly place: Place,
    readonly body: BodyInput | undefined,
    private readonly shared: ParameterList,
    private readonly own: ParameterList,
    private readonly template: PathTemplate | undefined,
  ) {}

  /** The parameters that a model fills in. Computed on demand: thousands of operations may share hundreds of parameters. */
  get parameters(): ParameterInput[] {
    // A path parameter without a placeholder in this path is never sent.
    const isSent = ({ in: location, key }: ParameterInput) => location !== 'path' || this.template?.declared.has(key)
    return merged(this.shared, this.own).filter(each => each.isArgument && isSent(each))
  }
}

/** One path and what all its operations share. */
interface PathUse {
  readonly path: string
  readonly place: Place
  /** Undefined if the path itself has a fault. */
  readonly template: PathTemplate | undefined
  /** The path item and the path items that it refers to, in order of precedence. */
  readonly layers: readonly Resolved[]
  readonly shared: ParameterList
  /** Reports the faults of the shared parameters. */
  readonly report: () => void
}

const TOOL_METHODS = new Set(['get', 'put', 'post', 'patch', 'delete'])
const SILENT = new Set(['summary', 'description'])
const PASSED_OVER = new Set(['head', 'options', 'trace', 'query', 'additionaloperations'])
const NOT_IN_NAME = /[^A-Za-z0-9_-]/
const NAME_CHARACTERS = 64

/**
 * Checks paths and operations (DECISIONS section 12), path by path. A fault inside a component is reported once, however many operations
 * use it. `null` counts as absent where OpenAPI has an optional text or schema.
 */
export class OperationRules {
  readonly operations: OperationInput[] = []
  operationCount = 0
  /** True once the limit of operations is exceeded. */
  isFull = false
  private readonly open: readonly string[]
  private readonly host: string | undefined
  private readonly ids = new Map<string, { use: string; operation: object }>()
  /** Paths, by their text without placeholder names. */
  private readonly paths = new Map<string, string>()
  /** Cached ids and summaries: many paths can lead to the same operation. */
  private readonly facts = new Map<object, { id: string | undefined; summary: string | undefined }>()
  /** The operation and `$ref` keys of path items whose other keys have been reported. */
  private readonly keys = new Map<object, string[]>()

  constructor(
    private readonly reader: Reader,
    private readonly inputs: InputRules,
    servers: unknown,
  ) {
    this.open = openAddresses(servers)
    this.host = hostOf(servers)
  }

  /** Checks one entry of `paths`. */
  checkPath(path: string, item: unknown, paths: Place): void {
    const place = placeUnder(paths, path)
    const value = this.reader.object(item, place, 'path item')
    if (value === undefined) return
    const template = this.readPath(path, place)
    const first = { value, place }
    const layers = value.$ref === undefined ? [first] : [first, ...this.reader.passed(first, 'path item').items]
    const holder = layers.find(layer => layer.value.parameters !== undefined)
    let shared = NO_PARAMETERS
    let report = () => {}
    if (holder !== undefined && layers.some(layer => this.keysOf(layer.value).some(isToolMethod))) {
      // Path-level parameters may follow the methods. Their faults are reported at their position, so they are held
      // back here.
      report = this.reader.findings.heldBack(() => {
        const at = placeUnder(holder.place, 'parameters')
        shared = this.inputs.readList(holder.value.parameters, at)
        if (template !== undefined) this.inputs.warnUnused(shared, template, at)
      })
    }
    this.checkLayer({ path, place, template, layers, shared, report }, 0)
    report()
  }

  private keysOf(item: Record<string, unknown>): string[] {
    return this.keys.get(item) ?? Object.keys(item)
  }

  private readPath(path: string, place: Place): PathTemplate | undefined {
    const { findings } = this.reader
    if (!path.startsWith('/')) {
      findings.warn('path_without_slash', `the path ${quoteAddress(path)} does not begin with a slash`, place)
    }
    if (path === '<<') {
      findings.fault('path_template_invalid', MERGE_KEY, place)
      return undefined
    }
    this.checkHost(path, this.open, place)
    const template = templateOf(path)
    const bare = template?.bare ?? path
    const after = partAfterPath(bare)
    if (hasSecret(bare)) {
      findings.fault('server_url_invalid', 'the path carries a secret: put secrets into custom headers', place)
    } else if (after !== undefined) {
      const msg = `the path has a ${after}: declare query parameters instead, as a client may escape it or leave it out`
      findings.warn('path_query', msg, place)
    }
    if (template === undefined) {
      findings.fault('path_template_invalid', `the braces of the path ${quoteAddress(path)} do not pair`, place)
    } else if (template.keys.size > DEFINITION_LIMITS.parametersPerOperation) {
      const msg = `the path has more than ${DEFINITION_LIMITS.parametersPerOperation} placeholders`
      findings.fault('too_many_parameters', msg, place)
    } else {
      if (template.keys.size > 0) this.warnEqual(path, template.bare, place)
      return template
    }
    return undefined
  }

  /** Refuses a path that would change the host when it is appended to one of the `open` server URLs. */
  private checkHost(path: string, open: readonly string[], place: Place): void {
    const reason = leadsAway(open, path)
    if (reason === undefined) return
    const msg = `the path ${quoteAddress(path)} ${reason}: begin paths with one slash, and name an absolute server`
    this.reader.findings.fault('server_url_invalid', msg, place)
  }

  /** Warns `path_template_repeated`: two paths differ only in the names of placeholders. */
  private warnEqual(path: string, bare: string, place: Place): void {
    const first = this.paths.get(bare)
    if (first === undefined) {
      this.paths.set(bare, path)
      return
    }
    const msg = `the path differs from ${quote(first)} only in the names of its placeholders: a server cannot tell calls apart`
    this.reader.findings.warn('path_template_repeated', msg, place)
  }

  /** Checks the keys of a path item in document order. A `$ref` is replaced by the keys of its target. */
  private checkLayer(use: PathUse, depth: number): void {
    const layer = use.layers[depth]
    if (layer === undefined) return
    const keys = this.keysOf(layer.value)
    for (const key of keys) {
      if (key === '$ref') this.checkLayer(use, depth + 1)
      else if (key === 'parameters') use.report()
      else if (!isToolMethod(key)) this.reportKey(key, layer, use.path)
      else if (!use.layers.slice(0, depth).some(({ value }) => Object.hasOwn(value, key)))
        this.checkOperation(use, layer, key)
      if (this.isFull) return
    }
    const unreported = keys.filter(key => key === '$ref' || isToolMethod(key))
    if (unreported.length < keys.length) this.keys.set(layer.value, unreported)
  }

  private reportKey(key: string, layer: Resolved, path: string): void {
    const { findings } = this.reader
    if (SILENT.has(key) || key.startsWith('x-')) return
    if (key === 'servers') {
      this.checkOwnServers(layer, path)
    } else if (PASSED_OVER.has(key.toLowerCase())) {
      findings.warn(
        'method_passed_over',
        `${quote(key)} is not a method of a tool and is passed over`,
        layer.place,
        key,
      )
    } else {
      const meant = isObject(layer.value[key]) ? methodMeantBy(key) : undefined
      const cure = meant === undefined ? '' : `; did you mean ${quote(meant)}?`
      const msg = `${quote(key)} is not a method: get, post, put, patch and delete become tools, extensions begin with "x-"${cure}`
      findings.fault('method_unsupported', key === '<<' ? MERGE_KEY : msg, layer.place, key)
    }
  }

  private checkOperation(use: PathUse, layer: Resolved, method: string): void {
    const { findings } = this.reader
    const place = placeUnder(layer.place, method)
    // Every method key counts, even without a valid operation, so that a shared path item stays within the operation
    // limit.
    this.operationCount++
    if (this.operationCount > DEFINITION_LIMITS.operations) {
      this.isFull = true
      const msg = `the definition has more than ${DEFINITION_LIMITS.operations} operations`
      findings.fault('too_many_operations', msg, use.place.up ?? use.place)
      return
    }
    const value = this.reader.object(layer.value[method], place, 'operation')
    if (value === undefined) return
    const operation = { value, place }
    const known = this.facts.get(value)
    const id = known === undefined ? this.readId(operation, use.path) : known.id
    const isFirst = id !== undefined && this.claimId(id, operation, method, use)
    const summary = known === undefined ? this.readSummary(operation, use.path) : known.summary
    this.facts.set(value, { id, summary })

    const { template, shared } = use
    const at = placeUnder(place, 'parameters')
    const own = this.inputs.readList(value.parameters, at)
    if (known === undefined && template !== undefined) this.inputs.warnUnused(own, template, at)
    this.checkTogether(own, use, at)
    const body = this.inputs.readBody(value.requestBody, method, placeUnder(place, 'requestBody'))
    if (known === undefined) {
      this.checkOwnServers(operation, use.path)
      warnForms(value, OPERATION_FORMS, place, findings)
      if (value.deprecated === true)
        findings.warn('operation_deprecated', 'the operation is deprecated', place, 'deprecated')
      if (value.responses === undefined)
        findings.warn('responses_missing', 'the operation names no responses', place, 'responses')
    }
    if (!isFirst || summary === undefined) return
    const record = { name: id, summary, path: use.path, method, spec: value }
    this.operations.push(new OperationInput(record, place, body, shared, own, template))
  }

  private readId(operation: Resolved, path: string): string | undefined {
    const { findings } = this.reader
    const { value, place } = operation
    const { operationId } = value
    const isBlank = operationId === undefined || (typeof operationId === 'string' && operationId.trim() === '')
    if (isBlank || operationId === null) {
      const [type, msg] = isBlank
        ? ['operation_id_missing', 'the operation needs an operationId: it becomes the name of the tool']
        : ['string_type', SENTENCES.string_type]
      const fault = findings.fault(type, msg, place, 'operationId')
      if (fault !== undefined) fault.data = { path }
      return undefined
    }
    const id = this.reader.text(operation, 'operationId')
    if (id !== undefined && id.length > NAME_CHARACTERS) {
      const msg = `models take names of at most ${NAME_CHARACTERS} characters; this one is shortened for them`
      findings.warn('operation_id_long', msg, place, 'operationId')
    }
    if (id !== undefined && NOT_IN_NAME.test(id)) {
      const msg =
        'models take only ASCII letters, digits, "_" and "-" in a name; they are given another name made of this one'
      findings.warn('operation_id_characters', msg, place, 'operationId')
    }
    return id
  }

  /** Records an operationId. False, with a fault, if an earlier operation has it. */
  private claimId(id: string, { value, place }: Resolved, method: string, use: PathUse): boolean {
    const owner = this.ids.get(id)
    if (owner === undefined) {
      this.ids.set(id, { use: `${method} ${use.path}`, operation: value })
      return true
    }
    // If a second path reaches the same operation through a `$ref`, the fault is at that `$ref`.
    const isAgain = owner.operation === value && place.up !== use.place
    const at = isAgain ? placeUnder(use.place, '$ref') : placeUnder(place, 'operationId')
    const msg = `${quote(id)} is already the name of ${quote(owner.use)}`
    const fault = this.reader.findings.fault('operation_id_duplicate', msg, at)
    if (fault !== undefined) fault.data = { use: owner.use }
    return false
  }

  private readSummary(operation: Resolved, path: string): string | undefined {
    for (const key of ['summary', 'description']) {
      const text = operation.value[key]
      const isBlank = typeof text === 'string' ? text.trim() === '' : text === undefined || text === null
      if (!isBlank) return this.reader.text(operation, key)
    }
    const msg = 'the operation needs a summary or a description: it tells the model when to use the tool'
    const fault = this.reader.findings.fault('summary_missing', msg, operation.place, 'summary')
    if (fault !== undefined) fault.data = { path }
    return undefined
  }

  /** Checks the rules that need the path and both parameter lists. */
  private checkTogether(own: ParameterList, { shared, template }: PathUse, place: Place): void {
    if (own.isBroken || shared.isBroken) return
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (own.byKey.size + shared.byKey.size > most && merged(shared, own).length > most) this.inputs.reportTooMany(place)
    if (template === undefined) return
    const isDeclared = (key: string) => own.byKey.has(key) || shared.byKey.has(key)
    for (const [name, keys] of template.keys)
      if (!keys.some(isDeclared)) this.reportUndeclared(name, template, [own, shared], place)
    for (const [name, { step, written }] of routesOf(template.path)) {
      if (step.startsWith('$') || isDeclared(`path ${name}`)) continue
      const msg = `the path has ${quote(step)}, which is sent as it is: write ${quote(written)} and declare the path parameter ${quote(name)}`
      this.reader.findings.warn('path_parameter_undeclared', msg, place)
    }
  }

  private reportUndeclared(name: string, template: PathTemplate, lists: readonly ParameterList[], place: Place): void {
    const inputs = lists.flatMap(list => [...list.byKey.values()].map(({ input }) => input))
    const unused = inputs.filter(each => each.in === 'path' && !template.declared.has(each.key)).map(each => each.name)
    const meant = meantBy(name, key => lists.some(list => list.byKey.has(key)), unused)
    const quoted = quote(name)
    let msg = `the placeholder ${quoted} of the path is not declared: add {"name": ${quoted}, "in": "path", "required": true, "schema": {"type": "string"}}`
    if (/^\s*[?&]/.test(name))
      msg = `the path has the template of a query, ${quote(`{${name}}`)}: take it out and declare its names as query parameters`
    else if (meant !== undefined)
      msg = `the placeholder ${quoted} of the path means ${meant.names.map(quote).join()}: write ${quote(meant.text)}`
    else if (!isOrdinaryName(name))
      msg = `OpenAPI has no such placeholder as ${quoted}: write the name of a path parameter between the braces, and declare it`
    const fault = this.reader.findings.fault('path_parameter_undeclared', msg, place)
    if (fault === undefined) return
    if (meant !== undefined) fault.data = { placeholder: `{${name}}`, meant: meant.text }
    else fault.data = isOrdinaryName(name) ? { name } : {}
  }

  private checkOwnServers({ value: { servers }, place }: Resolved, path: string): void {
    if (servers === undefined || servers === null) return
    const at = placeUnder(place, 'servers')
    checkServers(servers, false, at, this.reader)
    this.checkHost(path, openAddresses(servers), at)
    const [own, documents] = [hostOf(servers), this.host]
    if (own === undefined || documents === undefined || own === documents) return
    const msg = `calls go to ${quote(documents)}, the server of the document, not to ${quote(own)}`
    this.reader.findings.warn('server_other_host', msg, at)
  }
}

/** Returns the HTTP method that a misspelt key probably means. */
function methodMeantBy(key: string): string | undefined {
  const word = key.slice(0, NAME_CHARACTERS).trim().toLowerCase()
  const near = [...TOOL_METHODS].filter(each => isNear(each, word))
  return near.find(each => [...word].every(letter => each.includes(letter))) ?? near[0]
}

/** `get post put patch delete` in any case. */
export function isToolMethod(key: string): boolean {
  return TOOL_METHODS.has(key) || TOOL_METHODS.has(key.toLowerCase())
}

/** Merges parameter lists: the operation's own replace the path's with the same place and name. */
function merged(shared: ParameterList, own: ParameterList): ParameterInput[] {
  const inherited = [...shared.byKey.values()].filter(({ input }) => !own.byKey.has(input.key))
  return [...inherited, ...own.byKey.values()].map(({ input }) => input)
}
