import { type Fault, type FaultData, type Finding, type Loc, quote } from '../check/findings.js'
import { isNear } from '../check/inputs.js'
import { isObject, isReference } from '../check/references.js'
import { routesOf } from '../check/templates.js'
import { BodyRepairs } from './bodies.js'
import { EditedDocument } from './edits.js'
import { type NumberTexts, PLAIN_NUMBERS } from './numbers.js'
import { OperationIds } from './operation-ids.js'
import { placeKey, referenceTo, stepsOf } from './pointers.js'
import { ServerRepairs } from './servers.js'
import { convertSwagger, mostMadeOf, NotConvertible } from './swagger.js'

export interface RepairOptions {
  /** The absolute address for a definition without a usable server, or with only a relative one. */
  server?: string
  /** True drops operations whose body is not JSON, because no model can send it. */
  dropsUnsupported?: boolean
  /** Keeps the texts of numbers. Default: as JavaScript writes them. */
  numbers?: NumberTexts
}

/** The repair stops after this many edits: nobody could read more. */
export const MOST_EDITS = 20_000
/** A key that nearly matches one of these is misspelt, whatever its value. */
const FIELDS = 'get put post patch delete parameters servers summary description'.split(' ')
const OWN_DEFINITIONS = '#/$defs/'
/** `FIRST`: dropped operations need no other repair. `LAST`: removals would shift the indexes of other faults. */
const FIRST = 'request_body_media_type_unsupported'
const LAST = new Set(['dict_type', 'server_url_missing', 'server_url_invalid'])
/** Faults of definitions that cannot be copied. */
const BEYOND_REPAIR = new Set(['definition_too_deep', 'definition_too_large', 'key_forbidden'])
/** Matches a key that was cut in a `loc`: two long keys may share it. */
const CUT_KEY = /^.{246,}~[0-9a-f]{8}$/s

export class Repairs {
  readonly document: EditedDocument
  readonly servers: ServerRepairs
  readonly bodies: BodyRepairs
  /** The fault that prevents any repair. */
  refusal: Fault | undefined
  private readonly numbers: NumberTexts
  private ids: OperationIds | undefined
  /** New names of keys, by the place of their object. They are applied at the end of a round, because other repairs use the old paths. */
  private renames = new Map<string, { holder: Loc; names: Map<string, { to: string; type: string; msg: string }> }>()
  private mostCharacters: number | undefined

  constructor(
    definition: unknown,
    private readonly options: RepairOptions & { at: Loc },
  ) {
    this.numbers = options.numbers ?? PLAIN_NUMBERS
    this.document = new EditedDocument(definition, this.numbers)
    this.servers = new ServerRepairs(this.document, options.server)
    this.bodies = new BodyRepairs(this.document, options.dropsUnsupported === true)
  }

  /** Converts the document to OpenAPI 3 if possible. True if it did: check again for that version. */
  prepare(faults: readonly Fault[]): boolean {
    const { document } = this
    if (!isObject(document.value) || faults.some(each => BEYOND_REPAIR.has(each.type))) return false
    const before = document.edits.length
    const { openapi, swagger, paths } = document.value
    if (openapi === undefined && (swagger === '2.0' || swagger === 2 || swagger === '2')) {
      this.convert(document.value)
    } else if (openapi === undefined && swagger === undefined && isObject(paths)) {
      document.set(['openapi'], '3.0.3', 'openapi_added', 'the document does not say which version of OpenAPI it has')
    } else if (typeof openapi === 'number' && openapi >= 3 && openapi < 4) {
      const version = `${this.written(['openapi'], openapi)}.0`.replace(/^(\d+\.)0$/, '$10.0')
      document.set(['openapi'], version, 'openapi_quoted', 'the version is a text')
    } else if (openapi === '3') {
      document.set(['openapi'], '3.0.0', 'openapi_completed', 'the version has a minor number')
    }
    return document.edits.length > before
  }

