import { createHash } from 'node:crypto'
import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { KeyLists } from './key-lists.js'
import type { DefinitionLimits } from './limits.js'
import { isDangling, isObject, type Kind, type References, type Target } from './references.js'
import type { SchemaWalk } from './schemas.js'
import { checkServers, hostOf, unusableEnd } from './servers.js'
import { declaredNames, type PathTemplate, readTemplate } from './templates.js'

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

/** A parameter that an operation takes, after references were followed. */
export interface ParameterInput {
  readonly name: string
  readonly in: string
  readonly value: Record<string, unknown>
  readonly place: Place
  /** False if its `in` is none that OpenAPI knows. */
  readonly isSendable: boolean
}

/** The JSON body that an operation takes, after references were followed. */
export interface BodyInput {
  readonly value: Record<string, unknown>
  /** The chosen media type object; empty if it says nothing. */
  readonly media: Record<string, unknown>
  readonly place: Place
}

/** What a tool that is made from an operation takes in: path-level parameters merged, the operation's winning by name and place. */
export interface OperationInput {
  readonly record: MethodRecord
  readonly place: Place
  readonly parameters: readonly ParameterInput[]
  readonly body: BodyInput | undefined
}

/** A value and the place at which it stands, after references were followed. */
interface Resolved {
  readonly value: Record<string, unknown>
  readonly place: Place
}

/** What one list of parameters gives. */
interface ParameterList {
  readonly inputs: ParameterInput[]
  /** The index in the list of each of `inputs`. */
  readonly indexes: number[]
  readonly place: Place
  /** True if an entry could not be read: what is missing then is not known. */
  isBroken: boolean
  /** Place and name of each of `inputs`, made when the list is long enough to need it. */
  keys: Set<string> | undefined
  /** Names and indexes of the path parameters, made when they are first asked for. */
  paths: { name: string; index: number }[] | undefined
}

/** A list of parameters of which `next` entries are read. */
interface Reading {
  readonly entries: readonly unknown[]
  readonly list: ParameterList
  next: number
}

/** Where the references that begin at an object lead, the same for everybody who comes by that object. */
interface Chain extends Resolved {
  readonly next: Chain | undefined
  /** How many references follow each other from here. */
  readonly hops: number
  readonly end: Resolved | 'circle' | 'too-far' | 'broken'
}

/** A path item, or one that a path item refers to. */
interface Layer extends Resolved {
  /** All keys; once a shared item was gone through, those that say something of each path anew. */
  keys: readonly string[]
  readonly hasOwnTool: boolean
  /** True if this item or one that it leads to has a method. */
  readonly hasTool: boolean
  /** What the item refers to; what stands earlier wins. */
  readonly next: Layer | undefined
  /** True once what is wrong with its keys is said, which is so for all paths. */
  isReported: boolean
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
  readonly summary: string | undefined
}

