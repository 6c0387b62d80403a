import { createHash } from 'node:crypto'
import type { MethodRecord } from '../check/operations.js'
import { isObject } from '../check/references.js'

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const FUNCTION_NAME = /^[A-Za-z0-9_-]{1,64}$/
/** Matches argument names that every model provider accepts. */
const ARGUMENT_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/

/** `id` is the original name. `instead` returns the name to use if the original name has neither letters nor digits. */
type Wanted = Readonly<{ id: string; instead(): string }>

/**
 * For each operation, returns a unique name that every model provider accepts (`^[A-Za-z0-9_-]{1,64}$`). A valid operationId is kept. In an invalid
 * operationId, accents are removed, and other invalid characters become `_`. A hash of the operationId is appended if the name was cut, is not unique
 * or lost non-ASCII characters. An operationId with neither letters nor digits is replaced with the method and path.
 */
export function functionNames(operations: readonly Pick<MethodRecord, 'name' | 'method' | 'path'>[]): string[] {
  const wanted = operations.map(({ name, method, path }) => ({
    id: name,
    instead: () => tidied(`${method.toLowerCase()} ${path}`.slice(0, NAME_CHARACTERS)),
  }))
  return namesFor(wanted, FUNCTION_NAME, text => text.replace(/[^A-Za-z0-9_-]/g, '_'))
}

/** Returns a valid name for each original name in `ids`, for example `page_size` for `page[size]`. `ids` must be unique. */
export function argumentNames(ids: readonly string[]): string[] {
  const wanted = ids.map(id => ({ id, instead: () => 'argument' }))
  return namesFor(wanted, ARGUMENT_NAME, text => tidied(text).replace(/^(?=[^A-Za-z_])/, '_'))
}

/** Maps each schema property name that a model provider does not accept to a name that all providers accept. */
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

/** Returns a name without a hash. `isWhole` is false if the removed characters could have distinguished two names. */
function readableName({ id, instead }: Wanted, valid: RegExp, spelt: (text: string) => string) {
  if (valid.test(id)) return { id, name: id, isWhole: true }
  const plain = id.slice(0, NAME_CHARACTERS).normalize('NFKD').replace(/\p{M}/gu, '')
  // A name is whole even if ASCII punctuation was replaced, because punctuation only separates words.
  const isWhole = id.length <= NAME_CHARACTERS && !/[^\x20-\x7e]/.test(plain)
  if (!/[A-Za-z0-9]/.test(plain)) return { id, name: instead(), isWhole: false }
  const name = spelt(plain)
  return { id, name: name.slice(0, NAME_CHARACTERS), isWhole: isWhole && name.length <= NAME_CHARACTERS }
}

/** Replaces each run of invalid characters with `_`, and removes `_` at both ends. */
function tidied(text: string): string {
  return text.replace(/[^A-Za-z0-9-]+/g, '_').replace(/^_|_$/g, '')
}

function hashedName(name: string, id: string, taken: ReadonlySet<string>): string {
  const start = name.slice(0, NAME_CHARACTERS - 1 - HASH_CHARACTERS)
  for (let round = 0; ; round++) {
    const hash = createHash('sha256').update(round === 0 ? id : `${id}#${round}`)
    const hashed = `${start}_${hash.digest('hex').slice(0, HASH_CHARACTERS)}`
    if (!taken.has(hashed)) return hashed
  }
}
