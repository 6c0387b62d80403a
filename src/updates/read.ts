import type { Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { ResourceNotFound } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import type { Job, ReadRequest, ResourceTypes } from './resource.js'
import { bounded, runStatement } from './run-statement.js'

/** The prefetched state, read again in full if large texts were left out. Throws `ResourceNotFound` and database errors. */
export async function wholeState<T extends ResourceTypes>(
  { database, resource, request }: Job<T, ReadRequest>,
  prefetched: T['State'] | null,
): Promise<T['State']> {
  const { caller } = request
  if (prefetched === null) throw new ResourceNotFound(resource.kind)
  if (resource.isWhole(prefetched)) return prefetched
  if (!resource.isVisible(prefetched, caller)) throw new ResourceNotFound(resource.kind)
  const { id, left_out_bytes: bytes = 0 } = prefetched
  const reading = () => withRetries(() => resource.read(database.db, id, viewerParameters(caller)))
  const state = await bounded(request, bytes, reading)
  if (state === undefined) throw new ResourceNotFound(resource.kind)
  return state
}

/**
 * Answers the stored resource: its version, and its snapshot or what `textOf` makes of the row and the state. If it changed since `prefetched`, reads all
 * again in one database snapshot. Throws `ResourceNotFound`, `SnapshotTooLarge`, what the bounds throw, and database errors.
 */
export async function readResource<T extends ResourceTypes>(
  job: Job<T, ReadRequest>,
  prefetched: T['State'],
  textOf: (row: T['Row'], state: T['State']) => AnswerText = row => job.resource.snapshot(row),
): Promise<{ snapshot: AnswerText; version: number }> {
  const { database, resource, request } = job
  const { caller, snapshotBytesMax } = request
  // The caller was authenticated by the previous statement, and no body was awaited since: the token is not checked again.
  const viewer = { ...viewerParameters(caller), token: null }
  const state = await wholeState(job, prefetched)
  requireShown(state)
  const bytes = resource.definitionBytes(state, null)
  const row = await runStatement(database, resource.reading(state, viewer), request, { bytes })
  if (row === undefined) return await bounded(request, bytes, readAgain)
  return { snapshot: textOf(row, state), version: row.version }

  function requireShown(state: T['State'] | undefined): asserts state is T['State'] {
    if (state === undefined || !resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
    resource.requireAnswerable(state, snapshotBytesMax)
  }

  async function readAgain() {
    return await inOneSnapshot(database, async trx => {
      const state = await resource.read(trx, prefetched.id, viewer)
      requireShown(state)
      const row = await resource.reading(state, viewer)(trx)
      if (row === undefined) throw new Error(`${resource.kind} ${prefetched.id} changed within one snapshot`)
      return { snapshot: textOf(row, state), version: row.version }
    })
  }
}

/** Runs work in one database snapshot, so that state and row are of the same moment. */
export async function inOneSnapshot<Result>(
  { db }: Pick<Database, 'db'>,
  work: (trx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(work)
}
