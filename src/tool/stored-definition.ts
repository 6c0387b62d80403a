import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { definitionText } from './definition-cache.js'

/** Reads the text of a stored definition by its hash in hex; undefined if it was pruned. */
export async function textOf({ db }: Database, hash: string): Promise<string | undefined> {
  return await withRetries(() => definitionText(db, hash))
}
