import type { Loc } from '../check/findings.js'
import { isToolMethod } from '../check/operations.js'
import { isObject } from '../check/references.js'
import type { EditedDocument } from './edits.js'
import { placeKey, type Uses } from './uses.js'

/** An operation that was left out. */
export interface DroppedOperation {
  method: string
  path: string
  msg: string
}

/** Characters of the media types of a body that is left out, as they are named. */
const MOST_TYPE_CHARACTERS = 200
const ANY_JSON = /^\s*(?:\*\/\*|application\/\*|text\/json|application\/x-json|application\/javascript)\s*(?:;|$)/i
/** An operation that more paths than this have is not left out: nobody could read all of what is. */
const MOST_DROPPED = 20_000

/** The repairs of request bodies that a model cannot send. */
export class BodyRepairs {
  readonly dropped: DroppedOperation[] = []

  constructor(
    private readonly document: EditedDocument,
    private readonly uses: Uses,
    private readonly dropsUnsupported: boolean,
  ) {}

  /** A body of any type is JSON too. Otherwise the operations that send it are left out when that was asked for. */
  mend(path: Loc, content: unknown): void {
    const { document } = this
    const types = isObject(content) ? Object.keys(content) : []
    if (content === undefined || (isObject(content) && types.length === 0)) {
      document.set(path, { 'application/json': {} }, 'body_type_added', 'the body named no media type')
      return
    }
    if (!isObject(content)) return
    const any = types.find(name => ANY_JSON.test(name))
    if (any !== undefined) {
      const msg = `${any} takes JSON too`
      document.set([...path, 'application/json'], document.copyOf(content[any]), 'body_type_added', msg)
    } else if (this.dropsUnsupported) {
      this.dropOperationsOf(path.slice(0, -1), cut(types.slice(0, 3).join(', ')))
    }
  }

  private dropOperationsOf(body: Loc, types: string): void {
    const isOwn = body.at(-1) === 'requestBody' && isToolMethod(String(body.at(-2)))
    // A body that stands elsewhere is left out with every operation that refers to it.
    const operations = isOwn ? [body.slice(0, -1)] : (this.uses.ofBodies().get(placeKey(body)) ?? [])
    for (const operation of operations) this.dropOperation(operation, types)
  }

  /** Leaves an operation out, and names it for each path that has it. */
  private dropOperation(path: Loc, types: string): void {
    const { document } = this
    if (document.at(path) === undefined) return
    const [holder, name, key] = path
    const method = String(path.at(-1))
    const msg = `its body is ${types}: a model sends JSON only`
    const users = this.uses.ofItems().get(placeKey(path.slice(0, -1))) ?? new Set<string>()
    if (this.dropped.length + users.size >= MOST_DROPPED) return
    document.remove(path, 'operation_dropped', msg)
    if (holder === 'paths' && key === method) this.dropped.push({ method, path: String(name), msg })
    for (const user of users) {
      if (document.at(['paths', user, method]) === undefined) this.dropped.push({ method, path: user, msg })
    }
  }
}

function cut(text: string): string {
  return text.length > MOST_TYPE_CHARACTERS ? `${text.slice(0, MOST_TYPE_CHARACTERS)}...` : text
}
