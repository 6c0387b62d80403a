import { createHash } from 'node:crypto'
import { type Loc, quote } from '../check/findings.js'
import { isObject } from '../check/references.js'
import type { EditedDocument } from './edits.js'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
/** Room for a number behind a name. */
const NUMBER_CHARACTERS = 4

/** The repairs after which each operation of a definition has an id, and one of its own. */
export class OperationIdRepairs {
  private ids: TakenNames | undefined

  constructor(private readonly document: EditedDocument) {}

  /** Gives an operation that has no id one that is made of method and path. */
  add(path: Loc, msg: string): void {
    const id = generatedId(String(path.at(-2)), String(path.at(-3)), this.takenIds())
    this.document.set(path, id, 'operation_id_added', msg)
  }

  /** Gives an operation with the id of another a number; not where the path that has the id refers to this very operation. */
  renumber(path: Loc, value: string, use: string): void {
    const owner = use.slice(use.indexOf(' ') + 1)
    if (this.document.at(['paths', owner, '$ref']) !== undefined) return
    const id = this.takenIds().take(`${value}_${String(path.at(-2)).toLowerCase()}`)
    this.document.set(path, id, 'operation_id_renamed', `${quote(value)} is the id of another operation`)
  }

  /** All operationIds of the document, also of what is not used, so that a new one is unlike each. */
  private takenIds(): TakenNames {
    if (this.ids !== undefined) return this.ids
    const ids = new TakenNames()
    for (const holder of [this.document.at(['paths']), this.document.at(['components', 'pathItems'])]) {
      if (!isObject(holder)) continue
      for (const name of Object.keys(holder)) {
        const item = holder[name]
        for (const operation of isObject(item) ? Object.values(item) : []) {
          if (isObject(operation) && typeof operation.operationId === 'string') ids.add(operation.operationId)
        }
      }
    }
    this.ids = ids
    return ids
  }
}

/** The names of a document, which finds for each new one a form that none has. */
class TakenNames {
  private readonly names = new Set<string>()
  /** The last number that was given to a name, so that thousands of equal ones are not counted through each time. */
  private readonly numbers = new Map<string, number>()

  add(name: string): void {
    this.names.add(name)
  }

  /** The name, or else with the first number that makes it unlike every one here; from now on it is one of them. */
  take(name: string): string {
    let chosen = name
    let number = this.numbers.get(name) ?? 1
    while (this.names.has(chosen)) chosen = `${name}_${++number}`
    this.numbers.set(name, number)
    this.names.add(chosen)
    return chosen
  }

  has(name: string): boolean {
    return this.names.has(name)
  }
}

/**
 * An operationId of method and path, unlike every one in `taken`: the words of the path, then the method, as FastAPI makes it
 * (`items_item_id_get`). Longer than 64 characters, or with letters of another script, it ends with a hash of both.
 */
function generatedId(method: string, path: string, taken: TakenNames): string {
  const verb = method.toLowerCase()
  const bare = path.slice(0, 1024).normalize('NFKD').replace(/\p{M}/gu, '')
  const words = bare.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')
  const whole = `${words === '' ? 'root' : words}_${verb}`
  // What is left of another script is not a name: the hash tells one from the other.
  const isWhole = !/[\p{L}\p{N}]/u.test(bare.replace(/[A-Za-z0-9]/g, ''))
  const most = taken.has(whole) ? NAME_CHARACTERS - NUMBER_CHARACTERS : NAME_CHARACTERS
  if (isWhole && whole.length <= most) return taken.take(whole)
  const hash = createHash('sha256').update(`${verb} ${path}`).digest('hex').slice(0, HASH_CHARACTERS)
  const room = NAME_CHARACTERS - verb.length - HASH_CHARACTERS - 2
  return taken.take([words.slice(0, room), verb, hash].filter(each => each !== '').join('_'))
}
