import { createHash } from 'node:crypto'
import { type CheckOptions, checkDefinition, DEFAULT_AT, type DefinitionCheck } from './check/check.js'
import { type Loc, quote } from './check/findings.js'
import { DEFINITION_LIMITS } from './check/limits.js'
import { isToolMethod } from './check/operations.js'
import { isObject, parsedUrl } from './check/references.js'
import { convertSwagger, endOf, TooLarge, targetOf } from './swagger.js'

type Json = Record<string, unknown>

/** One change that a completion makes. */
export interface Edit {
  op: 'add' | 'replace'
  /** The place in the completed definition; the definition itself for a conversion, which has no `before` and `after`. */
  loc: Loc
  before?: unknown
  after?: unknown
  /** The kind of edit, for programs. */
  type: string
  /** The reason, for people. */
  msg: string
}

/** A completed definition. The places of edits and findings are places in it. */
export interface Completion {
  definition: unknown
  edits: Edit[]
  check: DefinitionCheck
}

/** An operation, and the first path that leads to it. */
interface Use {
  readonly path: string
  readonly method: string
  readonly loc: Loc
  readonly operation: Json
  /** The path items that lead to the operation: each refers to the next. */
  readonly items: readonly Json[]
}

/** Faults of documents that are not copied. */
const BEYOND = new Set(['definition_too_deep', 'definition_too_large', 'key_forbidden'])
/** What is added may have as many characters: kilobytes that grow to megabytes are an attack. */
const ADDED_CHARACTERS = 256 * 1024
const ADDED_FOR_EACH = 16
const MOST_ADDED = 32 * 1024 * 1024
const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const SENTENCE_CHARACTERS = 120

/**
 * Adds what a definition lacks, and lists each edit: converts Swagger 2.0 to OpenAPI 3.0; adds `server` if no server is named and resolves
 * a path as the server with it; makes missing operationIds of path and method, and numbers repeated ones; makes missing summaries; declares
 * the placeholders of paths. All other faults remain in `check`. The given definition is not changed, and a second completion adds nothing.
 */
export function completeDefinition(given: unknown, options: CheckOptions & { server?: string } = {}): Completion {
  const at = options.at ?? DEFAULT_AT
  const first = checkDefinition(given, options)
  const isBeyond = !first.ok && first.faults.some(({ type }) => BEYOND.has(type))
  if (!isObject(given) || isBeyond) return { definition: given, edits: [], check: first }
  const text = JSON.stringify(given)
  const most = Math.min(MOST_ADDED, ADDED_CHARACTERS + ADDED_FOR_EACH * text.length)
  let document = JSON.parse(text) as Json
  const edits: Edit[] = []
  if (document.openapi === undefined && ['2.0', '2', 2].includes(document.swagger as string)) {
    const scheme = parsedUrl(options.server ?? '')?.protocol.slice(0, -1) ?? 'https'
    try {
      document = convertSwagger(document, scheme, most)
    } catch (error) {
      if (!(error instanceof TooLarge)) throw error
      const msg = `converted to OpenAPI 3 the definition would have more than ${most} characters, since each media type repeats its schema: name fewer in "consumes" and "produces"`
      const check = { ok: false as const, faults: [{ loc: [...at], msg, type: 'definition_too_large' }], warnings: [] }
      return { definition: given, edits: [], check }
    }
    edits.push({
      op: 'replace',
      loc: [...at],
      type: 'swagger_converted',
      msg: `Swagger 2.0 was converted to OpenAPI ${String(document.openapi)}`,
    })
  }
  new Completing(document, edits, at, most).run(options.server)
  if (edits.length === 0) return { definition: given, edits, check: first }
  return { definition: document, edits, check: checkDefinition(document, options) }
}

class Completing {
  private readonly ids = new Set<unknown>()
  private added = 0

  constructor(
    private readonly document: Json,
    private readonly edits: Edit[],
    private readonly at: Loc,
    private readonly most: number,
  ) {}

  run(server: string | undefined): void {
    if (server !== undefined) this.completeServer(server)
    const uses = this.uses()
    for (const { operation } of uses) this.ids.add(operation.operationId)
    const owners = new Map<unknown, Json>()
    for (const use of uses) {
      this.completeId(use, owners)
      this.completeSummary(use)
      this.completeParameters(use)
    }
  }

