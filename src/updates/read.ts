import { type Kysely, sql, type Transaction } from 'kysely'
import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { Forbidden, InvalidRequest, Refused, ResourceNotFound, VersionGone } from '../errors.js'
import type {
  Decision,
  Job,
  PastValues,
  ReadRequest,
  ResourceTypes,
  Restoration,
  VersionedResource,
  VersionedState,
} from './resource.js'

/**
 * Returns an earlier version of a resource, with related records as they are now. The right to read earlier versions must have been checked. `notes`
 * has a warning about related records that the caller cannot see. Throws `ResourceNotFound`, `Refused`, `VersionGone` and `SnapshotTooLarge`.
 */
export async function answerPast<T extends ResourceTypes>(
  { database, resource, request }: Job<T, ReadRequest>,
  id: number,
  version = 0, // no version has the number 0
) {
  const viewer = viewerParameters(request.caller)
  return await inOneSnapshot(database, async trx => {
    const state = await readState(trx, resource, id, viewer)
    const past = await resource.past(trx, state, await readPast(trx, resource.kind, state, version), viewer)
    const snapshot = await resource.render(trx, past.state, request.snapshotBytesMax, true)
    return { snapshot, version, notes: past.notes }
  })
}

/** Reads a resource for a viewer. Throws `ResourceNotFound`. */
export async function readState<T extends ResourceTypes>(
  db: Executor,
  { kind, reads }: VersionedResource<T>,
  id: number,
  viewer: ViewerParameters,
): Promise<T['State']> {
  const row = await reads.read.first(db, { ...viewer, id })
  if (row === undefined) throw new ResourceNotFound(kind)
  return row.state
}

/** Runs work in one database snapshot, so that all reads see the same data. */
export async function inOneSnapshot<Result>(
  { db }: Pick<Database, 'db'>,
  work: (trx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(work)
}

/**
 * Returns the values that fields had at `version`, for all fields that have changed since then. Takes each value from the first audit row after
 * `version` that changes the field. Throws `Refused` and `VersionGone`.
 */
export async function readPast(
  db: Kysely<Tables>,
  kind: ResourceKind,
  { id, version: current }: VersionedState,
  version: number,
): Promise<PastValues> {
  const name = `${kind === 'persona' ? 'agent' : 'tool'} ${id}`
  const rows = db.selectFrom('audit as a').where('a.resource_kind', '=', kind).where('a.resource_id', '=', id)
  if (version < 1 || version > current)
    throw new Refused('VERSION_NOT_FOUND', `No such version. The newest version of ${name} is ${current}.`)
  const first = rows.select('a.version_before').orderBy('a.version_after').limit(1)
  const changed = rows
    .where('a.version_after', '>', version)
    .where(first, '<=', version)
    .crossJoinLateral(({ fn }) => fn<{ key: string; value: unknown }>('json_each', ['a.difference']).as('change'))
    .select(['change.key', sql`change.value -> 'from'`.as('from')])
    .distinctOn('change.key')
    .orderBy('change.key')
    .orderBy('a.version_after')
  // One statement reads everything, because rows can be pruned at any time.
  const pruned = rows.where('a.version_after', '>', version).where('a.difference', 'is', null)
  const newest = pruned.select('a.version_after').orderBy('a.version_after', 'desc').limit(1)
  const found = db.selectNoFrom([first.as('oldest'), newest.as('to'), jsonArrayFrom(changed).as('changes')])
  const { oldest, to, changes } = await found.executeTakeFirstOrThrow()
  const kept_from = oldest ?? current
  if (version < kept_from)
    throw new VersionGone(
      'pruned',
      `Versions of ${name} before version ${kept_from} are no longer kept. The limit is AUDIT_RETENTION_DAYS.`,
    )
  const values: PastValues = Object.fromEntries(changes.map(({ key, from }) => [key, from]))
  if (values.removed !== undefined)
    throw new VersionGone(
      'deleted',
      'At that version, this id belonged to another record, which has been deleted. Choose a later version.',
    )
  // A stored tool always has a name. An empty name means that the tool did not exist at that version.
  if (values.deleted === true || values.name === '')
    throw new Refused('VERSION_NOT_FOUND', `At that version, ${name} was deleted. Choose another version.`)
  if (to === null) return values
  const message = `Versions of ${name} before version ${to} are no longer kept. The limits are HISTORY_VERSIONS_MAX versions and 64 MiB.`
  throw new VersionGone('pruned', message)
}

/** Returns the decision of a restoration. `left` describes the fields that are not restored. With strict handling, throws `Forbidden` for them. */
export function restored<D extends Decision, Left extends ReadonlyMap<string, string>>(
  decision: D,
  { fields: { version }, strict }: Restoration,
  left: Left,
) {
  if (strict && left.size > 0)
    throw new Forbidden(
      `You cannot restore ${[...left.values()].join(' and ')}. To restore the other fields, leave out Prefer: handling=strict.`,
    )
  return { ...decision, left, command: `restore --version ${version}` }
}

/** Makes each fault of a restoration refer to `version`, the only field of the request body. The message then begins with the original `loc`. */
export function inVersion(error: unknown): unknown {
  if (!(error instanceof InvalidRequest)) return error
  const loc = ['body', 'version']
  return new InvalidRequest(
    error.faults.map(({ loc: [, ...place], msg, type }) => ({ loc, msg: `${place.join('.')}: ${msg}`, type })),
  )
}
