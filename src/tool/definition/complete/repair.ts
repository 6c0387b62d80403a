import { type Fault, type FaultData, type Loc, quote } from '../check/findings.js'
import { DEFINITION_LIMITS } from '../check/limits.js'
import { isObject } from '../check/references.js'
import { BodyRepairs } from './bodies.js'
import { EditedDocument } from './edits.js'
import { type NumberTexts, PLAIN_NUMBERS } from './numbers.js'
import { OperationIdRepairs } from './operation-ids.js'
import { referenceTo, stepsOf } from './pointers.js'
import { ServerRepairs } from './servers.js'
import { convertSwagger, mostMadeOf, NotConvertible } from './swagger.js'
import { Uses } from './uses.js'

export interface RepairOptions {
  /** The absolute address for a definition that names none that can be used, or only a relative one. */
  server?: string
  /** True to leave out operations with a body that is not JSON, which no model can send. */
  dropsUnsupported?: boolean
  /** How numbers keep their texts. Default: as JavaScript writes them. */
  numbers?: NumberTexts
}

/** A definition that needs more edits is repaired as far as these go: nobody could read them. */
export const MOST_EDITS = 20_000
const OWN_DEFINITIONS = '#/$defs/'
const MOVED_SECTION = /^#\/(parameters|responses)\//
const REMOVING = new Set(['dict_type', 'server_url_missing', 'server_url_invalid'])
/** What no copy can be made of. */
const BEYOND_REPAIR = new Set(['definition_too_deep', 'definition_too_large', 'key_forbidden'])
/** How a place ends a key of which it has only the beginning. */
const CUT_KEY = /^.{246,}~[0-9a-f]{8}$/s

/** The repairs of one definition: what kind of fault is mended, in which order, and how those that concern one place alone. */
export class Repair {
  readonly document: EditedDocument
  readonly servers: ServerRepairs
  readonly bodies: BodyRepairs
  /** Why the document cannot be repaired at all. */
  refusal: Fault | undefined
  private readonly uses: Uses
  private readonly numbers: NumberTexts
  private readonly ids: OperationIdRepairs
  private mostCharacters: number | undefined

  constructor(
    definition: unknown,
    private readonly options: RepairOptions & { at: Loc },
  ) {
    this.numbers = options.numbers ?? PLAIN_NUMBERS
    this.document = new EditedDocument(definition, this.numbers)
    this.servers = new ServerRepairs(this.document, options.server)
    this.uses = new Uses(this.document, DEFINITION_LIMITS.referenceHops)
    this.ids = new OperationIdRepairs(this.document)
    this.bodies = new BodyRepairs(this.document, this.uses, options.dropsUnsupported === true)
  }