  /** Runs one round of repairs; true if it changed something. */
  repair(faults: readonly Fault[], warnings: readonly Finding[]): boolean {
    const { edits } = this.document
    const before = edits.length
    const unused = warnings.filter(({ type }) => type === 'path_parameter_unused')
    if (unused.length === 0 && !faults.some(({ type }) => this.repairs[type] !== undefined)) return false
    this.document.open()
    this.bodies.beginRound()
    const inOrder = [
      ...faults.filter(({ type }) => type === FIRST),
      ...faults.filter(({ type }) => type !== FIRST && !LAST.has(type)),
      ...faults.filter(({ type }) => LAST.has(type)).reverse(),
    ]
    for (const { type, data, loc } of inOrder) {
      if (edits.length >= MOST_EDITS || this.hasNoRoom()) break
      const path = loc.slice(this.options.at.length)
      if (path.some(key => typeof key === 'string' && CUT_KEY.test(key))) continue
      this.repairs[type]?.(path, this.document.at(path), data ?? {})
    }
    for (const { loc } of unused) this.repairRoute(loc.slice(this.options.at.length))
    for (const { holder, names } of this.renames.values()) this.document.rename(holder, names)
    this.renames.clear()
    // A repair may have added a relative server.
    this.servers.resolveRelative()
    return edits.length > before
  }

  /** True once the edits exceed the character limit for this document's length. */
  private hasNoRoom(): boolean {
    const { editCharacters, given } = this.document
    if (editCharacters < mostMadeOf(0)) return false
    this.mostCharacters ??= mostMadeOf(JSON.stringify(given).length)
    return editCharacters > this.mostCharacters
  }

  private convert(document: Record<string, unknown>): void {
    const { server } = this.options
    const scheme = server === undefined ? undefined : new URL(server).protocol.slice(0, -1)
    try {
      const converted = convertSwagger(document, { scheme, numbers: this.numbers })
      const msg = `Swagger 2.0 was converted to OpenAPI ${String(converted.document.openapi)}`
      this.document.replaceAll(converted.document, 'swagger_converted', msg)
      for (const { path, type, msg } of converted.notes.slice(0, MOST_EDITS)) this.document.note(path, type, msg)
      this.servers.resolveRelative()
    } catch (error) {
      if (!(error instanceof NotConvertible)) throw error
      this.refusal = { ...error.fault, loc: [...this.options.at, ...error.fault.loc] }
    }
  }

  /** The repair for each type of fault. */
  private readonly repairs: Record<string, (path: Loc, value: unknown, data: FaultData) => void> = {
    missing: path => this.addTitle(path),
    string_type: (path, value, data) => this.repairText(path, value, data),
    servers_missing: () => this.servers.add(),
    list_type: (path, value) => (path.join() === 'servers' ? this.servers.add() : this.repairParameters(path, value)),
    server_url_missing: path => this.servers.repair(path.slice(0, -1)),
    server_url_invalid: path => this.servers.repair(path.slice(0, -1)),
    dict_type: (path, value) => this.repairObject(path, value),
    method_unsupported: (path, value) => this.makeExtension(path, value),
    operation_id_missing: (path, _, data) => this.addId(path, data, 'the operation had no operationId'),
    operation_id_duplicate: (path, value, data) => this.renumber(path, value, data.use ?? ''),
    summary_missing: (path, _, data) => this.addSummary(path, data),
    path_parameter_undeclared: (path, _, data) => this.repairPlaceholder(path, data),
    [FIRST]: (path, value) => this.bodies.repair(path, value),
    ref_unresolved: (path, value) => this.repairReference(path, value),
    ref_external: (path, value) => this.repairReference(path, value),
  }

  private addTitle(path: Loc): void {
    const msg = 'a definition has a title'
    if (path.join() === 'info') this.document.set(path, { title: 'Untitled', version: '1.0.0' }, 'info_added', msg)
    else if (path.join() === 'info,title') this.document.set(path, 'Untitled', 'title_added', msg)
  }

  private repairText(path: Loc, value: unknown, data: FaultData): void {
    const { document } = this
    const last = String(path.at(-1))
    if (last === 'operationId' && value === null) this.addId(path, data, 'the operationId held nothing')
    else if ((typeof value === 'number' || typeof value === 'boolean') && last !== '$ref')
      document.set(path, this.written(path, value), 'text_quoted', 'what should be a text is written as one')
    else if (last === 'title' || last === 'version')
      document.set(path, 'Untitled', 'text_replaced', 'what should be a text holds none')
    else if ((last === 'summary' || last === 'description') && value !== undefined)
      document.remove(path, 'text_removed', 'what should be a text holds none')
  }

