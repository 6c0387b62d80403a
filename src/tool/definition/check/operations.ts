import { type BodyInput, BodyRules, MediaTypes } from './bodies.js'
import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { DefinitionLimits } from './limits.js'
import type { MisplacedReferences } from './misplaced.js'
import { merged, NOTHING_SHARED, type ParameterInput, type ParameterList, ParameterRules } from './parameters.js'
import { isShadowed, isToolMethod, type Layer, PathItems } from './path-items.js'
import { ReferenceChains, type Resolved } from './reference-chains.js'
import { isObject, type References } from './references.js'
import type { SchemaWalk } from './schemas.js'
import { checkServers, hostOf, partBehindPath, unusableEnd } from './servers.js'
import { comparedText, type PathTemplate, readTemplate } from './templates.js'

/** One method of the answer. */
export interface MethodRecord {
  /** The operationId as written. */
  name: string
  /** The summary, or else the description. */
  summary: string
  path: string
  /** As written, so possibly in capitals. */
  method: string
  /** The operation object itself, verbatim. */
  spec: Record<string, unknown>
}

/** What a tool that is made from an operation takes in: path-level parameters merged, the operation's winning by name and place. */
export interface OperationInput {
  readonly record: MethodRecord
  readonly place: Place
  readonly parameters: readonly ParameterInput[]
  readonly body: BodyInput | undefined
}

/** One path and what holds for all its operations. */
interface PathUse {
  readonly path: string
  readonly place: Place
  /** Undefined if the path itself is at fault. */
  readonly template: PathTemplate | undefined
  readonly first: Layer
  shared: ParameterList
  /** What was found in the path-level parameters, until it is reported at their place. */
  sharedFindings: Findings | undefined
}

/** What is read of an operation once, however many paths lead to it. */
interface OperationFacts {
  readonly id: string | undefined
  /** What the id is compared by. */
  readonly idKey: string | undefined
  readonly summary: string | undefined
}

const PASSED_OVER = new Set(['head', 'options', 'trace', 'query', 'additionaloperations'])
const NOT_IN_NAME = /[^A-Za-z0-9_-]/
const NAME_CHARACTERS = 64

/**
 * The rules for paths and operations (DECISIONS section 12), applied path by path.
 *
 * A fault stands where it must be mended: what is wrong inside a component is reported there, once, however many operations
 * use it; a reference that leads in a circle, though, at each use, as no single step of the circle is the wrong one.
 * What is `null` where OpenAPI has an optional text or schema counts as absent (an empty line of YAML).
 */
export class OperationRules {
  readonly methods: MethodRecord[] = []
  readonly inputs: OperationInput[] = []
  operationCount = 0
  /** True once there are too many operations to go on. */
  isFull = false
  private readonly ids = new Map<string, { use: string; operation: object }>()
  private readonly templates = new Map<string, string>()
  private readonly documentHost: string | undefined
  private readonly chains: ReferenceChains
  private readonly pathItems: PathItems
  private readonly parameters: ParameterRules
  private readonly bodies: BodyRules
  /** What a reference leads to can be met again and is remembered; what stands in its own place is met once. */
  private readonly operations = new Map<object, OperationFacts>()

  constructor(
    references: References,
    private readonly misplaced: MisplacedReferences,
    private readonly schemas: SchemaWalk,
    private readonly limits: DefinitionLimits,
    headerNames: readonly string[],
    private findings: Findings,
    private readonly collect: boolean,
    private readonly servers: unknown,
  ) {
    this.documentHost = hostOf(servers)
    this.chains = new ReferenceChains(references, limits.referenceHops)
    this.pathItems = new PathItems()
    const mediaTypes = new MediaTypes(this.chains, misplaced, schemas)
    const names = new Set(headerNames.map(name => name.toLowerCase()))
    this.parameters = new ParameterRules(this.chains, misplaced, mediaTypes, schemas, limits, names)
    this.bodies = new BodyRules(this.chains, misplaced, mediaTypes)
  }

  /** One entry of `paths`. */
  checkPath(path: string, item: unknown, paths: Place): void {
    const place = placeUnder(paths, path)
    if (!isObject(item)) {
      this.findings.faultOf('dict_type', place)
      return
    }
    const template = this.readPath(path, place)
    let next: Layer | undefined
    if (item.$ref !== undefined) {
      next = this.pathItems.sharedLayer(this.chains.passed({ value: item, place }, 'pathItem', this.findings).items)
    }
    const first = this.pathItems.layerOf({ value: item, place }, next)
    const use: PathUse = { path, place, template, first, shared: NOTHING_SHARED, sharedFindings: undefined }
    let layer: Layer | undefined = first.hasTool ? first : undefined
    while (layer !== undefined && layer.value.parameters === undefined) layer = layer.next
    if (layer !== undefined) this.readShared(use, layer)
    this.checkLayers(use)
    this.reportShared(use)
  }

