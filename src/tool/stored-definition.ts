import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { cachedTexts } from './definition-cache.js'
import { readDefinition } from './statements.js'

/** Reads the text of a stored definition by its hash in hex; undefined if it was pruned. */
export async function textOf({ db }: Database, hash: string): Promise<string | undefined> {
  const cached = cachedTexts([hash]).get(hash)
  if (cached !== undefined) return cached.toString()
  return (await withRetries(() => readDefinition.first(db, { hash })))?.definition
}
