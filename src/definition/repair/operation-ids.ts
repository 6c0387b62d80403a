import { createHash } from 'node:crypto'
import { isObject } from '../check/references.js'
import { valueAt } from './pointers.js'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
/** Characters reserved for a number after a name. */
const NUMBER_CHARACTERS = 4

/** Makes operationIds that are unique in a document, including ids on unused operations. */
export class OperationIds {
  private readonly taken = new Set<string>()
  /** The last number given to each id, so that thousands of equal ids do not take quadratic time. */
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

  /** Reserves and returns the id, with the first free number appended if it is taken. */
  take(id: string): string {
    let chosen = id
    let number = this.numbers.get(id) ?? 1
    while (this.taken.has(chosen)) chosen = `${id}_${++number}`
    this.numbers.set(id, number)
    this.taken.add(chosen)
    return chosen
  }

  /**
   * Makes an id from the words of the path, then the method, as FastAPI does (`items_item_id_get`). Longer than 64 characters, or with
   * letters of another script, it ends with a hash of both.
   */
  generate(method: string, path: string): string {
    const verb = method.toLowerCase()
    const bare = path.slice(0, 1024).normalize('NFKD').replace(/\p{M}/gu, '')
    const words = bare.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')
    const whole = `${words === '' ? 'root' : words}_${verb}`
    // Letters of other scripts are lost; the hash keeps such ids different.
    const isWhole = !/[\p{L}\p{N}]/u.test(bare.replace(/[A-Za-z0-9]/g, ''))
    const most = this.taken.has(whole) ? NAME_CHARACTERS - NUMBER_CHARACTERS : NAME_CHARACTERS
    if (isWhole && whole.length <= most) return this.take(whole)
    const hash = createHash('sha256').update(`${verb} ${path}`).digest('hex').slice(0, HASH_CHARACTERS)
    const room = NAME_CHARACTERS - verb.length - HASH_CHARACTERS - 2
    return this.take([words.slice(0, room), verb, hash].filter(each => each !== '').join('_'))
  }
}