  /** Returns a number or boolean as the document writes it. */
  private written(path: Loc, value: number | boolean): string {
    const holder = this.document.at(path.slice(0, -1)) as object // the container of an existing value is an object
    return typeof value === 'number' ? this.numbers.textOf(holder, path.at(-1) ?? '', value) : String(value)
  }

  private addId(path: Loc, { path: used = '' }: FaultData, reason: string): void {
    this.ids ??= new OperationIds(this.document.value)
    const id = this.ids.generate(String(path.at(-2)), used)
    this.document.set(path, id, 'operation_id_added', `${reason}; it is made of method and path`)
  }

  /** Adds a number to a repeated operationId, unless the other path refers to this same operation. */
  private renumber(path: Loc, id: unknown, use: string): void {
    if (path.at(-1) !== 'operationId' || typeof id !== 'string') return
    const owner = use.slice(use.indexOf(' ') + 1)
    if (this.document.at(['paths', owner, '$ref']) !== undefined) return
    this.ids ??= new OperationIds(this.document.value)
    const numbered = this.ids.take(`${id}_${String(path.at(-2)).toLowerCase()}`)
    this.document.set(path, numbered, 'operation_id_renamed', `${quote(id)} is the id of another operation`)
  }

  private repairObject(path: Loc, value: unknown): void {
    const [section, , method] = path
    if (path.join() === 'info') {
      this.addTitle(path)
    } else if (path.at(-2) === 'servers' && typeof value === 'string') {
      this.document.set(path, { url: value }, 'server_completed', 'a server is an object with its url')
    } else if (value === null && section === 'paths') {
      const what = path.length === 2 ? 'path' : method === undefined ? 'member' : String(path.at(-1))
      this.document.remove(path, 'empty_removed', `the ${what} holds nothing`)
    }
  }

  private repairParameters(path: Loc, value: unknown): void {
    if (path.at(-1) !== 'parameters') return
    const isOne = isObject(value) && typeof value.name === 'string'
    if (
      isOne ||
      (isObject(value) && Object.values(value).every(each => isObject(each) && (each.name ?? each.$ref) !== undefined))
    )
      this.document.set(path, isOne ? [value] : Object.values(value), 'parameters_listed', 'parameters are a list')
    else if (value === null) this.document.remove(path, 'empty_removed', 'the list holds nothing')
  }

  private makeExtension(path: Loc, value: unknown): void {
    // An object may be an operation with a misspelt method, or a YAML merge key, and must not be lost.
    if (isObject(value)) return
    const key = String(path.at(-1))
    if (FIELDS.some(each => each === key.toLowerCase() || isNear(each, key.toLowerCase()))) return
    const to = `x-${key.replace(/^x-?/i, '')}`
    this.rename(path, to, 'key_renamed', 'not a method: extensions begin with "x-"')
  }

  private rename(path: Loc, to: string, type: string, msg: string): void {
    const holder = path.slice(0, -1)
    const key = placeKey(holder)
    const { names } = this.renames.get(key) ?? { names: new Map() }
    this.renames.set(key, { holder, names: names.set(String(path.at(-1)), { to, type, msg }) })
  }

  private addSummary(path: Loc, { path: used = '' }: FaultData): void {
    const item = this.document.at(path.slice(0, -2))
    const texts = isObject(item) ? [item.summary, item.description] : []
    const text = texts.find(each => typeof each === 'string' && each.trim() !== '')
    const summary = typeof text === 'string' ? firstSentence(text) : `${String(path.at(-2)).toUpperCase()} ${used}`
    this.document.set(path, summary, 'summary_added', 'the operation had neither summary nor description')
  }

  /** Renames a placeholder to the parameter that it means, or declares it. */
  private repairPlaceholder(path: Loc, { name, placeholder, meant }: FaultData): void {
    if (placeholder !== undefined && meant !== undefined)
      this.replaceInPath(path, now => now.replace(placeholder, () => meant))
    const list = this.document.at(path)
    if (name === undefined || this.hasUnusedParameter(path)) return
    const parameter = { name, in: 'path', required: true, schema: { type: 'string' } }
    const reason = `the path has the placeholder ${quote(name)}, which was not declared`
    if (list === undefined) this.document.set(path, [parameter], 'parameter_added', reason)
    else if (Array.isArray(list)) this.document.set([...path, list.length], parameter, 'parameter_added', reason)
  }

