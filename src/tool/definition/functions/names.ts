import { createHash } from 'node:crypto'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const VALID = /^[A-Za-z0-9_-]{1,64}$/

/** What a function's name is made of: operationId, method and path. */
interface NamedOperation {
  readonly name: string
  readonly method: string
  readonly path: string
}

/**
 * A name for each operation that every model provider takes (`^[A-Za-z0-9_-]{1,64}$`), all different, in the order given.
 *
 * An operationId that is such a name stays. Of any other, accents are taken off and every other character becomes `_`. The name
 * ends with a hash of the operationId if it was cut, if letters of another script were lost, or if two would be the same; if
 * nothing readable is left, method and path stand before the hash.
 */
export function functionNames(operations: readonly NamedOperation[]): string[] {
  const readable = operations.map(readableName)
  const uses = new Map<string, number>()
  for (const { name } of readable) uses.set(name, (uses.get(name) ?? 0) + 1)
  const stays = readable.map(({ name, isWhole, id }) => name === id || (isWhole && uses.get(name) === 1))
  const taken = new Set(readable.filter((_, i) => stays[i]).map(({ name }) => name))
  return readable.map(({ name, id }, i) => {
    const chosen = stays[i] ? name : hashedName(name, id, taken)
    taken.add(chosen)
    return chosen
  })
}

/** The name without a hash; `isWhole` is false if it leaves something out that tells operations apart. */
function readableName({ name: id, method, path }: NamedOperation): { id: string; name: string; isWhole: boolean } {
  if (VALID.test(id)) return { id, name: id, isWhole: true }
  const plain = id.slice(0, NAME_CHARACTERS).normalize('NFKD').replace(/\p{M}/gu, '')
  // Signs and spaces only separate words; letters and digits say which operation it is.
  const isWhole = id.length <= NAME_CHARACTERS && !/[^\x20-\x7e]/.test(plain) && plain.length <= NAME_CHARACTERS
  const isReadable = /[A-Za-z0-9]/.test(plain)
  const text = isReadable ? plain : `${method.toLowerCase()} ${path.slice(0, NAME_CHARACTERS)}`
  const name = text.slice(0, NAME_CHARACTERS).replace(/[^A-Za-z0-9_-]/g, '_')
  return { id, name: isReadable ? name : name.replace(/_+/g, '_').replace(/_$/, ''), isWhole: isWhole && isReadable }
}

/** The hash of a long id is made once: hundreds of names may have been chosen to stand in its way. */
function hashedName(name: string, id: string, taken: ReadonlySet<string>): string {
  const start = name.slice(0, NAME_CHARACTERS - 1 - HASH_CHARACTERS)
  const digest = hashOf(id)
  for (let round = 0; ; round++) {
    const hashed = `${start}_${(round === 0 ? digest : hashOf(`${digest}#${round}`)).slice(0, HASH_CHARACTERS)}`
    if (!taken.has(hashed)) return hashed
  }
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