  private readPath(path: string, place: Place): PathTemplate | undefined {
    if (!path.startsWith('/')) {
      this.findings.warn('path_without_slash', `the path ${quote(path)} does not begin with a slash`, place)
      const reason = unusableEnd(this.servers, path)
      if (reason !== undefined) {
        const msg = `the path ${quote(path)} goes on with the host of the server, and the address ${reason}`
        this.findings.fault('server_url_invalid', msg, place)
      }
    }
    const behind = partBehindPath(path)
    if (behind?.hasSecret) {
      this.findings.fault('server_url_invalid', 'the path carries a secret: put secrets into custom headers', place)
    } else if (behind !== undefined) {
      const msg = `the path has a ${behind.name}: declare query parameters instead, as a client may escape it or leave it out`
      this.findings.warn('path_query', msg, place)
    }
    const template = readTemplate(path, this.limits.parametersPerOperation)
    if (template === 'invalid') {
      this.findings.fault('path_template_invalid', `the braces of the path ${quote(path)} do not pair`, place)
    } else if (template === 'too-many') {
      const msg = `the path has more than ${this.limits.parametersPerOperation} placeholders`
      this.findings.fault('too_many_parameters', msg, place)
    } else {
      this.warnEqual(path, template, place)
      return template
    }
    return undefined
  }

  /** `path_template_repeated`: the names of placeholders do not tell two paths apart. */
  private warnEqual(path: string, template: PathTemplate, place: Place): void {
    if (template.placeholders.length === 0) return
    const key = comparedText(path.replace(/\{[^{}]*\}/g, '{}'))
    const first = this.templates.get(key)
    if (first === undefined) {
      this.templates.set(key, path)
      return
    }
    const msg = `the path is the same as ${quote(first)} but for the names of its placeholders: a server cannot tell calls apart`
    this.findings.warn('path_template_repeated', msg, place)
  }

  /** Reads the path-level parameters that operations take in; what is found is kept apart, as they may stand after the methods. */
  private readShared(use: PathUse, layer: Layer): void {
    const outer = this.findings
    use.sharedFindings = outer.apart()
    this.findings = use.sharedFindings
    const reading = this.parameters.begin(
      layer.value.parameters,
      placeUnder(layer.place, 'parameters'),
      layer !== use.first,
      this.findings,
    )
    this.parameters.read(reading, this.findings)
    this.parameters.warnUnused(reading.list, use.template, this.findings)
    use.shared = reading.list
    this.findings = outer
  }

  private reportShared(use: PathUse): void {
    if (use.sharedFindings === undefined) return
    this.findings.append(use.sharedFindings)
    use.sharedFindings = undefined
  }

