import { withRetries } from '../db/connection/retry.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { BATCHED_BYTES_MAX } from '../updates/read.js'
import { cachedTexts, cacheOrigins } from './definition-cache.js'
import { toolResource } from './resource.js'
import type { StoredOrigins, ToolUpdate } from './rules.js'
import type { ToolState } from './state.js'
import { readDefinition } from './statements.js'
import type { BodyWorkers, TaskRequest } from './worker/pool.js'

/**
 * The server origins of the stored definition, where the decision on an update asks for them and they are not cached: found in the
 * other thread if the definition is large, before anything is locked. What is refused is left to the update itself. Throws what
 * `BodyWorkers.run` and the database throw.
 */
export async function storedOrigins(
  { database, workers }: { database: ServiceDatabase; workers: BodyWorkers },
  state: ToolState,
  update: ToolUpdate,
  { raw }: Pick<TaskRequest, 'raw'>,
): Promise<StoredOrigins | undefined> {
  const { definition_hash: hash, definition_bytes: bytes } = state
  if (hash === null || !asksForOrigins(state, update)) return undefined
  const { caller } = update
  const text = () => textOf(database, { hash, bytes })
  const origins = await workers.run('stored_origins', { caller, raw, body: {} }, { strict: false }, { bytes, text })
  cacheOrigins(hash, origins)
  return { hash, origins }
}

function asksForOrigins(state: ToolState, update: ToolUpdate): boolean {
  try {
    return toolResource.decide(state, update, null).needsOrigins
  } catch {
    return false
  }
}

/** A stored definition by its hash in hex, and about its size. */
export interface StoredDefinition {
  hash: string
  bytes: number
}

/**
 * The text of a stored definition for `BodyWorkers`; undefined where it is gone by now. A large one is read by itself: only jobs that
 * have their turn in the other thread ask for such.
 */
export async function textOf(
  database: ServiceDatabase,
  { hash, bytes }: StoredDefinition,
): Promise<string | undefined> {
  const cached = cachedTexts([hash]).get(hash)
  if (cached !== undefined) return cached.toString()
  const query = readDefinition.for({ hash })
  const isBatchable = bytes <= BATCHED_BYTES_MAX
  const row = await withRetries(() => (isBatchable ? query.batched(database) : query.single(database.db)))
  return row?.definition
}
