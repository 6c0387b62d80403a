import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { definitionsOf } from './definition-cache.js'
import type { ToolState } from './snapshot.js'
import type { StoredText } from './worker/pool.js'

/** The stored definition of a tool, for a task on it; undefined without one. Reading it throws `Unavailable` if it was pruned meanwhile. */
export function storedText({ db }: Database, state: ToolState): StoredText | undefined {
  const { definition_hash: hash, definition_bytes: bytes } = state
  if (hash === null) return undefined
  return { bytes, text: () => withRetries(async () => (await definitionsOf(db, [hash])).of(state)) }
}
