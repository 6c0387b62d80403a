import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { type FieldChange, VersionGone, VersionNotFound } from '../errors.js'
import type { Change } from './audit.js'
import { sameValue } from './field-table.js'
import { readPast } from './past.js'
import type { UpdateRequest, VersionedState } from './resource.js'

/**
 * `changed` has the last change of each field since a version; null if that is no longer known. `applied` is the later version that stored
 * the content of this same request, if one did.
 */
interface Since {
  changed: FieldChange[] | null
  applied: number | 'none' | 'unknown'
}

const NEVER: Since = { changed: null, applied: 'none' }
const UNKNOWN: Since = { changed: null, applied: 'unknown' }

/**
 * Reads what changed after version `since`. The caller's own update was stored, and only its answer lost, if the row after `since` is
 * theirs and the state after it has every value that the request asks for (`asked`). An undefined value cannot be compared.
 */
export async function changesSince(
  db: Kysely<Tables>,
  { kind, actor }: Pick<UpdateRequest, 'kind' | 'actor'>,
  { id, version }: Pick<VersionedState, 'id' | 'version'>,
  since: number | undefined,
  asked: readonly Change[],
): Promise<Since> {
  if (since === undefined || since >= version) return NEVER
  const rows = await db
    .selectFrom('audit')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(CHANGES_READ_AT_MOST)
    .select(['version_before', 'version_after', 'fields', 'actor', 'actor_id', 'at'])
    .execute()
  const [first] = rows
  if (first?.version_before !== since || rows.length === CHANGES_READ_AT_MOST) return UNKNOWN
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.actor, at: row.at })
  const changed = [...last.values()]
  if (actor.id === null || first.actor_id !== actor.id) return { changed, applied: 'none' }
  try {
    const { values } = await readPast(db, kind, id, first.version_after)
    const known = asked.filter(({ to }) => to !== undefined)
    const wasStored = known.every(({ field, from, to }) =>
      sameValue(to, Object.hasOwn(values, field) ? values[field] : from),
    )
    if (!wasStored) return { changed, applied: 'none' }
    return { changed, applied: known.length === asked.length ? first.version_after : 'unknown' }
  } catch (error) {
    if (error instanceof VersionGone || error instanceof VersionNotFound) return { changed, applied: 'unknown' }
    throw error
  }
}

/** More changes are reported as unknown. */
const CHANGES_READ_AT_MOST = 1000
