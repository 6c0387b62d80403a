import { LRUCache } from 'lru-cache'
import type { RowQuery } from '../db/statements/row-statement.js'
import { type DefinitionText, MARK } from '../updates/answer-text.js'
import { sha256 } from '../updates/audit.js'

/*
 * Values that belong to definitions, by the hash of the definition in hex. A definition never changes and its hash is that of its
 * text, so what is kept here cannot be stale: which definition a resource has is said by the database.
 */

/** V8 takes at most so many bytes for a character. */
const CHARACTER_BYTES = 2

/** Room for every definition that one answer can show, the largest included: who asks for it again costs no reading. */
const TEXT_BYTES_MAX = 32 * 1024 * 1024
const texts = new LRUCache<string, Buffer>({ maxSize: TEXT_BYTES_MAX, maxEntrySize: TEXT_BYTES_MAX / 2 })

/** Those of some definitions whose texts are cached here. The map stays as it is, whatever is dropped meanwhile. */
export type CachedTexts = ReadonlyMap<string, Buffer>

/** Those of these definitions whose texts are cached here. */
export function cachedTexts(hashes: readonly (string | null)[]): CachedTexts {
  const cached = new Map<string, Buffer>()
  for (const hash of hashes) {
    const text = hash === null ? undefined : texts.get(hash)
    if (hash !== null && text !== undefined) cached.set(hash, text)
  }
  return cached
}

/** The hashes of definitions whose texts a statement may leave out, as `\\x` and hex. */
export interface CachedDefinitions {
  cached_definitions: string[]
}

/** Tells a statement which definitions it may leave out. */
export function leavingOut(cached: CachedTexts): CachedDefinitions {
  return { cached_definitions: [...cached.keys()].map(hash => `\\x${hash}`) }
}

/** The query that leaves out those of the definitions that are cached here, and puts them into its answer. */
export function withCached<Row, Shown>(
  definitions: readonly { definition: string | null }[],
  query: (parameters: CachedDefinitions) => RowQuery<Row>,
  show: (row: Row, cached: CachedTexts) => Shown,
): RowQuery<Shown> {
  const cached = cachedTexts(definitions.map(({ definition }) => definition))
  return query(leavingOut(cached)).map(row => show(row, cached))
}

/** Keeps the text of a stored definition as the bytes that are sent, if its hash is the right one, and answers it. */
export function cacheText(hash: string, text: string): string | Buffer {
  const cached = texts.get(hash)
  if (cached !== undefined) return cached
  if (sha256(text) !== hash) return text
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text)) // a part of a pool would keep the whole pool alive
  bytes.write(text)
  texts.set(hash, bytes, { size: bytes.length })
  return bytes
}

const origins = new LRUCache<string, ReadonlySet<string>>({ maxSize: 1024 * 1024, maxEntrySize: 16 * 1024 })
const HASH_BYTES = 128

/** Hashes of definitions that something is known of. */
const HASHES_MAX = 2_000

/** The server origins of a definition, where they are cached here; of none, none. */
export function cachedOrigins(hash: string | null): ReadonlySet<string> | undefined {
  return hash === null ? new Set() : origins.get(hash)
}

/** Keeps the server origins of a stored definition. */
export function cacheOrigins(hash: string, found: ReadonlySet<string>): void {
  const characters = [...found].reduce((sum, origin) => sum + origin.length, 0)
  origins.set(hash, found, { size: HASH_BYTES + characters * CHARACTER_BYTES })
}

const stored = new LRUCache<string, true>({ max: HASHES_MAX })

/** Whether a definition was stored when this process last saw it. It may be pruned by now: who rests on it looks again. */
export function isKnownStored(hash: string): boolean {
  return stored.get(hash) === true
}

/** Keeps that a definition is stored: a commit was confirmed, or it was read. */
export function cacheStored(hash: string): void {
  stored.set(hash, true)
}

const plain = new LRUCache<string, true>({ max: HASHES_MAX })

/** Whether a definition is known to have no number that JavaScript would write in another way. */
export function isKnownPlain(hash: string): boolean {
  return plain.get(hash) === true
}

/** Keeps that a definition has no such number. */
export function cachePlain(hash: string): void {
  plain.set(hash, true)
}

/** What a statement answers with marks (`markedDefinition`), text by text: the definitions that it left out are those cached. */
export function withDefinitions(marked: string, cached: CachedTexts): (string | DefinitionText)[] {
  const pieces = marked.split(MARK)
  const texts: (string | DefinitionText)[] = pieces.slice(0, 1)
  for (let i = 1; i < pieces.length; i += 3) {
    texts.push(definitionOf(pieces[i], pieces[i + 1], cached), pieces[i + 2] ?? '')
  }
  return texts
}

/** A definition alone as a statement answers it, likewise; undefined where it answers none. */
export function shownDefinition(marked: string, cached: CachedTexts): DefinitionText | undefined {
  if (marked === '') return undefined
  const [, hash, text] = marked.split(MARK)
  return definitionOf(hash, text, cached)
}

function definitionOf(hash = '', text = '', cached: CachedTexts): DefinitionText {
  if (hash === '') return { hash, text } // there is none
  cacheStored(hash)
  if (text !== '') return { hash, text: cacheText(hash, text) }
  const known = cached.get(hash)
  if (known === undefined) throw new Error(`a statement left out the definition ${hash}, which is not cached`)
  return { hash, text: known }
}
