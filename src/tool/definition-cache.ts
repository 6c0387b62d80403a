import { LRUCache } from 'lru-cache'
import type { Ask, Statement } from '../db/statements/statement.js'
import { type DefinitionText, MARK } from '../updates/answer-text.js'

/* Caches of definition texts and of facts about definitions, by hash in hex. Definitions never change, so no entry can be stale. */

const TEXT_BYTES_MAX = 16 * 1024 * 1024
const texts = new LRUCache<string, Buffer>({ maxSize: TEXT_BYTES_MAX, maxEntrySize: TEXT_BYTES_MAX / 2 })

/** A snapshot of the cached texts of some definitions, by hash. Later evictions do not change it. */
export type CachedTexts = ReadonlyMap<string, Buffer>

/** Returns the cached texts among these definitions. */
export function cachedTexts(hashes: readonly (string | null)[]): CachedTexts {
  const cached = new Map<string, Buffer>()
  for (const hash of hashes) {
    const text = texts.get(hash ?? '')
    if (hash !== null && text !== undefined) cached.set(hash, text)
  }
  return cached
}

/** The parameter of a statement: hashes, as `\\x` and hex, of definitions whose texts it leaves out. */
export interface CachedDefinitions {
  cached_definitions: string[]
}

/** Returns the statement parameter for these cached texts. */
export function leavingOut(cached: CachedTexts): CachedDefinitions {
  return { cached_definitions: [...cached.keys()].map(hash => `\\x${hash}`) }
}

/** Makes a query that omits the texts cached here, and adds them to its answer. */
export function withCached<P extends object, Row, Shown>(
  definitions: readonly { definition: string | null }[],
  statement: Statement<P & CachedDefinitions, Row>,
  parameters: P,
  show: (row: Row, cached: CachedTexts) => Shown,
): Ask<Shown> {
  const cached = cachedTexts(definitions.map(({ definition }) => definition))
  const asked = Object.assign(parameters, leavingOut(cached))
  return async executor => {
    const row = await statement.first(executor, asked)
    return row && show(row, cached)
  }
}

/** Caches the text of a definition as UTF-8 and returns the bytes. */
export function cacheText(hash: string, text: string): Buffer {
  const cached = texts.get(hash)
  if (cached !== undefined) return cached
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text)) // a slice of the pool would keep the whole pool in memory
  bytes.write(text)
  texts.set(hash, bytes, { size: bytes.length })
  return bytes
}

interface Facts {
  origins?: ReadonlySet<string>
  /** The names of its functions. */
  names?: readonly string[]
  /** The headers for which the definition passed the check, and the notes. */
  checked?: { headers: string; notes: string[] }
}

const facts = new LRUCache<string, Facts>({ max: 2_000 })
const NOTHING: Facts = {}

/** Returns the known facts of a definition. A tool without a definition has no origins. */
export function factsOf(hash: string | null): Facts {
  return hash === null ? { origins: new Set() } : (facts.get(hash) ?? NOTHING)
}

/** Longer lists of addresses and names are not cached. */
const CHARACTERS_MAX = 4_000

/** Adds facts about a definition. */
export function noteFacts(hash: string, found: Facts): void {
  if ([...(found.origins ?? []), ...(found.names ?? [])].join('').length > CHARACTERS_MAX) return
  facts.set(hash, { ...facts.get(hash), ...found })
}

/** Splits a statement's text at its marks (`markedDefinition`), and inserts the cached definitions that the statement left out. */
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
  if (text !== '') return { hash, text: cacheText(hash, text) }
  const known = cached.get(hash)
  if (known === undefined) throw new Error(`a statement left out the definition ${hash}, which is not cached`)
  return { hash, text: known }
}
