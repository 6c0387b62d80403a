import { createHash } from 'node:crypto'

/** What a function's name is made of. */
export interface NamedOperation {
  /** The operationId. */
  readonly name: string
  readonly method: string
  readonly path: string
}

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const VALID = /^[A-Za-z0-9_-]{1,64}$/

/**
 * A name for each operation that every model provider takes (`^[A-Za-z0-9_-]{1,64}$`), all different, in the order given.
 *
 * - An operationId that is such a name stays as it is.
 * - Of any other, accents are taken off and every other character becomes `_`; what is over 64 characters is cut. It ends with a
 *   hash of the operationId if it was cut, if letters of another script were lost, or if two operations would get the same name.
 *   If nothing readable is left, method and path stand before the hash.
 *
 * A name that needs no hash is never taken by one that does, whatever their order: a name depends on other operations only where
 * two would be the same.
 */
export function functionNames(operations: readonly NamedOperation[]): string[] {
  const readable: Readable[] = []
  const uses = new Map<string, number>()
  for (const operation of operations) {
    const made = readableName(operation)
    readable.push(made)
    uses.set(made.name, (uses.get(made.name) ?? 0) + 1)
  }
  const stays = operations.map(({ name: id }, i) => {
    const { name, isWhole } = readable[i] as Readable // one for each operation
    return name === id || (isWhole && uses.get(name) === 1)
  })
  const taken = new Set(readable.flatMap(({ name }, i) => (stays[i] ? [name] : [])))
  const names: string[] = []
  for (const [i, operation] of operations.entries()) {
    const { name } = readable[i] as Readable // likewise
    const chosen = stays[i] ? name : hashedName(name, operation.name, taken)
    taken.add(chosen)
    names.push(chosen)
  }
  return names
}

interface Readable {
  readonly name: string
  /** False if the name leaves something out that tells operations apart. */
  readonly isWhole: boolean
}

function readableName({ name: id, method, path }: NamedOperation): Readable {
  if (VALID.test(id)) return { name: id, isWhole: true }
  const start = id.slice(0, NAME_CHARACTERS)
  const plain = start.normalize('NFKD').replace(/\p{M}/gu, '')
  // Signs and spaces only separate words; letters and digits say which operation it is.
  const isWhole = id.length <= NAME_CHARACTERS && !/[^\x20-\x7e]/.test(plain) && plain.length <= NAME_CHARACTERS
  const isReadable = /[A-Za-z0-9]/.test(plain)
  const text = isReadable ? plain : `${method.toLowerCase()} ${path.slice(0, NAME_CHARACTERS)}`
  const name = text.slice(0, NAME_CHARACTERS).replace(/[^A-Za-z0-9_-]/g, '_')
  return { name: isReadable ? name : name.replace(/_+/g, '_').replace(/_$/, ''), isWhole: isWhole && isReadable }
}

/** The hash of a long id is made once: what stands in its way may be hundreds of names that somebody chose for that. */
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
