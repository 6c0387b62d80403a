import type { Transaction } from 'kysely'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { ResourceNotFound, SnapshotTooLarge } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { type AsOf, readPastOf } from './past.js'
import { inOneSnapshot } from './read.js'
import type { Job, ReadRequest, ResourceTypes, ShowPast } from './resource.js'

/**
 * Reads an earlier version for a caller who may update the resource now. Names of labels, people and document sets are current. Throws also
 * `Forbidden`, `VersionNotFound`, `VersionGone`, and `InvalidRequest` for a time in the future.
 */
export async function readPast<T extends ResourceTypes>(
  job: Job<T, ReadRequest>,
  id: number,
  asOf: AsOf,
  show: ShowPast<T> = job.resource.pastSnapshot,
): Promise<{ snapshot: AnswerText; version: number; notes: string[] }> {
  const { snapshotBytesMax } = job.request
  const requireSize = (bytes: number) => {
    if (bytes > snapshotBytesMax) throw new SnapshotTooLarge(bytes, snapshotBytesMax)
  }
  return await inSnapshot(job, id, async (trx, state, viewer) => {
    const past = await readPastOf(trx, job.resource.kind, id, asOf)
    const { text: snapshot, notes } = await show(trx, state, past, viewer, requireSize)
    return { version: past.version, snapshot, notes }
  })
}

/** Runs `read` in one database snapshot if the caller may edit the resource now. Throws `ResourceNotFound`, `Forbidden`. */
export async function inSnapshot<T extends ResourceTypes, Result>(
  { database, resource, request: { caller, bounds } }: Job<T, ReadRequest>,
  id: number,
  read: (trx: Transaction<Tables>, state: T['State'], viewer: ViewerParameters) => Promise<Result>,
): Promise<Result> {
  const viewer = viewerParameters(caller)
  const reading = () =>
    inOneSnapshot(database, async trx => {
      const state = await resource.read(trx, id, viewer)
      if (state === undefined) throw new ResourceNotFound(resource.kind)
      resource.requireHistory(state, caller)
      return await read(trx, state, viewer)
    })
  return await bounds.expensive(String(caller.token.id), reading)
}
