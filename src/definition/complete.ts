import { type CheckOptions, checkDefinition, DEFAULT_AT, type DefinitionCheck } from './check/check.js'
import { Findings, type Loc, pathsOf, quote } from './check/findings.js'
import { isBlank, methodsOf, templateOf } from './check/operations.js'
import { isObject, parsedUrl, References, type Schema } from './check/references.js'
import { DEFINITION_LIMITS } from './check/rules.js'
import { convertSwagger } from './swagger.js'

export interface Edit {
  op: 'add' | 'replace'
  /** The path in the completed definition. The conversion of Swagger 2.0 is one edit of the whole definition, without `before` and `after`. */
  loc: Loc
  before?: unknown
  after?: unknown
  type: string
  msg: string
}

/** A completed definition. The `loc` of each edit, fault and warning refers to `definition`. */
export interface Completion {
  definition: unknown
  edits: Edit[]
  check: DefinitionCheck
}

interface Made extends Omit<Edit, 'loc'> {
  readonly holder: object
  readonly key: string | number
}

/** An operation and its path. `items` has the path item and the path items that it refers to. */
interface Use {
  readonly path: string
  readonly items: readonly Schema[]
  readonly method: string
  readonly operation: Schema
}

/** Definitions with one of these faults are not completed. */
const BEYOND = new Set(['definition_too_deep', 'definition_too_large', 'key_forbidden'])
/** A completion may add this number of characters, plus `ADDED_FOR_EACH` for each character of the definition, but at most `MOST_ADDED` in total. */
const ADDED_CHARACTERS = 256 * 1024
const ADDED_FOR_EACH = 16
const MOST_ADDED = 32 * 1024 * 1024
const NAME_CHARACTERS = 60

/**
 * Completes a copy of a definition and lists the edits. Converts Swagger 2.0 to OpenAPI 3. Renames repeated operationIds. Adds missing operationIds,
 * summaries and path parameters. Adds `server` if there is no server, or completes a relative server URL with it. `check` has the remaining faults.
 */
export function completeDefinition(given: unknown, options: CheckOptions & { server?: string } = {}): Completion {
  const { server, at = DEFAULT_AT } = options
  const first = checkDefinition(given, options)
  const isBeyond = !first.ok && first.faults.some(({ type }) => BEYOND.has(type))
  if (!isObject(given) || isBeyond) return { definition: given, edits: [], check: first }
  const text = JSON.stringify(given)
  const most = Math.min(MOST_ADDED, ADDED_CHARACTERS + ADDED_FOR_EACH * text.length)
  let document: Schema | undefined = JSON.parse(text)
  const edits: Edit[] = []
  if (given.openapi === undefined && ['2.0', '2', 2].includes(given.swagger as string)) {
    document = convertSwagger(given, parsedUrl(server ?? '')?.protocol.slice(0, -1) ?? 'https', most)
    const msg = `Swagger 2.0 was converted to OpenAPI ${String(document?.openapi)}`
    edits.push({ op: 'replace', loc: [...at], type: 'swagger_converted', msg })
  }
  if (document === undefined) {
    const msg = `the converted definition would have more than ${most} characters: list fewer media types in "consumes" and "produces", because each media type repeats the schemas`
    const check = { ok: false as const, faults: [{ loc: [...at], msg, type: 'definition_too_large' }], warnings: [] }
    return { definition: given, edits: [], check }
  }
  const made = new Completing(document, most).run(server)
  const holders = made.map(({ holder }) => holder)
  const paths = pathsOf(document, holders, at)
  for (const { holder, key, op, ...edit } of made) edits.push({ op, loc: [...(paths.get(holder) ?? []), key], ...edit })
  if (edits.length === 0) return { definition: given, edits, check: first }
  return { definition: document, edits, check: checkDefinition(document, options) }
}

class Completing {
  private readonly made: Made[] = []
  private readonly references: References
  private readonly ids = new Set<unknown>()
  private added = 0

  constructor(
    private readonly document: Schema,
    private readonly most: number,
  ) {
    this.references = new References(document)
  }

  run(server: string | undefined): Made[] {
    if (server !== undefined) this.completeServer(server)
    const uses = this.uses()
    for (const { operation } of uses) this.ids.add(operation.operationId)
    const owners = new Map<unknown, Schema>()
    for (const use of uses) {
      this.completeId(use, owners)
      this.completeSummary(use)
      this.completeParameters(use)
    }
    return this.made
  }

