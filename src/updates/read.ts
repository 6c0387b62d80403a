import type { Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { RowQuery, SendHooks } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { Database } from '../db/tables.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import { ResourceNotFound, SnapshotTooLarge } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { type AsOf, readPastOf } from './past.js'
import type { ReadRequest, ResourceTypes, ShowPast, VersionedResource } from './resource.js'

/** More than this is read by a statement of its own, not in a batch with others' rows, */
export const BATCHED_BYTES_MAX = 128 * 1024
/** and more than this by a few requests at a time. */
const EXPENSIVE_BYTES = 1024 * 1024

/** Runs a statement whose answer has stored definitions of so many bytes: in a batch where they are small and it may. */
export async function runShown<Row>(
  database: ServiceDatabase,
  query: RowQuery<Row>,
  request: Pick<ReadRequest, 'caller' | 'bounds'>,
  asked: { bytes: number; isBatchable: boolean; executor: Executor; hooks?: SendHooks | undefined },
): Promise<Row | undefined> {
  const { bytes, isBatchable, executor, hooks } = asked
  if (isBatchable && bytes <= BATCHED_BYTES_MAX) return await query.batched(database, executor, hooks)
  return await bounded(request, bytes, () => query.single(executor, hooks))
}

/** Runs work that reads so many bytes, when its token may. */
async function bounded<Result>(
  { caller, bounds }: Pick<ReadRequest, 'caller' | 'bounds'>,
  bytes: number,
  work: () => Promise<Result>,
): Promise<Result> {
  return bytes > EXPENSIVE_BYTES ? await bounds.expensive(String(caller.token.id), work) : await work()
}

/** The prefetched state, or the whole one where large texts were left out. Throws `ResourceNotFound`, `Unavailable`. */
export async function wholeState<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  prefetched: T['State'] | null,
  request: Pick<ReadRequest, 'caller' | 'bounds'>,
): Promise<T['State']> {
  const { caller } = request
  if (prefetched === null) throw new ResourceNotFound(resource.kind)
  if (resource.isWhole(prefetched)) return prefetched
  if (!resource.isVisible(prefetched, caller)) throw new ResourceNotFound(resource.kind)
  const { id, left_out_bytes: bytes = 0 } = prefetched
  try {
    const reading = () => withRetries(() => resource.read(database.db, id, viewerParameters(caller)))
    const state = await bounded(request, bytes, reading)
    if (state === undefined) throw new ResourceNotFound(resource.kind)
    return state
  } catch (error) {
    throw unavailableFor(error) ?? error
  }
}

/**
 * Answers the stored resource: its snapshot, or what `textOf` makes of it, and its version. Where somebody wrote since `prefetched`, all is
 * read again in one snapshot of the database. Throws `ResourceNotFound`, `SnapshotTooLarge`, `Unavailable`, what the bounds throw.
 */
export async function readResource<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  prefetched: T['State'],
  request: ReadRequest,
  textOf: (row: T['Row']) => AnswerText = row => resource.snapshot(row),
): Promise<{ snapshot: AnswerText; version: number }> {
  const { caller, snapshotBytesMax } = request
  // No body lies between the statement that established the caller and this: it need not be done again.
  const viewer = { ...viewerParameters(caller), token: null }
  try {
    const state = await wholeState(database, resource, prefetched, request)
    requireShown(state)
    const bytes = resource.definitionBytes(state, null)
    const asked = { bytes, isBatchable: true, executor: database.db }
    const row = await runShown(database, resource.reading(state, viewer), request, asked)
    const shown = row ?? (await bounded(request, bytes, readAgain))
    return { snapshot: textOf(shown), version: shown.version }
  } catch (error) {
    throw unavailableFor(error) ?? error
  }

  function requireShown(state: T['State'] | undefined): asserts state is T['State'] {
    if (state === undefined || !resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
    resource.requireAnswerable(state, snapshotBytesMax)
  }

  async function readAgain(): Promise<T['Row']> {
    return await inOneSnapshot(database, async trx => {
      const state = await resource.read(trx, prefetched.id, viewer)
      requireShown(state)
      const row = await resource.reading(state, viewer).single(trx)
      if (row === undefined) throw new Error(`${resource.kind} ${prefetched.id} changed within one snapshot`)
      return row
    })
  }
}

/**
 * Answers a resource as it was, to callers who may update it now; names of labels, people and document sets are those of now. Throws also
 * `Forbidden`, `VersionNotFound`, `VersionGone`, and `InvalidRequest` for a time in the future.
 */
export async function readPast<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  id: number,
  asOf: AsOf,
  { caller, bounds, snapshotBytesMax }: ReadRequest,
  show: ShowPast<T> = resource.pastSnapshot,
): Promise<{ snapshot: AnswerText; version: number; notes: string[] }> {
  const viewer = viewerParameters(caller)
  const requireSize = (bytes: number) => {
    if (bytes > snapshotBytesMax) throw new SnapshotTooLarge(bytes, snapshotBytesMax)
  }
  const reading = () =>
    inOneSnapshot(database, async trx => {
      const state = await resource.read(trx, id, viewer)
      if (state === undefined) throw new ResourceNotFound(resource.kind)
      resource.requireHistory(state, caller)
      const past = await readPastOf(trx, resource.kind, id, asOf)
      const { text: snapshot, notes } = await show(trx, state, past, viewer, requireSize)
      return { version: past.version, snapshot, notes }
    })
  try {
    return await bounds.expensive(String(caller.token.id), reading)
  } catch (error) {
    throw unavailableFor(error) ?? error
  }
}

/** Runs work on one snapshot of the database: what is stored, and what differs from it, must be of one moment. */
export async function inOneSnapshot<Result>(
  { db }: Pick<ServiceDatabase, 'db'>,
  work: (trx: Transaction<Database>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(work)
}
