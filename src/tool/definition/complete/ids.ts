import { createHash } from 'node:crypto'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
/** Room for a number behind a name. */
const NUMBER_CHARACTERS = 4

/** The names of a document, which finds for each new one a form that none has. */
export class TakenNames {
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
 * An operationId of method and path, unlike every one in `taken`, which has it from now on: the words of the path, then the method, as
 * FastAPI and the usual generators make it (`/items/{item_id}` and `get` give `items_item_id_get`). Longer than 64 characters it is cut; then, and where it has
 * letters of another script, it ends with a hash of both, so that it does not depend on other operations.
 */
export function generatedId(method: string, path: string, taken: TakenNames): string {
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
