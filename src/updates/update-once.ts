import { withRetries } from '../db/connection/retry.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import { ResourceNotFound, Unavailable, VersionGone } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { update } from './engine.js'
import { firstVersion, isKeyTaken } from './idempotency.js'
import { readPast, readResource, wholeState } from './read.js'
import type { ResourceTypes, Updated, VersionedResource } from './resource.js'

/** What an update is answered with. */
export interface Answered<T extends ResourceTypes> extends Omit<Updated<T>, 'decision'> {
  /** Null where the same request was answered before: then the answer is that of the version which it made. */
  decision: T['Decision'] | null
}

/** Updates as `update` does, or answers what a request with this key was answered before. Throws `InvalidRequest` for another request. */
export async function updateOnce<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'] | null,
): Promise<Answered<T>> {
  const { key, caller, dryRun } = request
  const state = await wholeState(database, resource, prefetched, request)
  const isKeyed = key.idempotency_key !== null && !dryRun
  if (isKeyed) {
    resource.requireRights(state, caller)
    const before = await answerBefore(database, resource, request)
    if (before !== undefined) return before
  }
  try {
    const updated = await update(database, resource, request, state)
    const isTagged = request.precondition.kind === 'tags' && !request.merges // else its tag refuses the repetition
    const keepsNoKey = isKeyed && updated.decision.changes.length === 0 && !isTagged
    return keepsNoKey ? { ...updated, notes: [...updated.notes, NO_KEY_KEPT] } : updated
  } catch (error) {
    if (error instanceof Unavailable) error.isKeyLookedUp = true
    if (!isKeyTaken(error)) throw error
    // The request that took the key has stored its audit row.
    const meanwhile = await answerBefore(database, resource, request).catch(asApplied)
    if (meanwhile === undefined) throw error
    return meanwhile
  }
}

/** A repetition of such an update overwrites an edit made in between, and a 200 alone does not say so. */
const NO_KEY_KEPT =
  'nothing was changed, so no Idempotency-Key is kept: a repetition is judged anew, send it with If-Match'

/** What failed behind an update that is stored: it must not say that it is not. */
function asApplied(error: unknown): never {
  const failure = error instanceof Unavailable ? error : unavailableFor(error)
  if (failure === undefined || failure.outcome === 'applied') throw failure ?? error
  const message = 'The update was applied, and its answer could not be read. Repeat it with the same Idempotency-Key.'
  throw new Unavailable(failure.reason, message, 'applied', { cause: error })
}

/**
 * The answer that the request with this key had, made anew from the version that it stored; undefined where there is none.
 */
async function answerBefore<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
): Promise<Answered<T> | undefined> {
  const first = await withRetries(() => {
    return firstVersion(request.key, query => query.batched(database))
  }).catch(error => {
    throw unavailableFor(error) ?? error
  })
  if (first === undefined) return undefined
  try {
    const { caller, prefetched } = await request.authenticateAgain()
    if (prefetched === null) throw new ResourceNotFound(resource.kind)
    const stored = prefetched as T['State'] // the lookup of its route; without large texts, as for a read
    resource.requireRights(stored, caller)
    const shown = await contentOf(database, resource, { ...request, caller }, first, stored)
    return { ...shown, version: first, decision: null, overwritten: [], merged: false }
  } catch (error) {
    return asApplied(error)
  }
}

/** The snapshot of a version; where it is no longer kept, that of `stored`, which is the present state, and a note. */
async function contentOf<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
  first: number,
  stored: T['State'],
): Promise<{ snapshot: AnswerText | null; notes: string[] }> {
  if (request.minimal) return { snapshot: null, notes: [] }
  try {
    return await readPast(database, resource, request.id, { version: first }, request)
  } catch (error) {
    if (!(error instanceof VersionGone)) throw error
    const { snapshot } = await readResource(database, resource, stored, request)
    return { snapshot, notes: [`${error.message.replace(/\.$/, '')}: the body is the present state`] }
  }
}
