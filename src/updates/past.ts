import { sql } from 'kysely'
import { type Executor, statement } from '../db/statements/statement.js'
import type { ResourceKind } from '../db/tables.js'
import { InvalidRequest, ResourceNotFound, VersionGone, VersionNotFound } from '../errors.js'

/*
 * What an agent or tool was in an earlier version: what is stored now, with what the audit rows since then say that each
 * field was before. Nothing else is kept of the past, so it reaches back as far as the differences are kept.
 */

/** Which state is asked for: a version (undefined: one that no row can have), or what was stored at a time (RFC 3339). */
export type AsOf = { version: number | undefined } | { at: string }

/** An earlier version, and what the fields that changed since were, by name, as audit rows have them. */
export interface Past {
  id: number
  version: number
  /** The time asked for; of a version, when it was made. UTC with microseconds. */
  at: string
  values: Readonly<Record<string, unknown>>
}

const NOUN = { persona: 'agent', tool: 'tool' } as const

/** One resource as it was. Throws `VersionNotFound`, `VersionGone`, `InvalidRequest`. */
export async function readPastOf(executor: Executor, kind: ResourceKind, id: number, asOf: AsOf): Promise<Past> {
  const [past] = await readPasts(executor, kind, [id], asOf)
  if (past === undefined) throw new ResourceNotFound(kind)
  return past
}

/** Those of the resources that still exist, each as it was, in the order of their ids. Throws as `readPastOf`. */
export async function readPasts(
  executor: Executor,
  kind: ResourceKind,
  ids: readonly number[],
  asOf: AsOf,
): Promise<Past[]> {
  const asked = { version: null, at: null, ...('version' in asOf ? { version: asOf.version ?? 0 } : asOf) }
  const rows = await pastStatements[kind].run(executor, { ids: [...ids], ...asked })
  return rows.map(row => pastOf(kind, { ...row, at: asked.at ?? row.at }))
}

function pastOf(kind: ResourceKind, row: PastRow): Past {
  const { id, current, kept_from, is_future, version, at, values } = row
  const name = `${NOUN[kind]} ${id}`
  if (is_future)
    throw new InvalidRequest([{ loc: ['query', 'at'], msg: 'Input should be in the past', type: 'datetime_past' }])
  if (version === null || at === null) {
    if (row.is_asked_later) throw new VersionNotFound(`The versions of ${name} go to ${current}.`)
    if (kept_from === 0) throw new VersionNotFound(`There was no ${name} at that time.`)
    throw new VersionGone('pruned', `Of ${name} the history is kept from version ${kept_from} on.`)
  }
  if (values.removed !== undefined) {
    throw new VersionGone('deleted', `The ${name} of that time was deleted, and made anew since.`)
  }
  if (row.is_pruned) throw new VersionGone('pruned', `Of ${name} the content of version ${version} is no longer kept.`)
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
  /** Whether a difference since is no longer kept. */
  is_pruned: boolean
}

interface PastParameters {
  ids: number[]
  version: number | null
  at: string | null
}

/** By version or by time: the other is null. Of each field the first change since tells what it was. */
function pastStatement(kind: ResourceKind) {
  return statement<PastParameters, PastRow>(`${kind}_past`, param => {
    const version = sql`${param('version')}::integer`
    const at = sql`${param('at')}::timestamptz`
    const rows = sql`audit a where a.resource_kind = ${sql.lit(kind)} and a.resource_id = r.id`
    return sql`
    select r.id, r.version as current, r.audit_anchor_version as kept_from,
      coalesce(${at} > clock_timestamp(), false) as is_future,
      coalesce(${version} > r.version or ${version} < 1, false) as is_asked_later,
      made.version, made.at, coalesce(since.values, '{}') as values, coalesce(since.is_pruned, false) as is_pruned
    from ${sql.raw(kind)} r
    left join lateral (
      (select a.version_after as version, a.at from ${rows} and (a.version_after = ${version} or a.at <= ${at})
       order by a.version_after desc limit 1)
      union all
      select r.audit_anchor_version, r.audit_anchor_at
      where r.audit_anchor_version > 0 and (r.audit_anchor_version = ${version} or r.audit_anchor_at <= ${at})
      order by 1 desc limit 1
    ) made on true
    left join lateral (
      select
        (select json_object_agg(first.field, first.value) from (
          select distinct on (change.key) change.key as field, change.value -> 'from' as value
          from ${sql`audit a cross join lateral json_each(a.difference) change
          where a.resource_kind = ${sql.lit(kind)} and a.resource_id = r.id`} and a.version_after > made.version
          order by change.key, a.version_after) first) as values,
        exists (select from ${rows} and a.version_after > made.version and a.difference is null) as is_pruned
    ) since on made.version is not null
    where r.id = any(${param('ids')}::integer[])
    order by r.id`
  })
}

/** The statements for the golden file. */
export const pastStatements = { persona: pastStatement('persona'), tool: pastStatement('tool') }
