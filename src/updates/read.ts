import type { Caller } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound, Unavailable } from '../errors.js'
import type { ResourceTypes, VersionedResource } from './engine.js'

/** Reads that find the resource changed again and again are given up after so many. */
const READS_MAX = 5

/**
 * Answers the stored resource as an update would: its snapshot as JSON text, and its version. `prefetched` is the state that
 * came with the authentication; where somebody wrote since, it is read again.
 *
 * Errors: `ResourceNotFound` where the caller does not see it, `Unavailable` where it never stood still.
 */
export async function readSnapshot<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  prefetched: T['State'],
  caller: Caller,
): Promise<{ snapshot: string; version: number }> {
  const viewer = viewerParameters(caller)
  let state: T['State'] | undefined = prefetched
  for (let reads = 0; reads < READS_MAX; reads++) {
    if (state === undefined || !resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
    const row = await resource.reading(state, viewer).batched(database)
    if (row !== undefined) return { snapshot: resource.snapshot(row, null), version: row.version }
    state = await resource.read(database.db, state.id, viewer)
  }
  throw new Unavailable('overloaded', 'Others change this resource all the time. Try again.', 'not_applied')
}
