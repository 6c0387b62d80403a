import { sha256 } from '../updates/audit.js'

/**
 * Values that belong to definitions, by the hash of the definition in hex; those used lately. A definition never changes and its
 * hash is that of its text, so what is kept here cannot be stale: which definition a resource has is said by the database.
 *
 * Two generations: what is used moves to the newer one, and when that is full the older one is dropped whole. Nothing is taken
 * out of a map by a request (DECISIONS section 19).
 */
export class DefinitionCache<Value> {
  readonly #bytesMax: number
  readonly #valueBytesMax: number
  #newer = new Map<string, { value: Value; bytes: number }>()
  #older = new Map<string, { value: Value; bytes: number }>()
  #newerBytes = 0

  /** Keeps values of at most so many bytes, and no single one of more than `valueBytesMax`. */
  constructor(bytesMax: number, valueBytesMax: number) {
    this.#bytesMax = bytesMax
    this.#valueBytesMax = valueBytesMax
  }

  get(hash: string): Value | undefined {
    const newer = this.#newer.get(hash)
    if (newer !== undefined) return newer.value
    const older = this.#older.get(hash)
    if (older !== undefined) this.keep(hash, older.value, older.bytes)
    return older?.value
  }

  keep(hash: string, value: Value, bytes: number): void {
    if (bytes > this.#valueBytesMax || this.#newer.has(hash)) return
    if (this.#newerBytes + bytes > this.#bytesMax / 2) {
      this.#older = this.#newer
      this.#newer = new Map()
      this.#newerBytes = 0
    }
    this.#newer.set(hash, { value, bytes })
    this.#newerBytes += bytes
  }
}

/** V8 takes at most so many bytes for a character. */
const CHARACTER_BYTES = 2

/** Room for every definition that one answer can show, the largest included: who asks for it again costs no reading. */
const TEXT_BYTES_MAX = 32 * 1024 * 1024
const texts = new DefinitionCache<string>(TEXT_BYTES_MAX, TEXT_BYTES_MAX / 2)

/** Those of these definitions whose texts are cached here. The map stays as it is, whatever is dropped meanwhile. */
export function cachedTexts(hashes: readonly (string | null)[]): ReadonlyMap<string, string> {
  const cached = new Map<string, string>()
  for (const hash of hashes) {
    const text = hash === null ? undefined : texts.get(hash)
    if (hash !== null && text !== undefined) cached.set(hash, text)
  }
  return cached
}

/** Keeps the text of a stored definition, if its hash is the right one. */
export function cacheText(hash: string, text: string): void {
  const bytes = text.length * CHARACTER_BYTES
  if (texts.get(hash) !== undefined || sha256(text) !== hash) return
  texts.keep(hash, Buffer.from(text).toString(), bytes) // a copy: a part of an answer would keep the whole answer alive
}

const origins = new DefinitionCache<ReadonlySet<string>>(1024 * 1024, 16 * 1024)
const HASH_BYTES = 128

/** The server origins of a definition, where they are cached here; of none, none. */
export function cachedOrigins(hash: string | null): ReadonlySet<string> | undefined {
  return hash === null ? new Set() : origins.get(hash)
}

/** Keeps the server origins of a stored definition. */
export function cacheOrigins(hash: string, found: ReadonlySet<string>): void {
  const characters = [...found].reduce((sum, origin) => sum + origin.length, 0)
  origins.keep(hash, found, HASH_BYTES + characters * CHARACTER_BYTES)
}

/** Stands on each side of what a statement says of a definition. JSON text never holds it: in texts it is escaped. */
const MARK = '\u0001'

/** A snapshot with marks (`toolSnapshots`) as JSON text: the definitions that the statement left out are those cached. */
export function withDefinitions(marked: string, cached: ReadonlyMap<string, string>): string {
  const parts = marked.split(MARK)
  for (let i = 1; i < parts.length; i += 3) {
    const [hash = '', text = ''] = parts.slice(i, i + 2)
    if (text !== '') cacheText(hash, text)
    parts[i] = text === '' ? cachedText(cached, hash) : text
    parts[i + 1] = ''
  }
  return parts.join('')
}

/** The text of a definition that a statement left out because it is cached here. */
function cachedText(cached: ReadonlyMap<string, string>, hash: string): string {
  const text = cached.get(hash)
  if (text === undefined) throw new Error(`a statement left out the definition ${hash}, which is not cached`)
  return text
}
