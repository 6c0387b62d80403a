import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { unavailableFor } from '../db/unavailable.js'
import { Forbidden, ResourceNotFound, Unavailable, VersionGone, VersionNotFound } from '../errors.js'
import { create, update } from './engine.js'
import { type FirstAnswer, firstAnswer, Repeated } from './idempotency.js'
import { answerPast } from './past.js'
import { isStale } from './precondition.js'
import { readResource } from './read.js'
import type { Job, ResourceTypes, Updated, VersionedResource } from './resource.js'

/** The answer to a request that stores something. */
export interface Answered<T extends ResourceTypes> extends Omit<Updated<T>, 'decision'> {
  /** Null for a repetition: then the answer shows the version that the first request made. */
  decision: T['Decision'] | null
}

/**
 * Updates as `update` does, or answers a repetition as the first request with this key was answered. `prepare` turns the request into the
 * update, for example by reading the version to restore; it is skipped for a repetition. Throws `InvalidRequest` if the key belongs to a
 * different request.
 */
export async function updateOnce<T extends ResourceTypes>(
  database: Database,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'] | null,
  prepare: (state: T['State']) => T['Request'] | Promise<T['Request']> = () => request,
): Promise<Answered<T>> {
  const job = { database, resource, request }
  return await once(
    job,
    async () => {
      const state = visible(job, prefetched)
      return await update({ ...job, request: await prepare(state) }, state)
    },
    async first => {
      const { caller, prefetched } = await request.authenticateAgain()
      if (prefetched === null)
        throw new VersionGone('deleted', `What this request changed, ${request.id}, has been deleted.`)
      const stored = prefetched as T['State'] // the state of the route's lookup, without large texts
      resource.requireRights(stored, caller)
      return await contentOf({ ...job, request: { ...request, caller } }, first, stored)
    },
  )
}

/** Creates as `create` does, or answers a repetition. Throws `VersionGone` if the caller must not edit the created resource any more. */
export async function createOnce<T extends ResourceTypes>(
  database: Database,
  resource: VersionedResource<T>,
  request: T['Request'],
): Promise<Answered<T>> {
  const job = { database, resource, request }
  return await once(
    job,
    () => create(job),
    async first => {
      const { caller } = await request.authenticateAgain()
      const id = first.id ?? request.id
      const state = await withRetries(() => resource.read(database.db, id, viewerParameters(caller)))
      try {
        if (state === undefined) throw new ResourceNotFound(resource.kind)
        resource.requireHistory(state, caller)
      } catch (error) {
        if (!(error instanceof ResourceNotFound || error instanceof Forbidden)) throw error
        // Deleted and hidden resources get the same answer, so that hidden ones are not revealed.
        throw new VersionGone(
          'deleted',
          `What this request created before, ${id}, has been deleted, or you may no longer edit it.`,
        )
      }
      return await contentOf({ ...job, request: { ...request, id, caller } }, first, state)
    },
  )
}

/** Deletes as `update` does, or answers a repetition. */
export async function deleteOnce<T extends ResourceTypes>(
  database: Database,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'] | null,
): Promise<Answered<T>> {
  const job = { database, resource, request }
  return await once(
    job,
    () => update(job, visible(job, prefetched)),
    async () => ({ snapshot: null, notes: [] }),
  )
}

/** A hidden resource is answered like one that does not exist, before any statement could tell them apart by its time. */
function visible<T extends ResourceTypes>({ resource, request }: Job<T>, state: T['State'] | null): T['State'] {
  if (state === null || !resource.isVisible(state, request.caller)) throw new ResourceNotFound(resource.kind)
  return state
}

/** Runs `attempt`. If a request with this key was stored before, returns what `repeat` makes of its answer instead. */
async function once<T extends ResourceTypes>(
  job: Job<T>,
  attempt: () => Promise<Updated<T>>,
  repeat: (first: FirstAnswer) => Promise<Shown>,
): Promise<Answered<T>> {
  const { database, request } = job
  const { key } = request
  const before = key && (await withRetries(() => firstAnswer(database.db, key)))
  if (before) return await repeated(job, before, repeat)
  try {
    return await attempt()
  } catch (error) {
    // Another request with this key was stored meanwhile.
    if (error instanceof Repeated) return await repeated(job, error.first, repeat)
    throw error
  }
}

/** Reports that the change was applied if its answer could not be read. */
function asApplied<T extends ResourceTypes>({ resource: { act } }: Job<T>, error: unknown): never {
  const failure = error instanceof Unavailable ? error : unavailableFor(error)
  if (failure === undefined || failure.outcome === 'applied') throw failure ?? error
  const message = `The ${act} was applied, and its answer could not be read. Repeat it with the same Idempotency-Key.`
  throw new Unavailable(failure.reason, message, 'applied', { cause: error })
}

/** The answer to a repetition of a stored request. */
async function repeated<T extends ResourceTypes>(
  job: Job<T>,
  first: FirstAnswer,
  repeat: (first: FirstAnswer) => Promise<Shown>,
): Promise<Answered<T>> {
  const { id, version } = first
  try {
    const shown = await repeat(first)
    return { ...shown, id: id ?? job.request.id, version, decision: null, overwritten: [] }
  } catch (error) {
    return asApplied(job, error)
  }
}

interface Shown {
  snapshot: string | null
  notes: string[]
}

/** The snapshot of a version. If it is no longer kept, the current state `stored` with a note. */
async function contentOf<T extends ResourceTypes>(
  job: Job<T>,
  { version, isUnchanged }: FirstAnswer,
  stored: T['State'],
): Promise<Shown> {
  const { request } = job
  const isMinimal = request.minimal && !(isUnchanged && isStale(request, { id: request.id, version }))
  try {
    const shown = await answerPast(job, request.id, version)
    return isMinimal ? { snapshot: null, notes: [] } : shown
  } catch (error) {
    // Another resource may have the id now.
    const isLost = error instanceof VersionGone && error.reason === 'deleted'
    if (isLost || !(error instanceof VersionGone || error instanceof VersionNotFound)) throw error
    if (isMinimal) return { snapshot: null, notes: [] }
    const { snapshot } = await readResource(job, stored)
    return { snapshot, notes: [`${error.message.replace(/\.$/, '')}: the body shows the present state`] }
  }
}
