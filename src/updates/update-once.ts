import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { ResourceNotFound, Unavailable, VersionGone } from '../errors.js'
import { readNow, store } from './engine.js'
import { type FirstAnswer, firstAnswer, Repeated, wasRemovedSince } from './idempotency.js'
import type { Job, ResourceTypes, Stored, VersionedResource } from './resource.js'
import { unavailableFor } from './unavailable.js'

/**
 * Stores the changes of a request as `store` does, or answers a repeated request. `state` was read with the authentication. A hidden resource is
 * answered like a missing one before any other statement runs, so that timing does not reveal it. Throws `InvalidRequest` if the key belongs to
 * a different request.
 */
export async function updateOnce<T extends ResourceTypes>(
  database: Database,
  resource: VersionedResource<T>,
  request: T['Request'],
  state: T['State'] | null = null,
): Promise<Stored<T>> {
  const job = { database, resource, request }
  const { key, caller } = request
  const first = key && (await withRetries(() => firstAnswer(database.db, key)))
  if (first) return await repeated(job, first)
  const isHidden = state === null ? resource.act !== 'creation' : !resource.isVisible(state, caller)
  if (isHidden) throw new ResourceNotFound(resource.kind)
  try {
    return await store(job, state)
  } catch (error) {
    // Meanwhile, another request with this key was stored.
    if (error instanceof Repeated) return await repeated(job, error.first)
    throw error
  }
}

/** Answers with the current record and the version of the first answer. Throws `VersionGone` if the caller can no longer see it. */
async function repeated<T extends ResourceTypes>(job: Job<T>, first: FirstAnswer): Promise<Stored<T>> {
  const { resource, request, database } = job
  const { kind, act } = resource
  const { id = request.id, version } = first
  const answer = { id, version, decision: null, overwritten: [] }
  if (act === 'deletion') return { ...answer, snapshot: null }
  try {
    const own = { ...job, request: { ...request, id } }
    const now = await withRetries(() => readNow(database.db, own))
    const isSeen = resource.isVisible(now.state, now.request.caller)
    if (!isSeen || (await wasRemovedSince(database.db, kind, id, version))) throw new ResourceNotFound(kind)
    const snapshot = request.minimal ? null : await resource.render(database.db, now.state, request.snapshotBytesMax)
    return { ...answer, snapshot }
  } catch (error) {
    if (error instanceof ResourceNotFound)
      throw new VersionGone('deleted', `This request stored the id ${id}, which is deleted or hidden from you now.`)
    const failure = error instanceof Unavailable ? error : unavailableFor(error)
    if (failure === undefined || failure.outcome === 'applied') throw failure ?? error
    const message = `The ${act} was applied, and its answer could not be read. Repeat it with the same Idempotency-Key.`
    throw new Unavailable(failure.reason, message, 'applied', { cause: error })
  }
}
