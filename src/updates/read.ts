import type { Transaction } from 'kysely'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { ResourceNotFound } from '../errors.js'
import type { Job, ReadRequest, ResourceTypes } from './resource.js'

/** Answers the stored resource as it was read with the authentication. Throws `ResourceNotFound`, `SnapshotTooLarge` and database errors. */
export async function readResource<T extends ResourceTypes>(
  { database, resource, request }: Job<T, ReadRequest>,
  state: T['State'] | null,
): Promise<{ snapshot: string; version: number }> {
  if (state === null || !resource.isVisible(state, request.caller)) throw new ResourceNotFound(resource.kind)
  resource.requireAnswerable(state, request.snapshotBytesMax)
  return { snapshot: await resource.snapshot(database.db, state, true), version: state.version }
}

/** Runs work in one database snapshot, so that all that it reads is of the same moment. */
export async function inOneSnapshot<Result>(
  { db }: Pick<Database, 'db'>,
  work: (trx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(work)
}
