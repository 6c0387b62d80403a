import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import { ResourceNotFound, VersionGone } from '../errors.js'
import { type ResourceTypes, type Updated, update, type VersionedResource } from './engine.js'
import { firstVersion, isKeyTaken } from './idempotency.js'
import { readPast, readResource } from './read.js'

/** What an update is answered with. */
export interface Answered<T extends ResourceTypes> extends Omit<Updated<T>, 'decision'> {
  /** Null where the same request was answered before: then the answer is that of the version which it made. */
  decision: T['Decision'] | null
}

/**
 * Updates a resource as `update` does, or answers what the same request, told by its `Idempotency-Key`, was answered before.
 * The rights are those of now. Throws what `update` throws, and `InvalidRequest` where another request had the key.
 */
export async function updateOnce<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'] | null,
): Promise<Answered<T>> {
  const { key, caller, dryRun } = request
  const hasKey = key.idempotency_key !== null && !dryRun
  if (prefetched === null) throw new ResourceNotFound(resource.kind)
  const state = prefetched
  if (hasKey) resource.requireRights(state, caller)
  const before = hasKey ? await replayed() : undefined
  if (before !== undefined) return before
  try {
    return await update(database, resource, request, state)
  } catch (error) {
    const after = isKeyTaken(error) ? await replayed() : undefined // whoever took it has stored its audit row
    if (after === undefined) throw error
    return after
  }

  async function replayed(): Promise<Answered<T> | undefined> {
    try {
      const version = await withRetries(() => firstVersion(database.db, key))
      if (version === undefined) return undefined
      const caller = await request.callerNow(database.db)
      const stored = await resource.read(database.db, request.id, viewerParameters(caller))
      if (stored === undefined) throw new ResourceNotFound(resource.kind)
      resource.requireRights(stored, caller)
      const answered = await asAnswered(version, stored, { ...request, caller })
      return { ...answered, version, decision: null, overwritten: [], merged: false }
    } catch (error) {
      throw unavailableFor(error) ?? error
    }
  }

  async function asAnswered(
    version: number,
    stored: T['State'],
    asked: T['Request'],
  ): Promise<{ snapshot: string | null; notes: string[] }> {
    if (request.minimal) return { snapshot: null, notes: [] }
    try {
      const { snapshot } = await readPast(database, resource, request.id, { version }, asked)
      return { snapshot, notes: [] }
    } catch (error) {
      if (!(error instanceof VersionGone)) throw error
      const { snapshot } = await readResource(database, resource, stored, asked)
      return { snapshot, notes: [`the content of version ${version} is no longer kept: the body is the present state`] }
    }
  }
}
