import { LRUCache } from 'lru-cache'
import type { RowQuery } from '../db/statements/row-statement.js'
import { type DefinitionText, MARK } from '../updates/answer-text.js'

/* What is known of definitions, by their hashes in hex. Definitions never change, so nothing kept here can be stale. */

/** Room for every definition that one answer can show, the largest included. */
const TEXT_BYTES_MAX = 32 * 1024 * 1024
const texts = new LRUCache<string, Buffer>({ maxSize: TEXT_BYTES_MAX, maxEntrySize: TEXT_BYTES_MAX / 2 })

/** Those of some definitions whose texts are cached here. The map stays as it is, whatever is dropped meanwhile. */
export type CachedTexts = ReadonlyMap<string, Buffer>

/** Those of these definitions whose texts are cached here. */
export function cachedTexts(hashes: readonly (string | null)[]): CachedTexts {
  const cached = new Map<string, Buffer>()
  for (const hash of hashes) {
    const text = texts.get(hash ?? '')
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

/** Keeps the text of the definition that has this hash as the bytes that are sent, and answers them. */
export function cacheText(hash: string, text: string): Buffer {
  const cached = texts.get(hash)
  if (cached !== undefined) return cached
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text)) // a part of a pool would keep the whole pool alive
  bytes.write(text)
  texts.set(hash, bytes, { size: bytes.length })
  return bytes
}

interface Facts {
  /** It was stored when this process last saw it. It may be pruned by now: what rests on it looks again. */
  isStored?: true
  /** It has no number that JavaScript would write in another way. */
  isPlain?: true
  /** Its server origins. */
  origins?: ReadonlySet<string>
  /** It passed the check for a tool with these headers, with these notes. */
  checked?: { headers: string; notes: string[] }
}

const facts = new LRUCache<string, Facts>({ max: 2_000 })
const NOTHING: Facts = {}

/** What is known of a definition; of none, that it has no origins. */
export function factsOf(hash: string | null): Facts {
  return hash === null ? { origins: new Set() } : (facts.get(hash) ?? NOTHING)
}

/** Longer origins are read again rather than kept, all characters together. */
const ORIGIN_CHARACTERS_MAX = 2_000

/** Keeps what was found out of a definition. */
export function noteFacts(hash: string, { origins, ...found }: Facts): void {
  const isKept = origins && [...origins].join('').length <= ORIGIN_CHARACTERS_MAX
  facts.set(hash, { ...facts.get(hash), ...found, ...(isKept && { origins }) })
}

/** What a statement answers with marks (`markedDefinition`), text by text: definitions that it left out are those cached. */
export function withDefinitions(marked: string, cached: CachedTexts): (string | DefinitionText)[] {
  const pieces = marked.split(MARK)
  const texts: (string | DefinitionText)[] = pieces.slice(0, 1)
  for (let i = 1; i < pieces.length; i += 3) {
    texts.push(definitionOf(pieces[i], pieces[i + 1], cached), pieces[i + 2] ?? '')
  }
  return texts
}

function definitionOf(hash = '', text = '', cached: CachedTexts): DefinitionText {
  if (hash === '') return { hash, text } // there is none
  if (!factsOf(hash).isStored) noteFacts(hash, { isStored: true })
  if (text !== '') return { hash, text: cacheText(hash, text) }
  const known = cached.get(hash)
  if (known === undefined) throw new Error(`a statement left out the definition ${hash}, which is not cached`)
  return { hash, text: known }
}
