import { anyOf, itemsOf, lit, member, NOW, on, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { ResourceKind } from '../db/tables.js'
import { InvalidRequest, ResourceNotFound, VersionGone, VersionNotFound } from '../errors.js'
import { changesOf } from './audit-rows.js'

/* The past: what is stored now, with what the audit rows since say that each field was before. It reaches as far as they do. */

/**
 * Which state is asked for: a version (undefined: one that no row can have), or what was stored at a time (RFC 3339). `shownAt`: the time of
 * what a version shows besides its own content, where that is not the time at which it was made.
 */
export type AsOf = { version: number | undefined; shownAt?: string | null } | { at: string }

/** An earlier version, and what the fields that changed since were, by name, as audit rows have them. */
export interface Past {
  id: number
  version: number
  /** The time asked for; of a version, when it was made. UTC with microseconds. */
  at: string
  values: Readonly<Record<string, unknown>>
}

const NOUN = { persona: 'agent', tool: 'tool' } as const

/** Some resources as they were, in the order of their ids; of the others why nothing can be shown. */
export interface Pasts {
  pasts: Past[]
  lost: { id: number; reason: VersionGone['reason'] }[]
}

/** The settings by which contents and whole audit rows are pruned. */
export const CONTENT_SETTINGS = 'HISTORY_VERSIONS_MAX'
const ROW_SETTINGS = 'AUDIT_RETENTION_DAYS'

/** One resource as it was. Throws `VersionNotFound`, `VersionGone`, `InvalidRequest` for a time to come. */
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

/** Resources as they were at a time. */
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
    return new VersionGone('pruned', `Of ${name} the history is kept from version ${kept_from} on (${ROW_SETTINGS}).`)
  }
  if (values.removed !== undefined) {
    return new VersionGone('deleted', `The ${name} of that time was deleted, and made anew since.`)
  }
  // Nothing that is there is without a name: so is a tool between its removal and its being made anew.
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
  /** The oldest version that the audit trail still tells of; 0 when it tells of all. */
  kept_from: number
  is_future: boolean
  is_asked_later: boolean
  /** The version, and when it was made; null where neither a row nor the anchor of the pruned ones tells. */
  version: number | null
  at: string | null
  values: Record<string, unknown>
  /** The newest version since whose difference is no longer kept, which is the oldest that can be shown; null where all are. */
  pruned_to: number | null
}

interface PastParameters {
  ids: number[]
  version: number | null
  at: string | null
}

/** By version or by time. The first change of each field since tells what it was; field names alone tell which, so few contents are read. */
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

/** The statements for the golden file. */
export const pastStatements = { persona: pastStatement('persona'), tool: pastStatement('tool') }