  private completeServer(server: string): void {
    const { servers } = this.document
    if (servers === undefined || (Array.isArray(servers) && servers.length === 0)) {
      this.set(this.document, 'servers', [{ url: server }], 'server_added', 'the missing server was added')
      return
    }
    const [first] = Array.isArray(servers) ? servers : []
    const url = isObject(first) ? first.url : undefined
    if (typeof url !== 'string' || !/^(?:\/(?![/\\])[^{\s]*)?$/.test(url)) return
    const after = url === '' || url === '/' ? server : parsedUrl(url, server)?.href
    this.set(first, 'url', after, 'server_resolved', 'the relative url was completed with the server url that you gave')
  }

  /** Returns the operations with their paths. Returns none if there are more than the check allows. */
  private uses(): Use[] {
    const uses: Use[] = []
    for (const [path, first] of Object.entries(Object(this.document.paths))) {
      if (path.startsWith('x-')) continue
      const items = isObject(first) ? (this.references.chain(first, 'path item', new Findings()) ?? [first]) : []
      for (const [method, { [method]: operation }] of methodsOf(items))
        if (isObject(operation)) uses.push({ path, items, method, operation })
      if (uses.length > DEFINITION_LIMITS.operations) return []
    }
    return uses
  }

  /** Gives an operation a unique operationId. `owners` maps each operationId to the first operation that has it. */
  private completeId({ path, method, operation }: Use, owners: Map<unknown, Schema>): void {
    const id = operation.operationId
    const owner = owners.get(id)
    if (isBlank(id)) {
      const msg = 'the operation had no operationId, so this operationId was made from the path and method'
      this.set(operation, 'operationId', this.free(madeId(method, path)), 'operation_id_added', msg)
    } else if (typeof id === 'string' && owner !== undefined && owner !== operation) {
      const msg = `another operation has the operationId ${quote(id)}, so the operationId of this operation was changed`
      this.set(operation, 'operationId', this.free(`${id}_${method.toLowerCase()}`), 'operation_id_renamed', msg)
    }
    if (!owners.has(operation.operationId)) owners.set(operation.operationId, operation)
  }

  private free(id: string): string {
    let chosen = id
    for (let number = 2; this.ids.has(chosen); number++) chosen = `${id}_${number}`
    this.ids.add(chosen)
    return chosen
  }

  private completeSummary({ path, method, operation }: Use): void {
    if (!isBlank(operation.summary) || !isBlank(operation.description)) return
    const msg = 'the operation had neither summary nor description, so its method and path became the summary'
    this.set(operation, 'summary', `${method.toUpperCase()} ${path}`, 'summary_added', msg)
  }

  private completeParameters({ path, items, operation }: Use): void {
    const { parameters: own = [] } = operation
    const template = [...(templateOf(path) ?? [])]
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (template.length === 0 || template.length > most || !Array.isArray(own)) return
    const shared = items.find(({ parameters }) => parameters !== undefined)?.parameters
    const declared = new Set<unknown>()
    for (const entry of [...(Array.isArray(shared) ? shared.slice(0, most) : []), ...own.slice(0, most)]) {
      const parameter = this.references.end(entry)
      if (parameter?.in === 'path') declared.add(parameter.name)
    }
    const missing = template.filter(([, names]) => !names.some(name => declared.has(name)))
    if (missing.length === 0) return
    const added = missing.map(([name]) => ({ name, in: 'path', required: true, schema: { type: 'string' } }))
    const msg = `parameters of type string were added for undeclared placeholders of the path: ${added.map(({ name }) => quote(name)).join(', ')}`
    this.set(operation, 'parameters', [...own, ...added], 'parameters_added', msg)
  }

  /** Sets a property and records the edit. Does neither if all edits together would exceed the size limit. */
  private set(holder: Schema, key: string, after: unknown, type: string, msg: string): void {
    const before = holder[key]
    const made = { op: before === undefined ? ('add' as const) : ('replace' as const), type, msg, after }
    this.added += JSON.stringify([made, before]).length
    if (this.added > this.most) return
    holder[key] = after
    this.made.push({ ...made, ...(before !== undefined && { before }), holder, key })
  }
}

/** Makes an operationId in FastAPI's form, for example `items_item_id_get`. */
function madeId(method: string, path: string): string {
  const bare = path.slice(0, 1024).normalize('NFKD').replace(/\p{M}/gu, '')
  const words = bare.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')
  return `${words.slice(0, NAME_CHARACTERS - method.length) || 'root'}_${method.toLowerCase()}`
}
