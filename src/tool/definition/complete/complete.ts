import type { Fault, Loc } from '../../../errors.js'
import { rememberNumbers, writtenNumber } from '../../../schema/exact-json.js'
import { type CheckOptions, DEFAULT_AT, type DefinitionCheck, type Inspection, inspection } from '../check/check.js'
import { boundFaults, quote } from '../check/findings.js'
import { DEFAULT_DEFINITION_LIMITS, type DefinitionLimits } from '../check/limits.js'
import { isObject } from '../check/references.js'
import { unusableServer } from '../check/servers.js'
import { inOneGo, inSlices } from '../check/slices.js'
import { type Edit, EditedDocument } from './edits.js'
import { generatedId, TakenNames } from './ids.js'
import { stepsOf } from './pointers.js'
import { charactersOf, mostMadeOf } from './sizes.js'
import { convertSwagger, movedReference, NotConvertible, serversOf } from './swagger.js'

export interface CompletionOptions extends CheckOptions {
  /** The absolute address for a definition that names none that can be used, or only a relative one. */
  server?: string
  /** True to leave out operations with a body that is not JSON, which no model can send. */
  dropsUnsupported?: boolean
}

/** An operation that was left out. */
export interface DroppedOperation {
  method: string
  path: string
  msg: string
}

export interface Completion {
  /** The definition with the edits applied; shares what did not change with the one that was given. */
  definition: unknown
  edits: Edit[]
  dropped: DroppedOperation[]
  /** What the check says of `definition`: its faults are what cannot be repaired. */
  check: DefinitionCheck
}

/** A definition that needs more edits is repaired as far as these go: nobody could read them. */
const MOST_EDITS = 20_000
/** A repair may uncover what another rule says of it. No real document was seen to need more than two rounds, no made one more than four. */
const MOST_ROUNDS = 5
/** Characters of all path items together that are copied because several paths share them. */
const MOST_COPIED_CHARACTERS = 1024 * 1024
/** Characters of the media types of a body that is left out, as they are named. */
const MOST_TYPE_CHARACTERS = 200
const PATH_FROM_PLACEHOLDER = /^the placeholder (".*") of the path is not declared/
const REPAIRS_A_STEP = 20
const MEMBERS_A_STEP = 1000
const REMOVING = new Set(['dict_type', 'server_url_missing', 'server_url_invalid'])
/** What no copy can be made of. */
const BEYOND_REPAIR = new Set(['definition_too_deep', 'definition_too_large', 'key_forbidden'])
/** How a place ends a key of which it has only the beginning. */
const CUT_KEY = /^.{246,}~[0-9a-f]{8}$/s
const ANY_JSON = new Set(['*/*', 'application/*', 'text/json', 'application/x-json', 'application/javascript'])
const TOOL_METHODS = new Set(['get', 'post', 'put', 'patch', 'delete'])

/**
 * The smallest repair of a definition under which it is accepted, as a list of edits.
 *
 * - Swagger 2.0 is converted as a whole. A version that was written as a number becomes a text.
 * - A missing server is the one given, else the one that host and base path (a leftover of Swagger 2.0), or the first path or operation
 *   with a usable one, name. Servers that cannot be used are taken out or replaced by the one given; a relative one is resolved by it.
 * - A missing operationId is made of path and method; one that is there already gets a number. A missing summary is the first
 *   sentence of the path item's description, else "METHOD path".
 * - Placeholders are declared as texts; entries that hold nothing (null) are taken out; keys that are not methods become extensions;
 *   references in the way of Swagger 2.0, or by a bare name, lead to the component; a body of any type is JSON.
 * - With `dropsUnsupported`, operations whose body is not JSON are left out.
 *
 * What is not listed here is left as it is, and its faults are in the answer's `check`. Nothing is stored, and the definition that was
 * given is not changed. Completing a completed definition changes nothing.
 */
export function completeDefinition(definition: unknown, options: CompletionOptions = {}): Completion {
  return inOneGo(completion(definition, options))
}

/** `completeDefinition` with the same result, giving way to the event loop whenever `sliceMs` milliseconds (default 2) have passed. */
export async function completeDefinitionInSlices(
  definition: unknown,
  options: CompletionOptions & { sliceMs?: number } = {},
): Promise<Completion> {
  return await inSlices(completion(definition, options), options.sliceMs)
}

