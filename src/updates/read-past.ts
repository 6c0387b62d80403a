import { viewerParameters } from '../auth/viewer.js'
import { unavailableFor } from '../db/unavailable.js'
import { ResourceNotFound, SnapshotTooLarge } from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { type AsOf, readPastOf } from './past.js'
import { inOneSnapshot } from './read.js'
import type { Job, ReadRequest, ResourceTypes, ShowPast } from './resource.js'

/**
 * Answers a resource as it was, to callers who may update it now; names of labels, people and document sets are those of now. Throws also
 * `Forbidden`, `VersionNotFound`, `VersionGone`, and `InvalidRequest` for a time in the future.
 */
export async function readPast<T extends ResourceTypes>(
  { database, resource, request: { caller, bounds, snapshotBytesMax } }: Job<T, ReadRequest>,
  id: number,
  asOf: AsOf,
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