const TOOL_METHODS = new Set(['get', 'post', 'put', 'patch', 'delete'])
const PASSED_OVER = new Set(['head', 'options', 'trace', 'query', 'additionaloperations'])
const LONGEST_METHOD_CHARACTERS = 'additionalOperations'.length
const LOCATIONS = new Set(['query', 'header', 'path', 'cookie', 'querystring'])
/** OpenAPI: header parameters of these names are ignored; the media type, the security scheme and the caller's token rule. */
const RESERVED_HEADERS = new Set(['accept', 'content-type', 'authorization'])
const NOT_IN_NAME = /[^A-Za-z0-9_-]/
const NAME_CHARACTERS = 64
/** Longer operationIds are compared by their hash. */
const COMPARED_CHARACTERS = 1024
/** Members looked at between two looks at the clock; one of a schema may be a reference that must be resolved. */
const STEP_MEMBERS = 300
const KEYS_A_STEP = 4000
const KEYS_BETWEEN_YIELDS = 500
const HOPS_A_STEP = 250
const PARAMETERS_A_STEP = 8

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
  private readonly headerNames: ReadonlySet<string>
  private readonly documentHost: string | undefined
  // What a reference leads to can be met again and is remembered; what stands in its own place is met once.
  private readonly chains = new Map<Kind, Map<object, Chain | undefined>>()
  private readonly layers = new Map<object, Layer>()
  private readonly lists = new Map<object, ParameterList>()
  private readonly parameters = new Map<object, ParameterInput | undefined>()
  private readonly bodies = new Map<object, BodyInput | undefined>()
  private readonly operations = new Map<object, OperationFacts>()
  private readonly reportedRefs = new Set<object>()

  constructor(
    private readonly references: References,
    private readonly schemas: SchemaWalk,
    private readonly limits: DefinitionLimits,
    headerNames: readonly string[],
    private findings: Findings,
    private readonly collect: boolean,
    private readonly keyLists: KeyLists,
    private readonly servers: unknown,
  ) {
    this.documentHost = hostOf(servers)
    this.headerNames = new Set(headerNames.map(name => name.toLowerCase()))
  }

  /** One entry of `paths`. */
  *checkPath(path: string, item: unknown, paths: Place): Generator<void> {
    const place = placeUnder(paths, path)
    if (!isObject(item)) {
      this.findings.faultOf('dict_type', place)
      return
    }
    const template = this.readPath(path, place)
    let next: Layer | undefined
    if (item.$ref !== undefined) {
      const chain = this.chainOf({ value: item, place }, 'pathItem')
      this.reportChain(chain, place)
      if (chain.end !== 'too-far' && chain.hops <= this.limits.referenceHops) next = this.sharedLayer(chain.next)
    }
    const first = this.layerOf({ value: item, place }, next)
    const use: PathUse = { path, place, template, first, shared: NOTHING_SHARED, sharedFindings: undefined }
    let layer: Layer | undefined = first.hasTool ? first : undefined
    while (layer !== undefined && layer.value.parameters === undefined) layer = layer.next
    if (layer !== undefined) yield* this.readShared(use, layer)
    yield* this.checkLayers(use)
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
    const template = readTemplate(path, this.limits.parametersPerOperation)
    if (template === 'invalid') {
      this.findings.fault('path_template_invalid', `the braces of the path ${quote(path)} do not pair`, place)
    } else if (template === 'too-many') {
      const msg = `the path has more than ${this.limits.parametersPerOperation} placeholders`
      this.findings.fault('too_many_parameters', msg, place)
    } else {
      return template
    }
    return undefined
  }

  /** Reads the path-level parameters that operations take in; what is found is kept apart, as they may stand after the methods. */
  private *readShared(use: PathUse, layer: Layer): Generator<void> {
    const outer = this.findings
    use.sharedFindings = outer.apart()
    this.findings = use.sharedFindings
    const reading = this.beginList(layer.value.parameters, placeUnder(layer.place, 'parameters'), layer !== use.first)
    while (!this.readList(reading)) yield
    this.warnUnused(reading.list, use.template)
    use.shared = reading.list
    this.findings = outer
  }

  private reportShared(use: PathUse): void {
    if (use.sharedFindings === undefined) return
    this.findings.append(use.sharedFindings)
    use.sharedFindings = undefined
  }

  /** The keys of the path item in document order, those of the next layer in the place of its `$ref`. */
  private *checkLayers(use: PathUse): Generator<void> {
    const stack: { layer: Layer; at: number }[] = [{ layer: use.first, at: 0 }]
    let count = 0
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { layer } = top
      const key = layer.keys[top.at++]
      if (++count % KEYS_BETWEEN_YIELDS === 0) yield
      if (key === undefined) {
        stack.pop()
        if (layer !== use.first && !layer.isReported) yield* this.finishLayer(layer)
      } else if (key === '$ref') {
        let { next } = layer
        // What says nothing of this path is passed by.
        while (next?.isReported && !next.hasOwnTool && next.value.parameters === undefined) next = next.next
        if (next !== undefined && (next.hasTool || !next.isReported)) stack.push({ layer: next, at: 0 })
      } else if (key === 'parameters') {
        this.reportShared(use)
      } else if (!isToolMethod(key)) {
        if (!layer.isReported && !isSilent(key)) yield* this.reportKey(key, layer)
      } else if (!isShadowed(key, use.first, layer)) {
        yield* this.checkOperation(use, layer, key)
      }
      if (this.isFull) return
    }
  }

  private *finishLayer(layer: Layer): Generator<void> {
    layer.isReported = true
    layer.keys = yield* filtered(layer.keys, key => key === '$ref' || key === 'parameters' || isToolMethod(key))
  }

  private layerOf(item: Resolved, next: Layer | undefined): Layer {
    const keys = this.keyLists.of(item.value)
    const hasOwnTool = keys.some(isToolMethod)
    const hasTool = hasOwnTool || next?.hasTool === true
    // Written out: V8 makes a spread a new hidden class each time, a fifth of the check.
    return { value: item.value, place: item.place, keys, hasOwnTool, hasTool, next, isReported: false }
  }

  /** The layers of path items that references lead to, the last one first, each made once. */
  private sharedLayer(chain: Chain | undefined): Layer | undefined {
    const missing: Chain[] = []
    let layer: Layer | undefined
    for (let at = chain; at !== undefined; at = at.next) {
      layer = this.layers.get(at.value)
      if (layer !== undefined) break
      missing.push(at)
    }
    for (const each of missing.reverse()) {
      layer = this.layerOf(each, layer)
      this.layers.set(each.value, layer)
    }
    return layer
  }

  private *reportKey(key: string, layer: Resolved): Generator<void> {
    if (key === 'servers') {
      yield* this.checkOwnServers(layer)
    } else if (key.length <= LONGEST_METHOD_CHARACTERS && PASSED_OVER.has(key.toLowerCase())) {
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

  private *checkOperation(use: PathUse, layer: Layer, method: string): Generator<void> {
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
    if (!isObject(operation)) {
      this.findings.faultOf('dict_type', place)
      return
    }
    const isShared = layer !== use.first
    const known = isShared ? this.operations.get(operation) : undefined
    const id = known === undefined ? this.readId(operation, place) : known.id
    const isFirst = id !== undefined && this.claimId(id, operation, method, use, place)
    const summary = known === undefined ? this.readSummary(operation, place) : known.summary
    if (isShared) this.operations.set(operation, { id, summary })

    const reading = this.beginList(
      operation.parameters === undefined ? NO_ENTRIES : operation.parameters,
      placeUnder(place, 'parameters'),
      isShared,
    )
    while (!this.readList(reading)) yield
    if (known === undefined) this.warnUnused(reading.list, use.template)
    this.checkTogether(use, reading.list, reading.list.place)
    const body = this.readBody(operation.requestBody, placeUnder(place, 'requestBody'), isShared)
    while (!this.schemas.step(STEP_MEMBERS, this.findings)) yield
    if (known === undefined) {
      if (operation.servers !== undefined) yield* this.checkOwnServers({ value: operation, place })
      this.warnRest(operation, place)
    }
    yield

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
  private claimId(id: string, operation: object, method: string, use: PathUse, place: Place): boolean {
    const key = id.length > COMPARED_CHARACTERS ? createHash('sha256').update(id).digest('hex') : id
    const owner = this.ids.get(key)
    if (owner === undefined) {
      this.ids.set(key, { use: `${method} ${use.path}`, operation })
      return true
    }
    // An operation that a second path reaches through a $ref repeats itself: that $ref is the place to mend.
    const msg = `${quote(id)} is already the name of ${quote(owner.use)}`
    if (owner.operation === operation && place.up !== use.place)
      this.findings.fault('operation_id_duplicate', msg, use.place, '$ref')
    else this.findings.fault('operation_id_duplicate', msg, place, 'operationId')
    return false
  }

  private readSummary(operation: Record<string, unknown>, place: Place): string | undefined {
    for (const key of ['summary', 'description'] as const) {
      const text = operation[key]
      if (text === undefined || text === null || text === '') continue
      if (typeof text === 'string') return text
      this.findings.faultOf('string_type', place, key)
      return undefined
    }
    const msg = 'the operation needs a summary or a description: it tells the model when to use the tool'
    this.findings.fault('summary_missing', msg, place, 'summary')
    return undefined
  }

  private beginList(entries: unknown, place: Place, isShared: boolean): Reading {
    const known = isShared && Array.isArray(entries) ? this.lists.get(entries) : undefined
    if (known !== undefined) return { entries: NO_ENTRIES, list: known, next: 0 }
    const list = emptyList(place)
    if (!Array.isArray(entries)) {
      this.findings.faultOf('list_type', place)
      list.isBroken = true
      return { entries: NO_ENTRIES, list, next: 0 }
    }
    if (isShared) this.lists.set(entries, list)
    if (entries.length <= this.limits.parametersPerOperation) return { entries, list, next: 0 }
    this.reportTooMany(place)
    list.isBroken = true
    return { entries: NO_ENTRIES, list, next: 0 }
  }

  /** Reads on; true when the list is read to its end, with every schema in it. */
  private readList(reading: Reading): boolean {
    const { entries, list } = reading
    for (let read = 0; ; read++) {
      if (!this.schemas.step(STEP_MEMBERS, this.findings)) return false
      if (reading.next >= entries.length) return true
      if (read >= PARAMETERS_A_STEP) return false
      const index = reading.next++
      const input = this.readParameter(entries[index], list.place, index)
      if (input === undefined) list.isBroken = true
      else this.addParameter(input, index, list)
    }
  }

  private addParameter(input: ParameterInput, index: number, list: ParameterList): void {
    if (holds(list, input)) {
      const msg = `the ${input.in} parameter ${quote(input.name)} stands twice in this list; the first is used`
      this.findings.warn('parameter_duplicate', msg, list.place, index)
      return
    }
    list.inputs.push(input)
    list.indexes.push(index)
    list.keys?.add(keyOf(input))
  }

  private readParameter(entry: unknown, up: Place, index: number): ParameterInput | undefined {
    const place = placeUnder(up, index)
    if (!isObject(entry)) {
      this.findings.faultOf('dict_type', place)
      return undefined
    }
    if (entry.$ref === undefined) return this.readParameterFields({ value: entry, place })
    const found = this.follow({ value: entry, place }, 'parameter')
    if (found === undefined) return undefined
    if (!this.parameters.has(found.value)) this.parameters.set(found.value, this.readParameterFields(found))
    return this.parameters.get(found.value)
  }

  private readParameterFields({ value, place }: Resolved): ParameterInput | undefined {
    this.enterSchemas(value, place)
    const { name } = value
    if (name === undefined || name === '') {
      this.findings.faultOf('missing', place, 'name')
      return undefined
    }
    if (typeof name !== 'string') {
      this.findings.faultOf('string_type', place, 'name')
      return undefined
    }
    const location = typeof value.in === 'string' ? value.in : ''
    this.warnLocation(name, location, place)
    return { name, in: location, value, place, isSendable: LOCATIONS.has(location) }
  }

  /** The schema of a parameter stands in `schema`, or in the one media type of its `content`. */
  private enterSchemas(parameter: Record<string, unknown>, place: Place): void {
    const { schema, content } = parameter
    if (schema !== undefined && schema !== null) this.schemas.enter(schema, place, 'schema', this.findings)
    if (!isObject(content)) return
    const [first] = Object.keys(content)
    if (first === undefined) return
    const media = content[first]
    if (isObject(media)) this.enterMedia({ value: media, place: placeUnder(placeUnder(place, 'content'), first) })
  }

  private warnLocation(name: string, location: string, place: Place): void {
    if (!LOCATIONS.has(location)) {
      const msg = `the parameter ${quote(name)} says by its "in" neither query, header, path nor cookie: it cannot be sent`
      this.findings.warn('parameter_location_unknown', msg, place, 'in')
      return
    }
    if ((location !== 'header' && location !== 'cookie') || isSupplied(name, location, this.headerNames)) return
    const msg = `no custom header supplies the ${location} parameter ${quote(name)}`
    this.findings.warn('parameter_not_supplied', msg, place)
  }

  /** `path_parameter_unused`: a path parameter that no placeholder names is never sent. */
  private warnUnused(list: ParameterList, template: PathTemplate | undefined): void {
    if (template === undefined || list.inputs.length === 0) return
    const paths = pathParametersOf(list)
    if (!this.findings.takesWarnings) {
      this.findings.warningCount += paths.length - template.countOf(name => keysOf(list).has(`path ${name}`))
      return
    }
    for (const { name, index } of paths) {
      if (template.accepts(name)) continue
      const msg = () => `the path has no placeholder for the path parameter ${quote(name)}`
      this.findings.warn('path_parameter_unused', msg, list.place, index)
    }
  }

  /** What only the path, its parameters and those of the operation say together. */
  private checkTogether(use: PathUse, own: ParameterList, place: Place): void {
    const { shared, template } = use
    if (own.isBroken || shared.isBroken) return
    const most = this.limits.parametersPerOperation
    if (own.inputs.length + shared.inputs.length > most && merged(shared, own).length > most) this.reportTooMany(place)
    if (template === undefined) return
    for (const name of template.names) {
      if (declares(own, name) || declares(shared, name)) continue
      if (declaredNames(name).some(each => declares(own, each) || declares(shared, each))) continue
      const msg = `the placeholder ${quote(name)} of the path is not declared: add {"name": ${quote(name)}, "in": "path", "required": true, "schema": {"type": "string"}}`
      this.findings.fault('path_parameter_undeclared', msg, place)
    }
  }

  private reportTooMany(place: Place): void {
    const msg = `an operation takes at most ${this.limits.parametersPerOperation} parameters`
    this.findings.fault('too_many_parameters', msg, place)
  }

  private readBody(body: unknown, place: Place, isShared: boolean): BodyInput | undefined {
    if (body === undefined) return undefined
    if (!isObject(body)) {
      this.findings.faultOf('dict_type', place)
      return undefined
    }
    if (body.$ref === undefined && !isShared) return this.readBodyFields({ value: body, place })
    const found = this.follow({ value: body, place }, 'requestBody')
    if (found === undefined) return undefined
    if (!this.bodies.has(found.value)) this.bodies.set(found.value, this.readBodyFields(found))
    return this.bodies.get(found.value)
  }

  /** Of several JSON media types `application/json` is used, else the first; only that one becomes input and is looked into. */
  private readBodyFields(body: Resolved): BodyInput | undefined {
    const { content } = body.value
    if (content !== undefined && !isObject(content)) {
      this.findings.faultOf('dict_type', body.place, 'content')
      return undefined
    }
    const name = jsonMediaType(content)
    if (content === undefined || name === undefined) {
      const msg = 'the body has no JSON media type such as application/json: a model sends JSON only'
      this.findings.fault('request_body_media_type_unsupported', msg, body.place, 'content')
      return undefined
    }
    const place = placeUnder(placeUnder(body.place, 'content'), name)
    const value = content[name]
    if (value === null) return { value: body.value, media: {}, place }
    if (!isObject(value)) {
      this.findings.faultOf('dict_type', place)
      return undefined
    }
    const media = this.enterMedia({ value, place })
    return media === undefined ? undefined : { value: body.value, media: media.value, place: media.place }
  }

  /** Goes into the schema of a media type, which may itself be a reference (3.2). */
  private enterMedia(media: Resolved): Resolved | undefined {
    const found = this.follow(media, 'mediaType')
    if (found === undefined) return undefined
    for (const key of ['schema', 'itemSchema']) {
      const schema = found.value[key]
      if (schema !== undefined && schema !== null) this.schemas.enter(schema, found.place, key, this.findings)
    }
    return found
  }

  private warnRest(operation: Record<string, unknown>, place: Place): void {
    if (operation.deprecated === true) {
      this.findings.warn('operation_deprecated', 'the operation is deprecated', place, 'deprecated')
    }
    if (operation.responses === undefined) {
      this.findings.warn('responses_missing', 'the operation names no responses', place, 'responses')
    }
  }

  private *checkOwnServers({ value, place }: Resolved): Generator<void> {
    if (value.servers === undefined || value.servers === null) return
    const at = placeUnder(place, 'servers')
    yield* checkServers(value.servers, false, at, this.findings)
    const host = this.documentHost === undefined ? undefined : hostOf(value.servers)
    if (host === undefined || host === this.documentHost) return
    const msg = () => `calls go to ${quote(this.documentHost ?? '')}, the server of the document, not to ${quote(host)}`
    this.findings.warn('server_other_host', msg, at)
  }

  /** Follows an object that is a reference to what it means. */
  private follow(start: Resolved, kind: Kind): Resolved | undefined {
    if (start.value.$ref === undefined) return start
    const chain = this.chainOf(start, kind)
    return this.reportChain(chain, start.place)
  }

  /** What the chain leads to; the fault of a chain that ends nowhere stands at each use, but for that of a broken link. */
  private reportChain({ end, hops }: Chain, place: Place): Resolved | undefined {
    const most = this.limits.referenceHops
    if (end === 'circle') this.findings.fault('ref_cycle', 'the reference leads in a circle', place, '$ref')
    else if (end === 'too-far' || hops > most)
      this.findings.fault('ref_cycle', `the reference leads through more than ${most} references`, place, '$ref')
    else if (end !== 'broken') return end
    return undefined
  }

  /** Every object is followed once. A chain that is longer than one step may take is given up; its beginning is too long anyway. */
  private chainOf(start: Resolved, kind: Kind): Chain {
    const chains = this.chains.get(kind) ?? new Map<object, Chain | undefined>()
    this.chains.set(kind, chains)
    const passed: Resolved[] = []
    let next: Chain | undefined
    let end: Chain['end'] | undefined
    for (let at: Resolved | undefined = start; end === undefined; ) {
      const known: Chain | undefined = chains.get(at.value)
      if (known !== undefined || at.value.$ref === undefined) {
        next = known ?? { ...at, next: undefined, hops: 0, end: at }
        end = next.end
      } else if (chains.has(at.value)) {
        end = 'circle'
      } else if (passed.length > HOPS_A_STEP) {
        end = 'too-far'
      } else {
        chains.set(at.value, undefined)
        passed.push(at)
        const following = this.followOnce(at, kind)
        if (following === undefined) end = 'broken'
        else at = following
      }
    }
    for (let i = passed.length - 1; i >= 0; i--) {
      const step = passed[i] as Resolved // i is inside the list
      next = { ...step, next, hops: (next?.hops ?? 0) + 1, end }
      if (end !== 'too-far' || passed.length - i > this.limits.referenceHops) chains.set(step.value, next)
      else chains.delete(step.value)
    }
    return next as Chain // known, or made of a step that was passed
  }

  private followOnce({ value, place }: Resolved, kind: Kind): Resolved | undefined {
    const ref = value.$ref
    const target = typeof ref === 'string' ? this.references.find(ref) : undefined
    if (target !== undefined && !isDangling(target) && isObject(target.value) && isOfKind(target, target.value, kind)) {
      return { value: target.value, place: target.place }
    }
    if (this.reportedRefs.has(value)) return undefined
    this.reportedRefs.add(value)
    if (target === undefined) this.findings.faultOf('string_type', place, '$ref')
    else if (isDangling(target)) this.findings.fault(target.type, target.msg, place, '$ref')
    else
      this.findings.fault(
        'ref_target_type',
        `the reference ${quote(String(ref))} points at something that is not a ${KIND_WORDS[kind]}`,
        place,
        '$ref',
      )
    return undefined
  }
}

/** True if the place says so; where it says nothing, an object that is named and placed nowhere is not a parameter but a schema. */
function isOfKind(target: Target, value: Record<string, unknown>, kind: Kind): boolean {
  if (target.kind !== undefined) return target.kind === kind
  return kind !== 'parameter' || value.$ref !== undefined || value.name !== undefined || value.in !== undefined
}

/** Up to here comparing is cheaper than making a set. */
const SHORT_LIST = 8
const NO_ENTRIES: readonly unknown[] = []
const KIND_WORDS: Record<Kind, string> = {
  schema: 'schema',
  schemaPart: 'schema',
  parameter: 'parameter',
  requestBody: 'request body',
  pathItem: 'path item',
  mediaType: 'media type',
  other: 'thing that is used here',
}

/**
 * True for a header or cookie parameter that the model need not be asked for: OpenAPI ignores it by its name, or one of the tool's
 * custom headers (names in lower case) supplies it.
 */
export function isSupplied(name: string, location: string, headerNames: ReadonlySet<string>): boolean {
  if (location === 'cookie') return headerNames.has('cookie')
  if (location !== 'header') return false
  const header = name.toLowerCase()
  return RESERVED_HEADERS.has(header) || headerNames.has(header)
}

/** `get post put patch delete` in any case. */
function isToolMethod(key: string): boolean {
  return TOOL_METHODS.has(key) || (key.length <= LONGEST_METHOD_CHARACTERS && TOOL_METHODS.has(key.toLowerCase()))
}

/** What a path item may have beside its methods, and nobody looks at. */
function isSilent(key: string): boolean {
  return key === 'summary' || key === 'description' || key.startsWith('x-')
}

/** True if a layer before `layer` has the key. */
function isShadowed(key: string, first: Layer, layer: Layer): boolean {
  for (let at: Layer | undefined = first; at !== undefined && at !== layer; at = at.next) {
    if (Object.hasOwn(at.value, key)) return true
  }
  return false
}

function* filtered(keys: readonly string[], keeps: (key: string) => boolean): Generator<void, string[]> {
  const kept: string[] = []
  for (let i = 0; i < keys.length; i++) {
    if (i % KEYS_A_STEP === KEYS_A_STEP - 1) yield
    const key = keys[i] as string // i is inside the list
    if (keeps(key)) kept.push(key)
  }
  return kept
}

function emptyList(place: Place): ParameterList {
  return { inputs: [], indexes: [], place, isBroken: false, keys: undefined, paths: undefined }
}

/** Where no path-level parameters are. */
const NOTHING_SHARED = emptyList({ up: undefined, key: '' })

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

/** Place and name make a parameter; names of headers are compared without case. */
function isSameParameter(one: ParameterInput, other: ParameterInput): boolean {
  if (one.in !== other.in) return false
  return one.name === other.name || (one.in === 'header' && one.name.toLowerCase() === other.name.toLowerCase())
}

function keyOf(input: ParameterInput): string {
  return `${input.in} ${input.in === 'header' ? input.name.toLowerCase() : input.name}`
}

function keysOf(list: ParameterList): Set<string> {
  list.keys ??= new Set(list.inputs.map(keyOf))
  return list.keys
}

function pathParametersOf(list: ParameterList): { name: string; index: number }[] {
  if (list.paths !== undefined) return list.paths
  const paths: { name: string; index: number }[] = []
  list.inputs.forEach(({ in: location, name }, i) => {
    if (location === 'path') paths.push({ name, index: list.indexes[i] ?? i })
  })
  list.paths = paths
  return paths
}

function holds(list: ParameterList, input: ParameterInput): boolean {
  if (list.inputs.length > SHORT_LIST) return keysOf(list).has(keyOf(input))
  return list.inputs.some(known => isSameParameter(known, input))
}

function declares(list: ParameterList, name: string): boolean {
  if (list.inputs.length > SHORT_LIST) return keysOf(list).has(`path ${name}`)
  return list.inputs.some(input => input.in === 'path' && input.name === name)
}

/** The parameters of an operation: those of its path, unless the operation has one of that place and name, then its own. */
function merged(shared: ParameterList, own: ParameterList): ParameterInput[] {
  return [...shared.inputs.filter(input => !holds(own, input)), ...own.inputs]
}

/** `application/json` or `...+json`, in any case, with or without parameters such as a charset. */
function jsonMediaType(content: Record<string, unknown> | undefined): string | undefined {
  if (content === undefined) return undefined
  if (Object.hasOwn(content, 'application/json')) return 'application/json'
  let suffixed: string | undefined
  for (const name of Object.keys(content)) {
    const essence = name.slice(0, 256).split(';', 1)[0]?.trim().toLowerCase()
    if (essence === 'application/json') return name
    if (suffixed === undefined && essence?.endsWith('+json')) suffixed = name
  }
  return suffixed
}
