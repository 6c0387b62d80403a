import type { Transaction } from 'kysely'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import { anyOf, itemsOf, lit, member, on, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { ResourceNotFound, SnapshotTooLarge, VersionGone, VersionNotFound } from '../errors.js'
import { changesOf } from './audit-rows.js'
import { inOneSnapshot } from './read.js'
import type { Job, Past, ReadRequest, ResourceTypes } from './resource.js'

/* Earlier versions. They are rebuilt from the current row and the old values in the audit rows since, so they reach as far back as these. */

const NOUN = { persona: 'agent', tool: 'tool' } as const

/** The setting that limits how many old contents are kept. `ROW_SETTINGS` does so for whole audit rows. */
const CONTENT_SETTINGS = 'HISTORY_VERSIONS_MAX'
const ROW_SETTINGS = 'AUDIT_RETENTION_DAYS'

/**
 * Answers an earlier version to a caller who may update the resource now. Related records are shown as they are now, if the caller may see
 * them; `notes` names what is left out. Throws `ResourceNotFound`, `Forbidden`, `VersionNotFound`, `VersionGone`, `SnapshotTooLarge`.
 */
export async function answerPast<T extends ResourceTypes>(
  job: Job<T, ReadRequest>,
  id: number,
  version: number | undefined,
  isRead = false,
): Promise<{ snapshot: string; version: number; notes: string[] }> {
  const { snapshotBytesMax } = job.request
  const requireSize = (bytes: number) => {
    if (bytes > snapshotBytesMax) throw new SnapshotTooLarge(bytes, snapshotBytesMax)
  }
  return await inSnapshot(job, id, async (trx, state, viewer) => {
    const past = await readPast(trx, job.resource.kind, id, version)
    const { text: snapshot, notes } = await job.resource.pastSnapshot(trx, state, past, viewer, requireSize, isRead)
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

/** Reads an earlier version. Throws `ResourceNotFound`, `VersionNotFound` and `VersionGone`. */
export async function readPast(
  executor: Executor,
  kind: ResourceKind,
  id: number,
  version: number | undefined,
): Promise<Past> {
  const [row] = await pastStatements[kind].run(executor, { id, version: version ?? 0 })
  if (row === undefined) throw new ResourceNotFound(kind)
  const { current, kept_from, is_kept, pruned_to, values } = row
  const name = `${NOUN[kind]} ${id}`
  if (version === undefined || version < 1 || version > current)
    throw new VersionNotFound(`The versions of ${name} go to ${current}.`)
  if (!is_kept) {
    if (kept_from === 0) throw new VersionNotFound(`There was no ${name} in that version.`)
    throw new VersionGone('pruned', `The history of ${name} is kept from version ${kept_from} on (${ROW_SETTINGS}).`)
  }
  if (values.removed !== undefined)
    throw new VersionGone('deleted', `The ${name} of that time was deleted; another one has its id now.`)
  // Every existing resource has a name. A tool without one was removed at that time and created again later.
  if (values.deleted === true || values.name === '')
    throw new VersionNotFound(`There was no ${name} then: it had been deleted, and came back later.`)
  if (pruned_to !== null) {
    const before = `the contents before version ${pruned_to} are no longer kept (${CONTENT_SETTINGS})`
    throw new VersionGone('pruned', `Of ${name} ${before}.`)
  }
  return { version, values }
}

interface PastRow {
  current: number
  /** The oldest version that the audit rows reach; 0 if they are complete. */
  kept_from: number
  /** True if an audit row or the pruning anchor has the version. */
  is_kept: boolean
  values: Record<string, unknown>
  /** The oldest version that can be shown, because differences up to it were pruned; null if all can be shown. */
  pruned_to: number | null
}

/** SQL: the old value of a field is in its first change since. Field names are scanned first, so that few differences are read. */
function pastStatement(kind: ResourceKind) {
  const types = { id: 'integer', version: 'integer' }
  return statement<{ id: number; version: number }, PastRow>(`${kind}_past`, types, param => {
    const version = param('version')
    const row = on<{ r: 'persona' }>()
    const { or, ref, exists } = row
    const changes = () => changesOf(kind, ref('r.id'))
    const since = () => changes().where('a.version_after', '>', version)
    const first = since()
      .crossJoinLateral(({ ref }) => itemsOf(ref('a.fields'), 'field'))
      .where('a.difference', 'is not', null)
      .select(['field.id', 'a.version_after'])
      .distinctOn('field.id')
      .orderBy('field.id')
      .orderBy('a.version_after')
    const told = queries()
      .selectFrom(first.as('first'))
      .select(({ fn }) => ['first.version_after', fn.agg<string[]>('array_agg', ['first.id']).as('fields')])
      .groupBy('first.version_after')
    const values = changes()
      .innerJoin(told.as('told'), 'told.version_after', 'a.version_after')
      .crossJoinLateral(({ fn }) => fn<{ key: string; value: unknown }>('json_each', ['a.difference']).as('change'))
      .where(({ eb, ref }) => eb('change.key', '=', anyOf(ref('told.fields'))))
      .select(({ fn, ref }) =>
        fn
          .agg<PastRow['values']>('json_object_agg', [ref('change.key'), member(ref('change.value'), lit('from'))])
          .as('values'),
      )
    const pruned = since()
      .where('a.difference', 'is', null)
      .select(({ fn }) => fn.max('a.version_after').as('pruned_to'))
    return queries()
      .selectFrom(`${kind as 'persona'} as r`) // a tool has these columns too
      .select(({ fn }) => [
        ...(['r.version as current', 'r.audit_anchor_version as kept_from'] as const),
        or([row('r.audit_anchor_version', '=', version), exists(changes().where('a.version_after', '=', version))]).as(
          'is_kept',
        ),
        fn.coalesce(values, lit('{}').$castTo<PastRow['values']>()).as('values'),
        pruned.as('pruned_to'),
      ])
      .where('r.id', '=', param('id'))
  })
}

export const pastStatements = { persona: pastStatement('persona'), tool: pastStatement('tool') }