  private completeServer(server: string): void {
    const { servers } = this.document
    if (servers === undefined || (Array.isArray(servers) && servers.length === 0)) {
      const msg = 'the definition named no server; this is the one given'
      this.set(this.document, 'servers', [], [{ url: server }], 'server_added', msg)
      return
    }
    const [first] = Array.isArray(servers) ? servers : []
    const url = isObject(first) ? first.url : undefined
    if (typeof url !== 'string' || !/^(?:\/(?![/\\])[^{\s]*)?$/.test(url)) return
    const resolved = parsedUrl(url, server)
    // A tab or a back slash may name another host.
    if (resolved === undefined || resolved.host !== parsedUrl(server)?.host) return
    const after = url === '' || url === '/' ? server : resolved.href
    this.set(first, 'url', ['servers', 0], after, 'server_resolved', 'calls need an absolute address')
  }

  /** Returns the operations, up to the limit of the check. Paths may share a path item by reference. */
  private uses(): Use[] {
    const uses: Use[] = []
    for (const [path, first] of Object.entries(Object(this.document.paths))) {
      if (path.startsWith('x-')) continue
      const layers: { item: Json; loc: Loc }[] = []
      let [item, loc]: [unknown, Loc] = [first, ['paths', path]]
      while (isObject(item) && layers.length < DEFINITION_LIMITS.referenceHops) {
        layers.push({ item, loc })
        const target = targetOf(this.document, item.$ref)
        item = target?.value
        loc = target?.loc ?? []
      }
      const items = layers.map(layer => layer.item)
      const methods = new Set<string>()
      for (const layer of layers) {
        for (const [method, operation] of Object.entries(layer.item)) {
          if (!isToolMethod(method) || methods.has(method)) continue
          methods.add(method)
          if (uses.length >= DEFINITION_LIMITS.operations) return uses
          if (isObject(operation)) uses.push({ path, method, loc: [...layer.loc, method], operation, items })
        }
      }
    }
    return uses
  }

  /** Gives an operation an id of its own. `owners` are the operations before it, by their ids. */
  private completeId({ path, method, loc, operation }: Use, owners: Map<unknown, Json>): void {
    const id = operation.operationId
    const owner = owners.get(id)
    if (isBlank(id)) {
      const msg = 'the operation had no operationId; this one is made of path and method'
      this.set(operation, 'operationId', loc, this.free(madeId(method, path)), 'operation_id_added', msg)
    } else if (typeof id === 'string' && owner !== undefined && owner !== operation) {
      const numbered = this.free(`${id}_${method.toLowerCase()}`)
      this.set(
        operation,
        'operationId',
        loc,
        numbered,
        'operation_id_renamed',
        `${quote(id)} is the id of another operation`,
      )
    }
    if (!owners.has(operation.operationId)) owners.set(operation.operationId, operation)
  }

  /** Returns an id that no operation has: with a number at its end if it is taken. */
  private free(id: string): string {
    let chosen = id
    for (let number = 2; this.ids.has(chosen); number++) chosen = `${id}_${number}`
    this.ids.add(chosen)
    return chosen
  }

  private completeSummary({ path, method, loc, operation, items }: Use): void {
    const { summary, description } = operation
    if (!isBlank(summary) || !isBlank(description)) return
    const texts = items.flatMap(item => [item.summary, item.description])
    const text = texts.find(each => typeof each === 'string' && !isBlank(each))
    const made = typeof text === 'string' ? firstSentence(text) : `${method.toUpperCase()} ${path}`
    this.set(operation, 'summary', loc, made, 'summary_added', 'the operation had neither summary nor description')
  }

  /** Declares each placeholder of the path that neither the operation nor its path item declares. */
  private completeParameters({ path, loc, operation, items }: Use): void {
    const names = [...path.matchAll(PLACEHOLDER)].map(([, name = '']) => name)
    if (names.length === 0 || names.length > DEFINITION_LIMITS.parametersPerOperation) return
    const declared = new Set<unknown>()
    const shared = items.find(({ parameters }) => parameters !== undefined)
    for (const list of [shared?.parameters, operation.parameters]) {
      for (const entry of Array.isArray(list) ? list.slice(0, DEFINITION_LIMITS.parametersPerOperation) : []) {
        const end = endOf(this.document, entry)
        if (isObject(end) && end.in === 'path') declared.add(end.name)
      }
    }
    const missing = names.filter(name => ![name, name.replace(/^\+|[*+]$/g, '')].some(each => declared.has(each)))
    const added = [...new Set(missing)].map(name => ({ name, in: 'path', required: true, schema: { type: 'string' } }))
    const list = operation.parameters
    if (added.length > 0 && list === undefined) {
      const msg = 'no parameters declared the placeholders of the path'
      this.set(operation, 'parameters', loc, added, 'parameters_added', msg)
    } else if (Array.isArray(list)) {
      for (const each of added) {
        const msg = `no parameter declared the placeholder ${quote(each.name)} of the path`
        this.set(list, list.length, [...loc, 'parameters'], each, 'parameter_added', msg)
      }
    }
  }

  /** Sets a member of `holder`, whose path is `loc`, if there is room for one more edit. */
  private set(holder: object, key: string | number, loc: Loc, after: unknown, type: string, msg: string): void {
    const members = holder as Record<string | number, unknown>
    const before = members[key]
    const place = [...this.at, ...loc, key]
    const edit: Edit =
      before === undefined
        ? { op: 'add', loc: place, after, type, msg }
        : { op: 'replace', loc: place, before, after, type, msg }
    this.added += JSON.stringify(edit).length
    if (this.added > this.most) return
    members[key] = after
    this.edits.push(edit)
  }
}

/** A name, which may have a pattern with braces of its own: `{year:[0-9]{4}}`. */
const PLACEHOLDER = /\{([^{}:]+|[^{}:]*:(?:[^{}]|\{[^{}]*\})+)\}/g

function isBlank(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === 'string' && value.trim() === '')
}

/**
 * Makes an id of the words of a path and a method, as FastAPI does: `items_item_id_get`. One that would be longer than 64 characters, or
 * lose letters of other scripts, ends with a hash of both.
 */
function madeId(method: string, path: string): string {
  const verb = method.toLowerCase()
  const bare = path.slice(0, 1024).normalize('NFKD').replace(/\p{M}/gu, '')
  const words = bare.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')
  const whole = `${words || 'root'}_${verb}`
  const isWhole = !/[\p{L}\p{N}]/u.test(bare.replace(/[A-Za-z0-9]/g, ''))
  if (isWhole && whole.length <= NAME_CHARACTERS) return whole
  const hash = createHash('sha256').update(`${verb} ${path}`).digest('hex').slice(0, HASH_CHARACTERS)
  const room = NAME_CHARACTERS - verb.length - HASH_CHARACTERS - 2
  return [words.slice(0, room), verb, hash].filter(Boolean).join('_')
}

function firstSentence(text: string): string {
  const start = text.trim().slice(0, 500)
  const end = start.search(/[.!?](\s|$)|\n/)
  return end === -1 ? start.slice(0, SENTENCE_CHARACTERS) : start.slice(0, end + 1).trim()
}
