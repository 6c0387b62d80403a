import type { Kysely } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import type { FieldChange } from '../errors.js'
import type { Change } from './audit.js'

/** What happened to a resource since the version that a stale precondition names. */
export interface Since {
  /** Which fields changed, by whom and when (the last change of each); null when that is no longer known. */
  changed: FieldChange[] | null
  /** The version in which the caller's own content was stored since, if it was, and if that is still known. */
  applied: number | 'none' | 'unknown'
}

/** An update that was refused for its precondition. */
export interface Refused {
  actorId: string | null
  /** The fields that the request names. */
  fields: readonly string[]
  /** What it would change of the present state. */
  changes: readonly Change[]
}

const NEVER: Since = { changed: null, applied: 'none' }
const UNKNOWN: Since = { changed: null, applied: 'unknown' }

/**
 * What happened after version `since`. Nothing is known when the audit rows do not reach back that far, or when the version
 * is not one of this resource's past.
 *
 * A request whose first answer was lost is repeated with the same tag. When somebody else wrote in between, it is refused,
 * and whether its content was stored before is told by the row behind `since`: it is the caller's, and the state after it
 * had every value that the request asks for.
 */
export async function changesSince(
  db: Kysely<Database>,
  kind: ResourceKind,
  id: number,
  since: number | undefined,
  current: number,
  refused: Refused,
): Promise<Since> {
  if (since === undefined || since >= current) return NEVER
  const rowsSince = db
    .selectFrom('audit')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(CHANGES_READ_AT_MOST)
  const rows = await rowsSince
    .select(['version_before', 'version_after', 'fields', 'actor', 'actor_id', 'at'])
    .execute()
  const [first] = rows
  if (first?.version_before !== since || rows.length === CHANGES_READ_AT_MOST) return UNKNOWN
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.actor, at: row.at })
  const changed = [...last.values()]
  if (refused.actorId === null || first.actor_id !== refused.actorId) return { changed, applied: 'none' }
  const differences = (await rowsSince.select('difference').execute()).map(row => row.difference)
  if (differences.includes(null)) return { changed, applied: 'unknown' }
  return { changed, applied: wasStored(differences, refused) ? first.version_after : 'none' }
}

/** Beyond so many changes since a version, what changed is no longer worth listing. */
const CHANGES_READ_AT_MOST = 1000

type Difference = Record<string, { from: unknown; to: unknown }>

/** Whether the state after the first of these changes, of which all are kept, had every value that the refused update asks for. */
function wasStored([first, ...later]: (Difference | null)[], { fields, changes }: Refused): boolean {
  if (!first) return false
  const changesOf = (field: string) => later.flatMap(difference => difference?.[field] ?? [])
  return [...new Set([...fields, ...changes.map(({ field }) => field)])].every(field => {
    const [next] = changesOf(field)
    const own = first[field]
    // Nobody touched it: it has the value asked for now, or it never had.
    if (own === undefined && next === undefined) return !changes.some(change => change.field === field)
    const then = own === undefined ? next?.from : own.to
    const now = changesOf(field).at(-1)?.to ?? own?.to
    const change = changes.find(change => change.field === field)
    return isSame(then, change === undefined ? now : change.to)
  })
}

/** Equality of a value as the audit trail keeps it, and one that it would keep. */
function isSame(kept: unknown, value: unknown): boolean {
  return JSON.stringify(kept) === JSON.stringify(value)
}