/**
 * Its time is that of the check: the definition is checked once, and once more after each round of repairs that changed something.
 * A document that is not OpenAPI 3 costs only the first pass of the check over its values before it is converted.
 */
export function* completion(definition: unknown, options: CompletionOptions): Generator<void, Completion> {
  const limits = { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const at = options.at ?? DEFAULT_AT
  const roomy: CheckOptions = { ...options, at, limits: { ...limits, faults: MOST_EDITS, faultBytes: Infinity } }
  const repair = new Repair(definition, { ...options, at }, limits)
  repair.resolveRelativeServer()
  let inspected = yield* inspection(repair.document.value, roomy, false)
  if (yield* repair.prepare(inspected.check)) inspected = yield* inspection(repair.document.value, roomy, false)
  for (let round = 0; round < MOST_ROUNDS && !inspected.check.ok; round++) {
    if (!(yield* repair.mend(inspected.check.faults))) break
    inspected = yield* inspection(repair.document.value, roomy, false)
  }
  const { document, dropped, refusal } = repair
  if (refusal) {
    const check: DefinitionCheck = { ok: false, faults: [refusal], warnings: inspected.check.warnings }
    return { definition, edits: [], dropped, check }
  }
  return { definition: document.value, edits: document.edits, dropped, check: boundedCheck(inspected, limits) }
}

/** The check as it is answered: here more faults were collected than an answer names. */
function boundedCheck({ check, faultCount }: Inspection, limits: DefinitionLimits): DefinitionCheck {
  if (check.ok) return check
  return { ...check, faults: boundFaults(check.faults.slice(0, limits.faults), faultCount, limits.faultBytes) }
}

/**
 * For who has the definition as it was given, and not the completed one: the place in it that is nearest to `path`, a place in the
 * completed one. Of a definition that was converted as a whole only names lead to the same, not the numbers of lists.
 */
export function placeInGiven(given: unknown, edits: readonly Edit[], path: Loc): Loc {
  const isConverted = edits.some(each => each.path.length === 0)
  const place = isConverted ? path : withoutRemovals(path, edits)
  let value = given
  for (const [i, key] of place.entries()) {
    if (isConverted && typeof key === 'number') return place.slice(0, i)
    if (typeof value !== 'object' || value === null) return place.slice(0, i)
    // What is missing has its place too.
    if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
    value = (value as Record<string | number, unknown>)[key]
  }
  return place
}

/** A place before items were taken out of the lists that it leads through. */
function withoutRemovals(path: Loc, edits: readonly Edit[]): Loc {
  const place = [...path]
  for (const { op, path: removed } of edits.toReversed()) {
    const last = removed.length - 1
    const [taken, key] = [removed[last], place[last]]
    if (op !== 'remove' || typeof taken !== 'number' || typeof key !== 'number' || key < taken) continue
    if (removed.slice(0, last).every((step, i) => step === place[i])) place[last] = key + 1
  }
  return place
}

/** The repairs of one definition. */
class Repair {
  readonly document: EditedDocument
  readonly dropped: DroppedOperation[] = []
  private ids: TakenNames | undefined
  // What is remembered of the document holds for one round.
  private bodyUses: Map<string, Loc[]> | undefined
  private itemUses: Map<string, string[]> | undefined
  private readonly mergedItems = new Map<string, Record<string, unknown>>()
  private copiedCharacters = 0
  private mostCharacters: number | undefined
  /** Why the document cannot be repaired at all. */
  refusal: Fault | undefined

  constructor(
    definition: unknown,
    private readonly options: CompletionOptions & { at: Loc },
    private readonly limits: DefinitionLimits,
  ) {
    this.document = new EditedDocument(definition)
  }

  /** Makes OpenAPI 3 of what can be read as such. True if it did: the faults of that version must be looked for. */
  *prepare(check: DefinitionCheck): Generator<void, boolean> {
    const { document } = this
    const before = document.edits.length
    if (!check.ok && check.faults.some(each => BEYOND_REPAIR.has(each.type))) return false
    if (!isObject(document.value)) return false
    const { openapi, swagger } = document.value
    if (openapi === undefined && (swagger === '2.0' || swagger === 2 || swagger === '2'))
      yield* this.convert(document.value)
    else if (openapi === undefined && swagger === undefined && isObject(document.value.paths))
      document.set(['openapi'], '3.0.3', 'openapi_added', 'the document does not say which version of OpenAPI it has')
    else if (typeof openapi === 'number' && openapi >= 3 && openapi < 4)
      document.set(
        ['openapi'],
        `${this.written(['openapi'], openapi)}.0`.replace(/^(\d+\.)0$/, '$10.0'),
        'openapi_quoted',
        'the version is a text',
      )
    else if (openapi === '3') document.set(['openapi'], '3.0.0', 'openapi_completed', 'the version has a minor number')
    return document.edits.length > before
  }

  /** One round of repairs; true if it changed something. */
  *mend(faults: readonly Fault[]): Generator<void, boolean> {
    const { edits } = this.document
    const before = edits.length
    this.bodyUses = undefined
    this.itemUses = undefined
    this.mergedItems.clear()
    // An operation that is left out needs no other repair: bodies come first. What may be taken out of a list comes last, and from
    // the end, so that it moves nothing that another repair means.
    const turnOf = ({ type }: Fault) =>
      type === 'request_body_media_type_unsupported' ? 0 : REMOVING.has(type) ? 2 : 1
    const inTurn = (turn: number) => faults.filter(fault => turnOf(fault) === turn)
    const inOrder = [...inTurn(0), ...inTurn(1), ...inTurn(2).reverse()]
    for (const [i, fault] of inOrder.entries()) {
      if (edits.length >= MOST_EDITS || (yield* this.hasNoRoom())) break
      if (i % REPAIRS_A_STEP === 0) yield
      const path = fault.loc.slice(this.options.at.length)
      // A key that is cut in the place may be that of something else.
      if (!path.some(key => typeof key === 'string' && CUT_KEY.test(key))) yield* this.mendOne(fault, path)
    }
    this.document.closeGaps()
    // A repair may have made a relative server of what was none.
    this.resolveRelativeServer()
    return edits.length > before
  }

  /** True once the edits take more characters than may be made of the document. */
  private *hasNoRoom(): Generator<void, boolean> {
    const { editCharacters, given } = this.document
    if (editCharacters < mostMadeOf(0)) return false
    this.mostCharacters ??= mostMadeOf(yield* charactersOf(given))
    return editCharacters > this.mostCharacters
  }

  private *convert(document: Record<string, unknown>): Generator<void> {
    const { server } = this.options
    const scheme = server === undefined ? undefined : new URL(server).protocol.slice(0, -1)
    try {
      const converted = yield* convertSwagger(document, { mostValues: this.limits.values, scheme })
      this.document.replaceAll(converted.document, 'swagger_converted', 'Swagger 2.0 was converted to OpenAPI 3.0.3')
      for (const { path, type, msg } of converted.notes.slice(0, MOST_EDITS)) this.document.note(path, type, msg)
      this.resolveRelativeServer()
    } catch (error) {
      if (!(error instanceof NotConvertible)) throw error
      this.refusal = { loc: this.options.at, msg: error.message, type: error.type }
    }
  }

  /** The first server, when it is relative and a better one is given. */
  resolveRelativeServer(): void {
    const { server } = this.options
    const url = this.document.at(['servers', 0, 'url'])
    if (server === undefined || typeof url !== 'string' || url.includes('{') || /^[a-z][a-z0-9+.-]*:/i.test(url)) return
    if (!URL.canParse(url, server)) return
    const resolved = url === '' || url === '/' ? server : new URL(url, server).href
    // Slashes of either kind may name another host, which is not relative then.
    if (new URL(resolved).host !== new URL(server).host) return
    this.document.set(['servers', 0, 'url'], resolved, 'server_resolved', 'calls need an absolute address')
  }

  private *mendOne({ type, msg }: Fault, path: Loc): Generator<void> {
    const { document } = this
    const last = path.at(-1)
    const value = document.at(path)
    switch (type) {
      case 'missing':
        if (path.length === 1 && last === 'info')
          document.set(path, { title: 'Untitled', version: '1.0.0' }, 'info_added', 'a definition has a title')
        else if (path.join() === 'info,title') document.set(path, 'Untitled', 'title_added', 'a definition has a title')
        break
      case 'string_type':
        if (last === 'operationId' && value === null)
          yield* this.addId(path, 'the operationId held nothing; it is made of method and path')
        else this.mendText(path, value)
        break
      case 'servers_missing':
        this.addServer()
        break
      case 'list_type':
        if (last === 'servers' && path.length === 1) this.addServer()
        else if (last === 'parameters') this.mendParameters(path, value)
        break
      case 'server_url_missing':
      case 'server_url_invalid':
        this.mendServer(path.slice(0, -1))
        break
      case 'dict_type':
        this.mendObject(path, value)
        break
      case 'method_unsupported':
        this.makeExtension(path, value)
        break
      case 'operation_id_missing':
        yield* this.addId(path, 'the operation had no operationId; it is made of method and path')
        break
      case 'operation_id_duplicate':
        if (last === 'operationId' && typeof value === 'string') yield* this.mendEqualId(path, value, msg)
        else if (last === '$ref') yield* this.mendSharedItem(path.slice(0, -1), msg)
        break
      case 'summary_missing':
        document.set(path, this.summaryFor(path), 'summary_added', 'the operation had neither summary nor description')
        break
      case 'path_parameter_undeclared':
        this.declareParameter(path, msg)
        break
      case 'request_body_media_type_unsupported':
        yield* this.mendBody(path, value)
        break
      case 'ref_unresolved':
      case 'ref_external':
        if (typeof value === 'string') this.mendReference(path, value)
        break
    }
  }

  private mendText(path: Loc, value: unknown): void {
    const last = path.at(-1)
    const msg = 'what should be a text is written as one'
    if (typeof value === 'number' || typeof value === 'boolean') {
      this.document.set(path, this.written(path, value), 'text_quoted', msg)
    } else if (last === 'title' || last === 'version') {
      this.document.set(path, 'Untitled', 'text_replaced', 'what should be a text holds none')
    } else if ((last === 'summary' || last === 'description') && value !== undefined) {
      this.document.remove(path, 'text_removed', 'what should be a text holds none')
    }
  }

  /** A number or boolean as it is written in the document. */
  private written(path: Loc, value: number | boolean): string {
    const holder = this.document.at(path.slice(0, -1))
    const key = path.at(-1)
    const isKnown = typeof value === 'number' && typeof holder === 'object' && holder !== null && key !== undefined
    return isKnown ? writtenNumber(holder, key, value) : String(value)
  }

  private addServer(): void {
    const found = this.serverFound()
    if (found === undefined) return
    this.document.set(['servers'], [{ url: found.url }], 'server_added', `no server was named; this is ${found.origin}`)
  }

  /** The server given, else the one that the document names somewhere else. */
  private serverFound(): { url: string; origin: string } | undefined {
    if (this.options.server !== undefined) return { url: this.options.server, origin: 'the one given' }
    const document = this.document.value
    if (!isObject(document)) return undefined
    const [leftover] = serversOf(document)
    if (leftover !== undefined && /^https?:/.test(leftover.url) && unusableServer(leftover.url) === undefined)
      return { url: leftover.url, origin: 'that of host and base path' }
    const { paths } = document
    if (!isObject(paths)) return undefined
    for (const item of Object.values(paths)) {
      if (!isObject(item)) continue
      for (const holder of [item, ...Object.values(item)]) {
        const [server] = isObject(holder) && Array.isArray(holder.servers) ? holder.servers : []
        if (
          isObject(server) &&
          typeof server.url === 'string' &&
          /^https?:\/\/[^{}]+$/.test(server.url) &&
          unusableServer(server.url) === undefined
        )
          return { url: server.url, origin: 'the first that a path or an operation names' }
      }
    }
    return undefined
  }

  /** A server that cannot be used is taken out; the last one of the document is replaced. */
  private mendServer(path: Loc): void {
    const length = this.document.lengthAt(path.slice(0, -1))
    if (length === undefined) return
    const isOwn = path.length > 2
    if (length > 1) {
      this.document.remove(path, 'server_removed', 'the address cannot be used')
    } else if (isOwn) {
      this.document.remove(path.slice(0, -1), 'server_removed', 'the address cannot be used')
    } else {
      const found = this.serverFound()
      if (found === undefined) return
      this.document.set(
        path,
        { url: found.url },
        'server_replaced',
        `the address cannot be used; this is ${found.origin}`,
      )
    }
  }

  private mendObject(path: Loc, value: unknown): void {
    const [section, , method] = path
    if (path.length === 1 && path[0] === 'info') {
      this.document.set(path, { title: 'Untitled', version: '1.0.0' }, 'info_added', 'a definition has a title')
    } else if (path.at(-2) === 'servers' && typeof value === 'string') {
      this.document.set(path, { url: value }, 'server_completed', 'a server is an object with its url')
    } else if (value === null && section === 'paths') {
      const what = path.length === 2 ? 'path' : method === undefined ? 'member' : String(path.at(-1))
      this.document.remove(path, 'empty_removed', `the ${what} holds nothing`)
    }
  }

  private mendParameters(path: Loc, value: unknown): void {
    if (isObject(value) && typeof value.name === 'string')
      this.document.set(path, [value], 'parameters_listed', 'parameters stand in a list')
    else if (isObject(value) && Object.values(value).every(isObject))
      this.document.set(path, Object.values(value), 'parameters_listed', 'parameters stand in a list')
    else if (value === null) this.document.remove(path, 'empty_removed', 'the list holds nothing')
  }

  private makeExtension(path: Loc, value: unknown): void {
    const holder = path.slice(0, -1)
    // A merge key of YAML that became JSON: operations would be gone with it.
    if (path.at(-1) === '<<') return
    const name = `x-${String(path.at(-1)).replace(/^x-?/i, '')}`
    if (this.document.at([...holder, name]) !== undefined) return
    this.document.remove(path, 'key_renamed', `not a method: it becomes the extension ${JSON.stringify(name)}`)
    this.document.set([...holder, name], value, 'key_renamed', 'extensions begin with "x-"')
  }

  private *addId(path: Loc, msg: string): Generator<void> {
    const ids = yield* this.takenIds()
    const id = generatedId(String(path.at(-2)), String(path.at(-3)), ids)
    this.document.set(path, id, 'operation_id_added', msg)
  }

  /** The id of an operation that another path refers to is that path's as well: then that path gets a copy. */
  private *mendEqualId(path: Loc, value: string, msg: string): Generator<void> {
    if (!msg.startsWith(`${quote(value)} is already`)) return
    const users = (yield* this.usesOfItems()).get(placeKey(path.slice(0, -2))) ?? []
    if (!users.some(user => msg.endsWith(quote(`${path.at(-2)} ${user}`)))) {
      yield* this.renumberId(path, value)
      return
    }
    for (const user of users) yield* this.mendSharedItem(['paths', user], msg)
  }

  /** The paths that refer to a path item, directly or by way of others, by the place of the item. */
  private *usesOfItems(): Generator<void, Map<string, string[]>> {
    if (this.itemUses !== undefined) return this.itemUses
    const uses = new Map<string, string[]>()
    const paths = this.document.at(['paths'])
    let count = 0
    for (const path of isObject(paths) ? Object.keys(paths) : []) {
      for (const place of this.placesBehind(['paths', path])) {
        if (++count % REPAIRS_A_STEP === 0) yield
        addTo(uses, place, path)
      }
    }
    this.itemUses = uses
    return uses
  }

  /** The places that the reference at a place leads to, one after the other. */
  private *placesBehind(path: Loc): Generator<string> {
    let ref = this.document.at([...path, '$ref'])
    for (let hops = 0; typeof ref === 'string' && hops <= this.limits.referenceHops; hops++) {
      const steps = stepsOf(ref)
      yield placeKey(steps)
      ref = this.document.at([...steps, '$ref'])
    }
  }

  private *renumberId(path: Loc, value: string): Generator<void> {
    const ids = yield* this.takenIds()
    const id = ids.take(`${value}_${String(path.at(-2)).toLowerCase()}`)
    this.document.set(path, id, 'operation_id_renamed', `${quote(value)} is the id of another operation`)
  }

  /** A path that shares its operations with another one gets a copy of them with ids of its own, as long as that is small. */
  private *mendSharedItem(path: Loc, msg: string): Generator<void> {
    const { document } = this
    const item = document.at(path)
    if (!isObject(item) || this.copiedCharacters > MOST_COPIED_CHARACTERS) return
    if (item.$ref !== undefined) {
      const rest = typeof item.$ref === 'string' ? this.mergedItem(item.$ref) : undefined
      if (rest === undefined) return
      const { $ref: _, ...own } = item
      const copy = deepCopy({ ...own, ...rest, ...own }) as Record<string, unknown>
      const isEqual = (operation: unknown) =>
        isObject(operation) &&
        typeof operation.operationId === 'string' &&
        msg.startsWith(`${quote(operation.operationId)} is already`)
      if (!Object.values(copy).some(isEqual)) return
      this.copiedCharacters += yield* charactersOf(copy, MOST_COPIED_CHARACTERS - this.copiedCharacters)
      if (this.copiedCharacters > MOST_COPIED_CHARACTERS) return
      const reason = 'another path has the same operations; each operation has an id of its own'
      document.set(path, copy, 'path_item_copied', reason)
    }
    for (const method of Object.keys(document.at(path) as object)) {
      const id = document.at([...path, method, 'operationId'])
      if (TOOL_METHODS.has(method.toLowerCase()) && typeof id === 'string' && msg.startsWith(`${quote(id)} is already`))
        yield* this.renumberId([...path, method, 'operationId'], id)
    }
  }

  /** The path item that a reference leads to with all that it refers to in turn, what stands earlier winning as in the check. */
  private mergedItem(ref: string): Record<string, unknown> | undefined {
    const known = this.mergedItems.get(ref)
    if (known !== undefined) return known
    const merged: Record<string, unknown> = {}
    let next: unknown = ref
    for (let hops = 0; typeof next === 'string' && hops <= this.limits.referenceHops; hops++) {
      const layer = this.document.at(stepsOf(next))
      if (!isObject(layer)) return undefined
      for (const key of Object.keys(layer)) if (key !== '$ref' && !Object.hasOwn(merged, key)) merged[key] = layer[key]
      next = layer.$ref
    }
    if (next !== undefined) return undefined
    this.mergedItems.set(ref, merged)
    return merged
  }

  /** All operationIds of the document, also of what is not used, so that a new one is unlike each. */
  private *takenIds(): Generator<void, TakenNames> {
    if (this.ids !== undefined) return this.ids
    const ids = new TakenNames()
    let count = 0
    for (const holder of [this.document.at(['paths']), this.document.at(['components', 'pathItems'])]) {
      for (const item of isObject(holder) ? Object.values(holder) : []) {
        for (const operation of isObject(item) ? Object.values(item) : []) {
          if (++count % MEMBERS_A_STEP === 0) yield
          if (isObject(operation) && typeof operation.operationId === 'string') ids.add(operation.operationId)
        }
      }
    }
    this.ids = ids
    return ids
  }

  private summaryFor(path: Loc): string {
    const item = this.document.at(path.slice(0, -2))
    for (const text of isObject(item) ? [item.summary, item.description] : []) {
      if (typeof text === 'string' && text.trim() !== '') return firstSentence(text)
    }
    return `${String(path.at(-2)).toUpperCase()} ${String(path.at(-3))}`
  }

  private declareParameter(path: Loc, msg: string): void {
    const name = nameIn(msg)
    if (name === undefined) return
    const list = this.document.at(path)
    const parameter = { name, in: 'path', required: true, schema: { type: 'string' } }
    const reason = `the path has the placeholder ${JSON.stringify(name)}, which was not declared`
    if (list === undefined) this.document.set(path, [parameter], 'parameter_added', reason)
    else if (Array.isArray(list)) this.document.set([...path, list.length], parameter, 'parameter_added', reason)
  }

  /** A body of any type is JSON too. Otherwise the operations that send it are left out when that was asked for. */
  private *mendBody(path: Loc, content: unknown): Generator<void> {
    const { document } = this
    if (content === undefined || (isObject(content) && Object.keys(content).length === 0)) {
      document.set(path, { 'application/json': {} }, 'body_type_added', 'the body named no media type')
      return
    }
    if (!isObject(content)) return
    const any = Object.keys(content).find(name => ANY_JSON.has(name.split(';', 1)[0]?.trim().toLowerCase() ?? ''))
    if (any !== undefined) {
      const msg = `${any} takes JSON too`
      document.set([...path, 'application/json'], deepCopy(content[any]), 'body_type_added', msg)
    } else if (this.options.dropsUnsupported) {
      yield* this.dropOperationsOf(path.slice(0, -1), cut(Object.keys(content).slice(0, 3).join(', ')))
    }
  }

  private *dropOperationsOf(body: Loc, types: string): Generator<void> {
    const isOwn = body.at(-1) === 'requestBody' && TOOL_METHODS.has(String(body.at(-2)).toLowerCase())
    // A body that stands elsewhere is left out with every operation that refers to it.
    const operations = isOwn ? [body.slice(0, -1)] : ((yield* this.usesOfBodies()).get(placeKey(body)) ?? [])
    for (const operation of operations) yield* this.dropOperation(operation, types)
  }

  /** The operations that refer to a body, directly or by way of others, by the place of the body. */
  private *usesOfBodies(): Generator<void, Map<string, Loc[]>> {
    if (this.bodyUses !== undefined) return this.bodyUses
    const uses = new Map<string, Loc[]>()
    let count = 0
    for (const holder of [['paths'], ['components', 'pathItems']]) {
      const items = this.document.at(holder)
      for (const name of isObject(items) ? Object.keys(items) : []) {
        const item = this.document.at([...holder, name])
        for (const method of isObject(item) ? Object.keys(item) : []) {
          if (!TOOL_METHODS.has(method.toLowerCase())) continue
          const operation = [...holder, name, method]
          for (const place of this.placesBehind([...operation, 'requestBody'])) addTo(uses, place, operation)
          if (++count % REPAIRS_A_STEP === 0) yield
        }
      }
    }
    this.bodyUses = uses
    return uses
  }

  /** Leaves an operation out, and names it for each path that has it. */
  private *dropOperation(path: Loc, types: string): Generator<void> {
    const { document } = this
    if (document.at(path) === undefined) return
    const [holder, name, key] = path
    const method = String(path.at(-1))
    const msg = `its body is ${types}: a model sends JSON only`
    document.remove(path, 'operation_dropped', msg)
    const users = (yield* this.usesOfItems()).get(placeKey(path.slice(0, -1))) ?? []
    if (holder === 'paths' && key === method) this.dropped.push({ method, path: String(name), msg })
    for (const user of users)
      if (document.at(['paths', user, method]) === undefined) this.dropped.push({ method, path: user, msg })
  }

  private mendReference(path: Loc, ref: string): void {
    const moved = movedReference(ref)
    const named = /^[\w.-]+$/.test(ref) ? `#/components/schemas/${ref}` : undefined
    for (const target of [moved === ref ? undefined : moved, named]) {
      if (target === undefined) continue
      if (this.document.at(stepsOf(target)) === undefined) continue
      this.document.set(
        path,
        target,
        'reference_moved',
        `${JSON.stringify(ref.slice(0, 100))} leads nowhere; the component stands here`,
      )
      return
    }
  }
}

function placeKey(path: Loc): string {
  return JSON.stringify(path.map(String))
}

function addTo<Value>(lists: Map<string, Value[]>, key: string, value: Value): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}

/** A copy that shares nothing: what stands in two places is edited in one. The document nests no deeper than the check allows. */
function deepCopy(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  const copy = Array.isArray(value)
    ? value.map(deepCopy)
    : Object.fromEntries(Object.entries(value).map(([key, member]) => [key, deepCopy(member)]))
  rememberNumbers(value, copy)
  return copy
}

function cut(text: string): string {
  return text.length > MOST_TYPE_CHARACTERS ? `${text.slice(0, MOST_TYPE_CHARACTERS)}...` : text
}

function firstSentence(text: string): string {
  const start = text.trim().slice(0, 500)
  const end = start.search(/[.!?](\s|$)|\n/)
  return end === -1 ? start.slice(0, 120) : start.slice(0, end + 1).trim()
}

/** The name in the message of `path_parameter_undeclared`; a long one is cut there and cannot be declared so. */
function nameIn(msg: string): string | undefined {
  const quoted = PATH_FROM_PLACEHOLDER.exec(msg)?.[1]
  return quoted === undefined ? undefined : (JSON.parse(quoted) as string)
}
