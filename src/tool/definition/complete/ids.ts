import { createHash } from 'node:crypto'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8

/**
 * An operationId of method and path, unlike every one in `taken`: the words of the path, then the method, as FastAPI and the usual
 * generators make it (`/items/{item_id}` and `get` give `items_item_id_get`). Longer than 64 characters it is cut and ends with a
 * hash of both, so that it does not depend on other operations.
 */
export function generatedId(method: string, path: string, taken: ReadonlySet<string>): string {
  const verb = method.toLowerCase()
  const words = path
    .slice(0, 1024)
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/[^A-Za-z0-9]+/g, '_')
    .replace(/^_|_$/g, '')
  const whole = `${words === '' ? 'root' : words}_${verb}`
  if (whole.length <= NAME_CHARACTERS && !taken.has(whole)) return whole
  if (whole.length <= NAME_CHARACTERS - 4) return numbered(whole, taken)
  const hash = createHash('sha256').update(`${verb} ${path}`).digest('hex').slice(0, HASH_CHARACTERS)
  const room = NAME_CHARACTERS - verb.length - HASH_CHARACTERS - 2
  return numbered(`${words.slice(0, room)}_${verb}_${hash}`, taken)
}

/** The name, or else with the first number that makes it unlike every one in `taken`. */
export function numbered(name: string, taken: ReadonlySet<string>): string {
  let chosen = name
  for (let i = 2; taken.has(chosen); i++) chosen = `${name}_${i}`
  return chosen
}