  /** Makes OpenAPI 3 of what can be read as such. True if it did: the faults of that version must be looked for. */
  prepare(faults: readonly Fault[]): boolean {
    const { document } = this
    const before = document.edits.length
    if (faults.some(each => BEYOND_REPAIR.has(each.type))) return false
    if (!isObject(document.value)) return false
    const { openapi, swagger } = document.value
    if (openapi === undefined && (swagger === '2.0' || swagger === 2 || swagger === '2')) this.convert(document.value)
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
  mend(faults: readonly Fault[]): boolean {
    const { edits } = this.document
    const before = edits.length
    this.uses.beginRound()
    // An operation that is left out needs no other repair: bodies come first. What may be taken out of a list comes last, and from
    // the end, so that it moves nothing that another repair means.
    const turnOf = ({ type }: Fault) =>
      type === 'request_body_media_type_unsupported' ? 0 : REMOVING.has(type) ? 2 : 1
    const inTurn = (turn: number) => faults.filter(fault => turnOf(fault) === turn)
    const inOrder = [...inTurn(0), ...inTurn(1), ...inTurn(2).reverse()]
    for (const fault of inOrder) {
      if (edits.length >= MOST_EDITS || this.hasNoRoom()) break
      const path = fault.loc.slice(this.options.at.length)
      // A key that is cut in the place may be that of something else.
      if (!path.some(key => typeof key === 'string' && CUT_KEY.test(key)))
        this.mendOne(fault.type, fault.data ?? {}, path)
    }
    // A repair may have made a relative server of what was none.
    this.servers.resolveRelative()
    return edits.length > before
  }

  /** True once the edits take more characters than may be made of the document. */
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
      for (const { path, type, msg } of converted.notes.slice(0, MOST_EDITS)) {
        this.document.note(path, type, msg)
      }
      this.servers.resolveRelative()
    } catch (error) {
      if (!(error instanceof NotConvertible)) throw error
      this.refusal = { ...error.fault, loc: [...this.options.at, ...error.fault.loc] }
    }
  }

  private mendOne(type: string, data: FaultData, path: Loc): void {
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
          this.ids.add(path, 'the operationId held nothing; it is made of method and path')
        else this.mendText(path, value)
        break
      case 'servers_missing':
        this.servers.add()
        break
      case 'list_type':
        if (last === 'servers' && path.length === 1) this.servers.add()
        else if (last === 'parameters') this.mendParameters(path, value)
        break
      case 'server_url_missing':
      case 'server_url_invalid':
        this.servers.mend(path.slice(0, -1))
        break
      case 'dict_type':
        this.mendObject(path, value)
        break
      case 'method_unsupported':
        this.makeExtension(path, value)
        break
      case 'operation_id_missing':
        this.ids.add(path, 'the operation had no operationId; it is made of method and path')
        break
      case 'operation_id_duplicate':
        if (last === 'operationId' && typeof value === 'string') this.ids.renumber(path, value, data.use ?? '')
        break
      case 'summary_missing':
        document.set(path, this.summaryFor(path), 'summary_added', 'the operation had neither summary nor description')
        break
      case 'path_parameter_undeclared':
        if (data.name !== undefined) this.declareParameter(path, data.name)
        break
      case 'request_body_media_type_unsupported':
        this.bodies.mend(path, value)
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
    return isKnown ? this.numbers.textOf(holder, key, value) : String(value)
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

  private summaryFor(path: Loc): string {
    const item = this.document.at(path.slice(0, -2))
    for (const text of isObject(item) ? [item.summary, item.description] : []) {
      if (typeof text === 'string' && text.trim() !== '') return firstSentence(text)
    }
    return `${String(path.at(-2)).toUpperCase()} ${String(path.at(-3))}`
  }

  private declareParameter(path: Loc, name: string): void {
    const list = this.document.at(path)
    const parameter = { name, in: 'path', required: true, schema: { type: 'string' } }
    const reason = `the path has the placeholder ${quote(name)}, which was not declared`
    if (list === undefined) this.document.set(path, [parameter], 'parameter_added', reason)
    else if (Array.isArray(list)) this.document.set([...path, list.length], parameter, 'parameter_added', reason)
  }

  /** A schema that was written alone refers to its own `$defs` from its root. Its references are all moved at once. */
  private mendOwnDefinitions(path: Loc, ref: string): boolean {
    const name = stepsOf(ref)[1]
    for (let length = path.length - 1; length > 0; length--) {
      const holder = this.document.at(path.slice(0, length))
      const defs = isObject(holder) ? holder.$defs : undefined
      if (!isObject(defs) || name === undefined || !Object.hasOwn(defs, String(name))) continue
      const root = referenceTo(path.slice(0, length).map(String))
      const pending: [unknown, Loc][] = [[holder, path.slice(0, length)]]
      for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
        const [value, at] = next
        if (typeof value !== 'object' || value === null) continue
        for (const [key, member] of Object.entries(value)) {
          const place = [...at, Array.isArray(value) ? Number(key) : key]
          if (key !== '$ref' || typeof member !== 'string' || !member.startsWith(OWN_DEFINITIONS)) {
            pending.push([member, place])
          } else if (Object.hasOwn(defs, String(stepsOf(member)[1])) && this.document.edits.length < MOST_EDITS) {
            const msg = `${quote(member)} is meant from the schema that holds "$defs"`
            this.document.set(place, `${root}${member.slice(1)}`, 'reference_moved', msg)
          }
        }
      }
      return true
    }
    return false
  }

  private mendReference(path: Loc, ref: string): void {
    if (ref.startsWith(OWN_DEFINITIONS) && this.mendOwnDefinitions(path, ref)) return
    const moved = ref.replace(/^#\/definitions\//, '#/components/schemas/').replace(MOVED_SECTION, '#/components/$1/')
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

function firstSentence(text: string): string {
  const start = text.trim().slice(0, 500)
  const end = start.search(/[.!?](\s|$)|\n/)
  return end === -1 ? start.slice(0, 120) : start.slice(0, end + 1).trim()
}