  /** The keys of the path item in document order, those of the next layer in the place of its `$ref`. */
  private checkLayers(use: PathUse): void {
    const stack: { layer: Layer; at: number }[] = [{ layer: use.first, at: 0 }]
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { layer } = top
      const key = layer.keys[top.at++]
      if (key === undefined) {
        stack.pop()
        if (layer !== use.first) layer.isReported = true
      } else if (key === '$ref') {
        const { next } = layer
        if (next !== undefined && (next.hasTool || !next.isReported)) stack.push({ layer: next, at: 0 })
      } else if (key === 'parameters') {
        this.reportShared(use)
      } else if (!isToolMethod(key)) {
        if (!layer.isReported && !isSilent(key)) this.reportKey(key, layer)
      } else if (!isShadowed(key, use.first, layer)) {
        this.checkOperation(use, layer, key)
      }
      if (this.isFull) return
    }
  }

  private reportKey(key: string, layer: Resolved): void {
    if (key === 'servers') {
      this.checkOwnServers(layer)
    } else if (PASSED_OVER.has(key.toLowerCase())) {
      this.findings.warn(
        'method_passed_over',
        `${quote(key)} is not a method of a tool and is passed over`,
        layer.place,
        key,
      )
    } else {
      const msg = `${quote(key)} is not a method: get, post, put, patch and delete become tools, extensions begin with "x-"`
      this.findings.fault('method_unsupported', msg, layer.place, key)
    }
  }

  private checkOperation(use: PathUse, layer: Layer, method: string): void {
    const operation = layer.value[method]
    const place = placeUnder(layer.place, method)
    // Whatever stands at a method counts, so that a shared path item costs no more than the operations it may have.
    this.operationCount++
    if (this.operationCount > this.limits.operations) {
      this.isFull = true
      const msg = `the definition has more than ${this.limits.operations} operations`
      this.findings.fault('too_many_operations', msg, use.place.up ?? use.place)
      return
    }
    if (this.misplaced.report(operation, place, 'operation', this.findings)) return
    if (!isObject(operation)) {
      this.findings.faultOf('dict_type', place)
      return
    }
    const isShared = layer !== use.first
    const known = isShared ? this.operations.get(operation) : undefined
    const id = known === undefined ? this.readId(operation, place) : known.id
    const idKey = known === undefined && id !== undefined ? comparedText(id) : known?.idKey
    const isFirst = id !== undefined && idKey !== undefined && this.claimId(id, idKey, operation, method, use, place)
    const summary = known === undefined ? this.readSummary(operation, place) : known.summary
    if (isShared && known === undefined) this.operations.set(operation, { id, idKey, summary })

    const reading = this.parameters.begin(
      operation.parameters === undefined ? [] : operation.parameters,
      placeUnder(place, 'parameters'),
      isShared,
      this.findings,
    )
    this.parameters.read(reading, this.findings)
    if (known === undefined) this.parameters.warnUnused(reading.list, use.template, this.findings)
    this.parameters.checkTogether(reading.list, use.shared, use.template, this.findings)
    const body = this.bodies.read(operation.requestBody, placeUnder(place, 'requestBody'), isShared, this.findings)
    this.schemas.run(this.findings)
    if (known === undefined) {
      if (operation.servers !== undefined) this.checkOwnServers({ value: operation, place })
      this.warnRest(operation, place)
    }

    if (!isFirst || summary === undefined) return
    const record: MethodRecord = { name: id, summary, path: use.path, method, spec: operation }
    this.methods.push(record)
    if (this.collect) this.inputs.push(new Input(record, place, use.shared, reading.list, body))
  }

  private readId(operation: Record<string, unknown>, place: Place): string | undefined {
    const id = operation.operationId
    if (id === undefined || (typeof id === 'string' && id.trim() === '')) {
      this.findings.fault(
        'operation_id_missing',
        'the operation needs an operationId: it becomes the name of the tool',
        place,
        'operationId',
      )
      return undefined
    }
    if (this.misplaced.report(id, placeUnder(place, 'operationId'), '"operationId"', this.findings)) return undefined
    if (typeof id !== 'string') {
      this.findings.faultOf('string_type', place, 'operationId')
      return undefined
    }
    if (id.length > NAME_CHARACTERS) {
      const msg = `models take names of at most ${NAME_CHARACTERS} characters; this one is shortened for them`
      this.findings.warn('operation_id_long', msg, place, 'operationId')
    }
    if (NOT_IN_NAME.test(id)) {
      const msg =
        'models take only ASCII letters, digits, "_" and "-" in a name; they are given another name made of this one'
      this.findings.warn('operation_id_characters', msg, place, 'operationId')
    }
    return id
  }

  /** True if no operation before has this id. */
  private claimId(id: string, key: string, operation: object, method: string, use: PathUse, place: Place): boolean {
    const owner = this.ids.get(key)
    if (owner === undefined) {
      this.ids.set(key, { use: `${method} ${use.path}`, operation })
      return true
    }
    // An operation that a second path reaches through a $ref repeats itself: that $ref is the place to mend.
    const data = { id, use: owner.use }
    const msg = `${quote(id)} is already the name of ${quote(owner.use)}`
    if (owner.operation === operation && place.up !== use.place)
      this.findings.faultWith(data, 'operation_id_duplicate', msg, use.place, '$ref')
    else this.findings.faultWith(data, 'operation_id_duplicate', msg, place, 'operationId')
    return false
  }

  private readSummary(operation: Record<string, unknown>, place: Place): string | undefined {
    for (const key of ['summary', 'description'] as const) {
      const text = operation[key]
      if (text === undefined || text === null || text === '') continue
      if (typeof text === 'string') return text
      if (this.misplaced.report(text, placeUnder(place, key), `"${key}"`, this.findings)) return undefined
      this.findings.faultOf('string_type', place, key)
      return undefined
    }
    const msg = 'the operation needs a summary or a description: it tells the model when to use the tool'
    this.findings.fault('summary_missing', msg, place, 'summary')
    return undefined
  }

  private warnRest(operation: Record<string, unknown>, place: Place): void {
    if (operation.deprecated === true) {
      this.findings.warn('operation_deprecated', 'the operation is deprecated', place, 'deprecated')
    }
    if (operation.responses === undefined) {
      this.findings.warn('responses_missing', 'the operation names no responses', place, 'responses')
    }
  }

  private checkOwnServers({ value, place }: Resolved): void {
    if (value.servers === undefined || value.servers === null) return
    const at = placeUnder(place, 'servers')
    checkServers(value.servers, false, at, this.misplaced, this.findings)
    const host = this.documentHost === undefined ? undefined : hostOf(value.servers)
    if (host === undefined || host === this.documentHost) return
    const msg = () => `calls go to ${quote(this.documentHost ?? '')}, the server of the document, not to ${quote(host)}`
    this.findings.warn('server_other_host', msg, at)
  }
}

/** What a path item may have beside its methods, and nobody looks at. */
function isSilent(key: string): boolean {
  return key === 'summary' || key === 'description' || key.startsWith('x-')
}

/** What an operation takes in; its parameters are put together when asked for, as thousands of operations may share hundreds. */
class Input implements OperationInput {
  constructor(
    readonly record: MethodRecord,
    readonly place: Place,
    private readonly shared: ParameterList,
    private readonly own: ParameterList,
    readonly body: BodyInput | undefined,
  ) {}

  get parameters(): readonly ParameterInput[] {
    return merged(this.shared, this.own)
  }
}
