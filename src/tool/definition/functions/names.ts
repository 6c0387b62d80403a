import { createHash } from 'node:crypto'
import { isObject } from '../check/references.js'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const FUNCTION_NAME = /^[A-Za-z0-9_-]{1,64}$/
/** What every vendor takes as the name of an argument: Gemini wants a letter or `_` first, Anthropic at most 64 characters. */
const ARGUMENT_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/

/** What a function's name is made of: operationId, method and path. */
interface NamedOperation {
  readonly name: string
  readonly method: string
  readonly path: string
}

/** A name as it is written, and the words that replace it if nothing of it is readable. */
interface Wanted {
  readonly id: string
  readonly instead: string
}

/**
 * A name for each operation that every model provider takes (`^[A-Za-z0-9_-]{1,64}$`), all different, in the order given.
 *
 * An operationId that is such a name stays. Of any other, accents are taken off and every other character becomes `_`. The name
 * ends with a hash of the operationId if it was cut, if letters of another script were lost, or if two would be the same; if
 * nothing readable is left, method and path precede the hash.
 */
export function functionNames(operations: readonly NamedOperation[]): string[] {
  const wanted = operations.map(({ name, method, path }) => ({
    id: name,
    instead: tidied(`${method.toLowerCase()} ${path}`.slice(0, NAME_CHARACTERS)),
  }))
  return namesFor(wanted, FUNCTION_NAME, text => text.replace(/[^A-Za-z0-9_-]/g, '_'))
}

/**
 * A name for each argument or property that every vendor takes, by the rules of `functionNames`: `page[size]` becomes `page_size`.
 * `ids` are all different.
 */
export function argumentNames(ids: readonly string[]): string[] {
  const wanted = ids.map(id => ({ id, instead: 'argument' }))
  return namesFor(wanted, ARGUMENT_NAME, text => tidied(text).replace(/^(?=[^A-Za-z_])/, '_'))
}

/** The safe names of those properties, of all that the schemas of a document name, that need one. */
export function safePropertyNames(document: unknown): Map<string, string> {
  const all = new Set<string>()
  const pending = [document]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (typeof at !== 'object' || at === null) continue
    const { properties, required, discriminator } = at as Record<string, unknown>
    for (const name of isObject(properties) ? Object.keys(properties) : []) all.add(name)
    for (const name of Array.isArray(required) ? required : []) all.add(name)
    const { propertyName = discriminator } = Object(discriminator)
    if (typeof propertyName === 'string') all.add(propertyName)
    for (const member of Object.values(at)) if (typeof member === 'object' && member !== null) pending.push(member)
  }
  const named = [...all].filter(each => typeof each === 'string')
  if (named.every(each => ARGUMENT_NAME.test(each))) return new Map()
  const names = argumentNames(named)
  return new Map(named.map((wire, i) => [wire, names[i] as string] as const).filter(([wire, name]) => wire !== name))
}

function namesFor(wanted: readonly Wanted[], valid: RegExp, spelt: (text: string) => string): string[] {
  const readable = wanted.map(each => readableName(each, valid, spelt))
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

/** The name without a hash; `isWhole` is false if it leaves something out that tells names apart. */
function readableName({ id, instead }: Wanted, valid: RegExp, spelt: (text: string) => string) {
  if (valid.test(id)) return { id, name: id, isWhole: true }
  const plain = id.slice(0, NAME_CHARACTERS).normalize('NFKD').replace(/\p{M}/gu, '')
  // Signs and spaces only separate words; letters and digits say which one it is.
  const isWhole = id.length <= NAME_CHARACTERS && !/[^\x20-\x7e]/.test(plain)
  if (!/[A-Za-z0-9]/.test(plain)) return { id, name: instead, isWhole: false }
  const name = spelt(plain)
  return { id, name: name.slice(0, NAME_CHARACTERS), isWhole: isWhole && name.length <= NAME_CHARACTERS }
}

/** Runs of other characters as one `_`, none at either end. */
function tidied(text: string): string {
  return text.replace(/[^A-Za-z0-9-]+/g, '_').replace(/^_|_$/g, '')
}

/** The hash of a long id is made once: hundreds of other names may have been chosen to collide with it. */
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
