import { createHash } from 'node:crypto'
import { isObject } from '../check/references.js'
import { valueAt } from './pointers.js'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
/** Room for a number after a name. */
const NUMBER_CHARACTERS = 4

/** Makes operationIds unlike every one of a document, also of those that are not used. */
export class OperationIds {
  private readonly taken = new Set<string>()
  /** The last number that was given to an id, so that thousands of equal ones are not counted through each time. */
  private readonly numbers = new Map<string, number>()

  constructor(document: unknown) {
    for (const holder of [valueAt(document, ['paths']), valueAt(document, ['components', 'pathItems'])]) {
      for (const item of isObject(holder) ? Object.values(holder) : []) {
        for (const operation of isObject(item) ? Object.values(item) : []) {
          if (isObject(operation) && typeof operation.operationId === 'string') this.taken.add(operation.operationId)
        }
      }
    }
  }

  /** The id, or else with the first number that makes it unlike every one here; from now on it is one of them. */
  take(id: string): string {
    let chosen = id
    let number = this.numbers.get(id) ?? 1
    while (this.taken.has(chosen)) chosen = `${id}_${++number}`
    this.numbers.set(id, number)
    this.taken.add(chosen)
    return chosen
  }

  /**
   * An id of method and path: the words of the path, then the method, as FastAPI makes it (`items_item_id_get`). Longer than 64
   * characters, or with letters of another script, it ends with a hash of both.
   */
  generate(method: string, path: string): string {
    const verb = method.toLowerCase()
    const bare = path.slice(0, 1024).normalize('NFKD').replace(/\p{M}/gu, '')
    const words = bare.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')
    const whole = `${words === '' ? 'root' : words}_${verb}`
    // What is left of another script is not a name: the hash tells one from the other.
    const isWhole = !/[\p{L}\p{N}]/u.test(bare.replace(/[A-Za-z0-9]/g, ''))
    const most = this.taken.has(whole) ? NAME_CHARACTERS - NUMBER_CHARACTERS : NAME_CHARACTERS
    if (isWhole && whole.length <= most) return this.take(whole)
    const hash = createHash('sha256').update(`${verb} ${path}`).digest('hex').slice(0, HASH_CHARACTERS)
    const room = NAME_CHARACTERS - verb.length - HASH_CHARACTERS - 2
    return this.take([words.slice(0, room), verb, hash].filter(each => each !== '').join('_'))
  }
}
