import { LRUCache } from 'lru-cache'

/* A cache of facts about definitions by hash (hex). Workers load this file, so it must not import the database. */

interface Facts {
  origins?: ReadonlySet<string>
  /** The last check that found no faults. `headers` has the header names and options of this check. */
  checked?: { headers: string; notes: string[]; names: readonly string[] }
  /** True if the definition was stored. If it has been pruned since, a write violates a foreign key, and the retry stores the definition again. */
  isStored?: boolean
}

const facts = new LRUCache<string, Facts>({ max: 2_000 })

/** Returns the cached facts about a definition. A tool without a definition has no origins. */
export function factsOf(hash: string | null): Facts {
  return hash === null ? { origins: new Set() } : (facts.get(hash) ?? {})
}

/** Adds facts about a definition. Facts longer than 4,000 characters are not cached. */
export function noteFacts(hash: string, found: Facts): void {
  const { origins = [], checked } = found
  const characters = JSON.stringify([...origins, checked]).length
  if (characters <= 4_000) facts.set(hash, { ...facts.get(hash), ...found })
}
