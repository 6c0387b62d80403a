import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { unavailableFor } from '../db/unavailable.js'
import { ResourceNotFound, Unavailable, VersionGone, VersionNotFound } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { update } from './engine.js'
import { type FirstAnswer, firstAnswer, isKeyTaken } from './idempotency.js'
import { isStale } from './precondition.js'
import { readResource, wholeState } from './read.js'
import { readPast } from './read-past.js'
import type { Job, ResourceTypes, Updated, VersionedResource } from './resource.js'

/** What an update is answered with. */
export interface Answered<T extends ResourceTypes> extends Omit<Updated<T>, 'decision'> {
  /** Null where the same request was answered before: then the answer is that of the version which it made. */
  decision: T['Decision'] | null
}

/** Updates as `update` does, or answers what a request with this key was answered before. Throws `InvalidRequest` for another request. */
export async function updateOnce<T extends ResourceTypes>(
  database: Database,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'] | null,
): Promise<Answered<T>> {
  const job = { database, resource, request }
  const state = await wholeState(job, prefetched)
  if (request.key.idempotency_key !== null) {
    resource.requireRights(state, request.caller)
    const before = await answerBefore(job)
    if (before !== undefined) return before
  }
  try {
    return await update(job, state)
  } catch (error) {
    if (error instanceof Unavailable) error.isKeyLookedUp = true
    if (!isKeyTaken(error)) throw error
    // The request that took the key has stored its audit row.
    const meanwhile = await answerBefore(job).catch(asApplied)
    if (meanwhile === undefined) throw error
    return meanwhile
  }
}

/** What failed after an update was stored: it must not say that it was not. */
function asApplied(error: unknown): never {
  const failure = error instanceof Unavailable ? error : unavailableFor(error)
  if (failure === undefined || failure.outcome === 'applied') throw failure ?? error
  const message = 'The update was applied, and its answer could not be read. Repeat it with the same Idempotency-Key.'
  throw new Unavailable(failure.reason, message, 'applied', { cause: error })
}

/** The answer that the first request with this key had, made anew; undefined where there was none. */
async function answerBefore<T extends ResourceTypes>(job: Job<T>): Promise<Answered<T> | undefined> {
  const { database, resource, request } = job
  const looking = withRetries(() => firstAnswer(request.key, query => query.batched(database)))
  const first = await looking.catch(error => {
    throw unavailableFor(error) ?? error
  })
  if (first === undefined) return undefined
  try {
    const { caller, prefetched } = await request.authenticateAgain()
    if (prefetched === null) throw new ResourceNotFound(resource.kind)
    const stored = prefetched as T['State'] // the lookup of its route; without large texts, as for a read
    resource.requireRights(stored, caller)
    const shown = await contentOf({ ...job, request: { ...request, caller } }, first, stored)
    return { ...shown, version: first.version, decision: null, overwritten: [], merged: false }
  } catch (error) {
    return asApplied(error)
  }
}

/** The snapshot of a version; where it is no longer kept, that of `stored`, which is the present state, and a note. */
async function contentOf<T extends ResourceTypes>(
  job: Job<T>,
  { version, shownAt }: FirstAnswer,
  stored: T['State'],
): Promise<{ snapshot: AnswerText | null; notes: string[] }> {
  const { request } = job
  const wasShown = shownAt !== null && isStale(request, { id: request.id, version })
  if (request.minimal && !wasShown) return { snapshot: null, notes: [] }
  try {
    return await readPast(job, request.id, { version, shownAt })
  } catch (error) {
    if (!(error instanceof VersionGone || error instanceof VersionNotFound)) throw error
    const { snapshot } = await readResource(job, stored)
    return { snapshot, notes: [`${error.message.replace(/\.$/, '')}: the body is the present state`] }
  }
}