  /** Converts a path parameter in another framework's syntax: `/:id`, `/<int:id>`. */
  private repairRoute(path: Loc): void {
    const entry = this.document.at(path)
    const parameter = isReference(entry) ? this.document.at(stepsOf(entry.$ref)) : entry
    const name = isObject(parameter) && typeof parameter.name === 'string' ? parameter.name : undefined
    const route = name === undefined ? undefined : routesOf(String(path[1])).get(name)
    const renamed = (step: string) => (step === route?.step ? route.written : step)
    if (route !== undefined) this.replaceInPath(path, now => now.split('/').map(renamed).join('/'))
  }

  /** Replaces a placeholder in an operation's path. */
  private replaceInPath(path: Loc, replaced: (now: string) => string): void {
    const key = path[1]
    if (path[0] !== 'paths' || typeof key !== 'string') return
    const now = this.renames.get(placeKey(['paths']))?.names.get(key)?.to ?? key
    const to = replaced(now)
    if (to !== now) this.rename(['paths', key], to, 'path_renamed', 'placeholders have the names of parameters')
  }

  /** True if a declared path parameter has no placeholder: it may be the intended one. */
  private hasUnusedParameter(path: Loc): boolean {
    const used = String(path.at(-3))
    const lists = [path, [...path.slice(0, -2), 'parameters']].map(place => this.document.at(place))
    return lists
      .flatMap(list => (Array.isArray(list) ? list : []))
      .map(each => (isReference(each) ? this.document.at(stepsOf(each.$ref)) : each))
      .filter(each => isObject(each) && each.in === 'path')
      .some(each => {
        const { name } = Object(each)
        return ![`{${name}}`, `{+${name}}`, `{${name}*}`, `{${name}+}`].some(hole => used.includes(hole))
      })
  }

  private repairReference(path: Loc, ref: unknown): void {
    if (typeof ref !== 'string') return
    if (ref.startsWith(OWN_DEFINITIONS) && this.repairOwnDefinitions(path, ref)) return
    const moved = ref
      .replace(/^#\/definitions\//, '#/components/schemas/')
      .replace(/^#\/(parameters|responses)\//, '#/components/$1/')
    const named = /^[\w.-]+$/.test(ref) ? `#/components/schemas/${ref}` : ref
    const target = [moved, named].find(each => each !== ref && this.document.at(stepsOf(each)) !== undefined)
    if (target === undefined) return
    const msg = `${JSON.stringify(ref.slice(0, 100))} has no target; this component has the name`
    this.document.set(path, target, 'reference_moved', msg)
  }

  /** Moves all references of a pasted schema to its own `$defs`, which it addresses from its own root. */
  private repairOwnDefinitions(path: Loc, ref: string): boolean {
    const isIn = (defs: unknown, name: unknown) => isObject(defs) && Object.hasOwn(defs, String(name))
    const holds = (place: Loc) => isIn(this.document.at([...place, '$defs']), stepsOf(ref)[1])
    const length = path.findLastIndex((_, i) => i > 0 && i < path.length && holds(path.slice(0, i)))
    if (length === -1) return false
    const holder = path.slice(0, length)
    const defs = this.document.at([...holder, '$defs'])
    const pending: [unknown, Loc][] = [[this.document.at(holder), holder]]
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const [value, at] = next
      if (typeof value !== 'object' || value === null) continue
      for (const [key, member] of Object.entries(value)) {
        const place = [...at, Array.isArray(value) ? Number(key) : key]
        if (key !== '$ref' || typeof member !== 'string' || !member.startsWith(OWN_DEFINITIONS)) {
          pending.push([member, place])
        } else if (isIn(defs, stepsOf(member)[1]) && this.document.edits.length < MOST_EDITS) {
          const msg = `${quote(member)} is relative to the schema that holds "$defs"`
          const target = `${referenceTo(holder.map(String))}${member.slice(1)}`
          this.document.set(place, target, 'reference_moved', msg)
        }
      }
    }
    return true
  }
}

function firstSentence(text: string): string {
  const start = text.trim().slice(0, 500)
  const end = start.search(/[.!?](\s|$)|\n/)
  return end === -1 ? start.slice(0, 120) : start.slice(0, end + 1).trim()
}
