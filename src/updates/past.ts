import { anyOf, itemsOf, lit, member, NOW, on, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { ResourceKind } from '../db/tables.js'
import { InvalidRequest, ResourceNotFound, VersionGone, VersionNotFound } from '../errors.js'
import { changesOf } from './audit-rows.js'

/* Earlier versions. They are rebuilt from the current row and the old values in the audit rows since, so they reach as far back as these. */

/**
 * Selects a state by its version (undefined: a version that cannot exist) or by a time (RFC 3339). `shownAt` is the time for data shown
 * next to the version's own content, if that is not the time of the version.
 */
export type AsOf = { version: number | undefined; shownAt?: string | null } | { at: string }

/** An earlier version, and the old value of each field that changed since, as in the audit rows. */
export interface Past {
  id: number
  version: number
  /** The requested time, or the time at which the requested version was made. UTC with microseconds. */
  at: string
  values: Readonly<Record<string, unknown>>
}

const NOUN = { persona: 'agent', tool: 'tool' } as const

/** Earlier states of several resources, sorted by id. `lost` has the resources that cannot be shown. */
export interface Pasts {
  pasts: Past[]
  lost: { id: number; reason: VersionGone['reason'] }[]
}

/** The setting that limits how many old contents are kept. `ROW_SETTINGS` does so for whole audit rows. */
export const CONTENT_SETTINGS = 'HISTORY_VERSIONS_MAX'
const ROW_SETTINGS = 'AUDIT_RETENTION_DAYS'

/** Reads one earlier state. Throws `ResourceNotFound`, `VersionNotFound`, `VersionGone`, and `InvalidRequest` for a time in the future. */
export async function readPastOf(executor: Executor, kind: ResourceKind, id: number, asOf: AsOf): Promise<Past> {
  const [row] = await readRows(executor, kind, [id], asOf)
  if (row === undefined) throw new ResourceNotFound(kind)
  if (row.is_future) {
    throw new InvalidRequest([{ loc: ['query', 'at'], msg: 'Input should be in the past', type: 'datetime_past' }])
  }
  const past = pastOf(kind, row)
  if (past instanceof Error) throw past
  return past
}

/** Reads the states of several resources at a time. */
export async function readPasts(
  executor: Executor,
  kind: ResourceKind,
  ids: readonly number[],
  at: string,
): Promise<Pasts> {
  const rows = await readRows(executor, kind, ids, { at })
  const found = rows.map(row => ({ id: row.id, past: pastOf(kind, row) }))
  const deleted = ids.filter(id => !rows.some(row => row.id === id))
  return {
    pasts: found.flatMap(({ past }) => (past instanceof Error ? [] : [past])),
    lost: [
      ...found.flatMap(({ id, past }) => (past instanceof Error ? [{ id, reason: reasonOf(past) }] : [])),
      ...deleted.map(id => ({ id, reason: 'deleted' as const })),
    ],
  }
}

function reasonOf(error: VersionGone | VersionNotFound): VersionGone['reason'] {
  return error instanceof VersionGone ? error.reason : 'deleted'
}

async function readRows(
  executor: Executor,
  kind: ResourceKind,
  ids: readonly number[],
  asOf: AsOf,
): Promise<PastRow[]> {
  const [version, at, shownAt] = 'version' in asOf ? [asOf.version ?? 0, null, asOf.shownAt] : [null, asOf.at, asOf.at]
  const rows = await pastStatements[kind].run(executor, { ids: [...ids], version, at })
  return rows.map(row => ({ ...row, at: shownAt ?? row.at }))
}

function pastOf(kind: ResourceKind, row: PastRow): Past | VersionNotFound | VersionGone {
  const { id, current, kept_from, pruned_to, version, at, values } = row
  const name = `${NOUN[kind]} ${id}`
  if (version === null || at === null) {
    if (row.is_asked_later) return new VersionNotFound(`The versions of ${name} go to ${current}.`)
    if (kept_from === 0) return new VersionNotFound(`There was no ${name} at that time.`)
    return new VersionGone('pruned', `The history of ${name} is kept from version ${kept_from} on (${ROW_SETTINGS}).`)
  }
  if (values.removed !== undefined) {
    return new VersionGone('deleted', `The ${name} of that time was deleted; another one has its id now.`)
  }
  // Every existing resource has a name. A tool without one was removed at that time and created again later.
  if (values.deleted === true || values.name === '') {
    return new VersionNotFound(`There was no ${name} then: it had been deleted, and came back later.`)
  }
  if (pruned_to !== null) {
    const before = `the contents before version ${pruned_to} are no longer kept (${CONTENT_SETTINGS})`
    return new VersionGone('pruned', `Of ${name} ${before}.`)
  }
  return { id, version, at, values }
}

interface PastRow {
  id: number
  current: number
  /** The oldest version that the audit rows reach; 0 if they are complete. */
  kept_from: number
  is_future: boolean
  is_asked_later: boolean
  /** The version and its time; null if neither an audit row nor the pruning anchor has them. */
  version: number | null
  at: string | null
  values: Record<string, unknown>
  /** The oldest version that can be shown, because differences up to it were pruned; null if all can be shown. */
  pruned_to: number | null
}

interface PastParameters {
  ids: number[]
  version: number | null
  at: string | null
}

/**
 * SQL: finds the version by number or time. The old value of a field is in its first change since. Field names are scanned first, so that
 * few differences are read.
 */
function pastStatement(kind: ResourceKind) {
  const types = { ids: 'integer[]', version: 'integer', at: 'timestamptz' }
  return statement<PastParameters, PastRow>(`${kind}_past`, types, param => {
    const [version, at] = [param('version'), param('at')]
    const row = on<{ r: 'persona'; made: { version: number } }>()
    const { or, ref, exists, not } = row
    const changes = () => changesOf(kind, ref('r.id'))
    const since = () => changes().where('a.version_after', '>', ref('made.version'))
    const newest = changes()
      .select(['a.version_after as version', 'a.at'])
      .where(eb => eb.or([eb('a.version_after', '=', version), eb('a.at', '<=', at)]))
      .orderBy('a.version_after', 'desc')
      .limit(lit(1))
    const anchor = queries()
      .selectNoFrom([ref('r.audit_anchor_version').as('version'), ref('r.audit_anchor_at').$notNull().as('at')])
      .where(row('r.audit_anchor_version', '>', lit(0)))
      .where(or([row('r.audit_anchor_version', '=', version), row('r.audit_anchor_at', '<=', at)]))
    const made = queries().selectFrom(newest.as('newest')).selectAll().unionAll(anchor).orderBy('version', 'desc')
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
    const later = row.selectFrom('audit').where('at', '>=', at)
    return queries()
      .selectFrom(`${kind as 'persona'} as r`) // a tool has these columns too
      .leftJoinLateral(made.limit(lit(1)).as('made'), join => join.onTrue())
      .leftJoinLateral(
        queries()
          .selectNoFrom([values.as('values'), pruned.as('pruned_to')])
          .as('since'),
        join => join.on('made.version', 'is not', null),
      )
      .select(({ eb, fn }) => [
        ...([
          'r.id',
          'r.version as current',
          'r.audit_anchor_version as kept_from',
          'made.version',
          'made.at',
        ] as const),
        eb
          .case()
          .when(at, '>', NOW)
          .then(not(exists(later)))
          .else(lit(false))
          .end()
          .as('is_future'),
        fn
          .coalesce(or([row(version, '>', ref('r.version')), row(version, '<', lit(1))]), lit(false))
          .as('is_asked_later'),
        fn.coalesce('since.values', lit('{}').$castTo<PastRow['values']>()).as('values'),
        'since.pruned_to',
      ])
      .where('r.id', '=', anyOf(param('ids')))
      .orderBy('r.id')
  })
}

export const pastStatements = { persona: pastStatement('persona'), tool: pastStatement('tool') }
