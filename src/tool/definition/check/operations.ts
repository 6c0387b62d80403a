import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { DefinitionLimits } from './limits.js'
import { isDangling, isObject, type Kind, type References } from './references.js'
import type { SchemaWalk } from './schemas.js'
import { checkServers } from './servers.js'
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
}

/** A list of parameters of which `next` entries are read. */
interface Reading {
  readonly entries: readonly unknown[]
  readonly list: ParameterList
  next: number
}

/** Which keys of a path item matter; what is wrong with the others is said once, when the item is first gone through. */
interface ItemPlan {
  keys: string[]
  readonly hasTool: boolean
  isReported: boolean
}

interface Layer extends Resolved {
  readonly plan: ItemPlan
}

/** One path and what holds for all its operations. */
interface PathUse {
  readonly path: string
  readonly place: Place
  /** Undefined if the path itself is at fault. */
  readonly template: PathTemplate | undefined
  /** The path item, then what its `$ref`s lead to; what stands earlier wins. */
  readonly layers: readonly Layer[]
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
const NOT_IN_NAME = /[^A-Za-z0-9_-]/g
const NAME_CHARACTERS = 64
/** Longer operationIds are compared as written; the names that models get of them end with a hash. */
const COMPARED_CHARACTERS = 1024
const STEP_MEMBERS = 4000
const KEYS_BETWEEN_YIELDS = 500

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
  // What a reference leads to can be met again and is remembered; what stands in its own place is met once.
  private readonly plans = new Map<object, ItemPlan>()
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
  ) {
    this.headerNames = new Set(headerNames.map(name => name.toLowerCase()))
  }

  /** One entry of `paths`. */
  *checkPath(path: string, item: unknown, paths: Place): Generator<void> {
    const place = placeUnder(paths, path)
    if (!isObject(item)) {
      this.findings.fault('dict_type', NOT_A_DICTIONARY, place)
      return
    }
    const template = this.readPath(path, place)
    const layers: Layer[] = [{ value: item, place, plan: planOf(item) }]
    if (item.$ref !== undefined) {
      this.follow({ value: item, place }, 'pathItem', step =>
        layers.push({ ...step, plan: this.sharedPlan(step.value) }),
      )
    }
    const use: PathUse = { path, place, template, layers, shared: emptyList(place), sharedFindings: undefined }
    yield* this.readShared(use)
    yield* this.checkLayer(use, 0)
    this.reportShared(use)
  }

  private readPath(path: string, place: Place): PathTemplate | undefined {
    if (!path.startsWith('/')) {
      this.findings.warn('path_without_slash', `the path ${quote(path)} does not begin with a slash`, place)
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

  /** Reads the path-level parameters if an operation takes them in; what is found is kept apart, as they may stand after the methods. */
  private *readShared(use: PathUse): Generator<void> {
    const depth = use.layers.findIndex(each => each.value.parameters !== undefined)
    const layer = use.layers[depth]
    if (layer === undefined || !use.layers.some(each => each.plan.hasTool)) return
    const outer = this.findings
    use.sharedFindings = outer.apart()
    this.findings = use.sharedFindings
    const reading = this.beginList(layer.value.parameters, placeUnder(layer.place, 'parameters'), depth > 0)
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

  /** The keys of one layer in document order; at its `$ref` the next layer. */
  private *checkLayer(use: PathUse, depth: number): Generator<void> {
    const layer = use.layers[depth]
    if (layer === undefined) return
    const { plan } = layer
    let count = 0
    for (const key of plan.keys) {
      if (++count % KEYS_BETWEEN_YIELDS === 0) yield
      if (key === '$ref') yield* this.checkLayer(use, depth + 1)
      else if (key === 'parameters') this.reportShared(use)
      else if (!isToolMethod(key)) this.reportKey(key, layer)
      else if (!isShadowed(key, use.layers, depth)) yield* this.checkOperation(use, layer, key, depth)
      if (this.isFull) return
    }
    if (!plan.isReported) {
      plan.isReported = true
      plan.keys = plan.keys.filter(key => key === '$ref' || key === 'parameters' || isToolMethod(key))
    }
  }

  private sharedPlan(item: Record<string, unknown>): ItemPlan {
    const plan = this.plans.get(item) ?? planOf(item)
    this.plans.set(item, plan)
    return plan
  }

  private reportKey(key: string, layer: Resolved): void {
    if (key === 'servers') {
      this.checkOwnServers(layer)
    } else if (key.length <= LONGEST_METHOD_CHARACTERS && PASSED_OVER.has(key.toLowerCase())) {
      this.findings.warn(
        'method_passed_over',
        `${quote(key)} is no method of a tool and is passed over`,
        layer.place,
        key,
      )
    } else {
      const msg = `${quote(key)} is no method: get, post, put, patch and delete become tools, extensions begin with "x-"`
      this.findings.fault('method_unsupported', msg, layer.place, key)
    }
  }

  private *checkOperation(use: PathUse, layer: Resolved, method: string, depth: number): Generator<void> {
    const operation = layer.value[method]
    const place = placeUnder(layer.place, method)
    if (!isObject(operation)) {
      this.findings.fault('dict_type', NOT_A_DICTIONARY, place)
      return
    }
    this.operationCount++
    if (this.operationCount > this.limits.operations) {
      this.isFull = true
      const msg = `the definition has more than ${this.limits.operations} operations`
      this.findings.fault('too_many_operations', msg, use.place.up ?? use.place)
      return
    }
    const isShared = depth > 0
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
    if (known === undefined) this.checkRest(operation, place)
    yield

    if (!isFirst || summary === undefined) return
    const record: MethodRecord = { name: id, summary, path: use.path, method, spec: operation }
    this.methods.push(record)
    if (this.collect) this.inputs.push({ record, place, parameters: merged(use.shared, reading.list), body })
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
      this.findings.fault('string_type', NOT_A_STRING, place, 'operationId')
      return undefined
    }
    if (id.length > NAME_CHARACTERS) {
      const msg = `models take names of at most ${NAME_CHARACTERS} characters; this one is shortened for them`
      this.findings.warn('operation_id_long', msg, place, 'operationId')
    }
    if (id.search(NOT_IN_NAME) !== -1) {
      const msg = 'models take only letters, digits, "_" and "-" in a name; everything else becomes "_" for them'
      this.findings.warn('operation_id_characters', msg, place, 'operationId')
    }
    return id
  }

  /** True if no operation before has this id, or one that reads the same to a model. */
  private claimId(id: string, operation: object, method: string, use: PathUse, place: Place): boolean {
    const name = id.length > COMPARED_CHARACTERS ? id : id.replace(NOT_IN_NAME, '_')
    const owner = this.ids.get(name)
    if (owner === undefined) {
      this.ids.set(name, { use: `${method} ${use.path}`, operation })
      return true
    }
    // An operation that a second path reaches through a $ref repeats itself: that $ref is the place to mend.
    const msg = `${quote(id)} is already the name of ${quote(owner.use)}`
    if (owner.operation === operation) this.findings.fault('operation_id_duplicate', msg, use.place, '$ref')
    else this.findings.fault('operation_id_duplicate', msg, place, 'operationId')
    return false
  }

  private readSummary(operation: Record<string, unknown>, place: Place): string | undefined {
    for (const key of ['summary', 'description'] as const) {
      const text = operation[key]
      if (text === undefined || text === null || text === '') continue
      if (typeof text === 'string') return text
      this.findings.fault('string_type', NOT_A_STRING, place, key)
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
      this.findings.fault('list_type', 'Input should be a valid list', place)
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
    for (;;) {
      if (!this.schemas.step(STEP_MEMBERS, this.findings)) return false
      if (reading.next >= entries.length) return true
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
      this.findings.fault('dict_type', NOT_A_DICTIONARY, place)
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
      this.findings.fault('missing', 'Field required', place, 'name')
      return undefined
    }
    if (typeof name !== 'string') {
      this.findings.fault('string_type', NOT_A_STRING, place, 'name')
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
    if (template === undefined) return
    list.inputs.forEach((input, i) => {
      if (input.in !== 'path' || template.accepts(input.name)) return
      const msg = `the path has no placeholder for the path parameter ${quote(input.name)}`
      this.findings.warn('path_parameter_unused', msg, list.place, list.indexes[i] ?? i)
    })
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
      this.findings.fault('dict_type', NOT_A_DICTIONARY, place)
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
      this.findings.fault('dict_type', NOT_A_DICTIONARY, body.place, 'content')
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
      this.findings.fault('dict_type', NOT_A_DICTIONARY, place)
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

  private checkRest(operation: Record<string, unknown>, place: Place): void {
    this.checkOwnServers({ value: operation, place })
    if (operation.deprecated === true) {
      this.findings.warn('operation_deprecated', 'the operation is deprecated', place, 'deprecated')
    }
    if (operation.responses === undefined) {
      this.findings.warn('responses_missing', 'the operation names no responses', place, 'responses')
    }
  }

  private checkOwnServers({ value, place }: Resolved): void {
    if (value.servers === undefined || value.servers === null) return
    checkServers(value.servers, false, placeUnder(place, 'servers'), this.findings)
  }

  /** Follows an object that is a reference to what it means; every reference passed is shown to `onStep`. */
  private follow(start: Resolved, kind: Kind, onStep?: (step: Resolved) => void): Resolved | undefined {
    if (start.value.$ref === undefined) return start
    const passed = new Set<object>()
    let at = start
    while (at.value.$ref !== undefined) {
      if (passed.has(at.value) || passed.size >= this.limits.referenceHops) {
        const how = passed.has(at.value)
          ? 'leads in a circle'
          : `leads through more than ${this.limits.referenceHops} references`
        this.findings.fault('ref_cycle', `the reference ${how}`, start.place, '$ref')
        return undefined
      }
      passed.add(at.value)
      const next = this.followOnce(at, kind)
      if (next === undefined) return undefined
      at = next
      onStep?.(at)
    }
    return at
  }

  private followOnce({ value, place }: Resolved, kind: Kind): Resolved | undefined {
    const ref = value.$ref
    const target = typeof ref === 'string' ? this.references.find(ref) : undefined
    if (target !== undefined && !isDangling(target) && isObject(target.value) && (target.kind ?? kind) === kind) {
      return { value: target.value, place: target.place }
    }
    if (this.reportedRefs.has(value)) return undefined
    this.reportedRefs.add(value)
    if (target === undefined) this.findings.fault('string_type', NOT_A_STRING, place, '$ref')
    else if (isDangling(target)) this.findings.fault(target.type, target.msg, place, '$ref')
    else
      this.findings.fault(
        'ref_target_type',
        `the reference ${quote(String(ref))} points at something that is no ${KIND_WORDS[kind]}`,
        place,
        '$ref',
      )
    return undefined
  }
}

/** Up to here comparing is cheaper than making a set. */
const SHORT_LIST = 8
const NO_ENTRIES: readonly unknown[] = []
const NOT_A_DICTIONARY = 'Input should be a valid dictionary'
const NOT_A_STRING = 'Input should be a valid string'
const KIND_WORDS: Record<Kind, string> = {
  schema: 'schema',
  parameter: 'parameter',
  requestBody: 'request body',
  pathItem: 'path item',
  mediaType: 'media type',
  other: 'such object',
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

function isShadowed(key: string, layers: readonly Resolved[], depth: number): boolean {
  for (let i = 0; i < depth; i++) {
    if (Object.hasOwn(layers[i]?.value ?? {}, key)) return true
  }
  return false
}

function planOf(item: Record<string, unknown>): ItemPlan {
  const keys = Object.keys(item).filter(key => key !== 'summary' && key !== 'description' && !key.startsWith('x-'))
  return { keys, hasTool: keys.some(isToolMethod), isReported: false }
}

function emptyList(place: Place): ParameterList {
  return { inputs: [], indexes: [], place, isBroken: false, keys: undefined }
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
