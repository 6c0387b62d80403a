import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { type FieldChange, PreconditionFailed, Refused, VersionGone, VersionNotFound } from '../errors.js'
import { AUTHOR, type Change } from './audit.js'
import { sameValue } from './field-table.js'
import { readPast } from './read.js'
import type { Decision, RecentChange, UpdateRequest, VersionedState } from './resource.js'
import { entityTag, namesState, preconditionHolds, versionsInTags } from './tag.js'

/* The meaning of `If-Match` and `If-None-Match` for an update. */

type Asked = Pick<UpdateRequest, 'kind' | 'precondition'>
type Stored = Pick<VersionedState, 'id' | 'version'>

/** True if `If-Match` rejects this state. */
export function isStale({ kind, precondition }: Asked, { id, version }: Stored): boolean {
  return !preconditionHolds(precondition, entityTag(kind, id, version))
}

const IF_MATCH_REQUIRED = 'This update must have If-Match. A GET of the agent or tool returns its current ETag.'

/**
 * Returns the decision if the preconditions of its request hold. It is undefined if the request could only be decided on the state that
 * `If-Match` names. Throws `Refused`, or `PreconditionFailed` with what changed since.
 */
export async function requirePrecondition<D extends Decision>(
  db: Kysely<Tables>,
  request: UpdateRequest,
  state: VersionedState,
  decision: D | undefined,
): Promise<D> {
  const { kind, precondition, ifNoneMatch, preconditionRequired, caller, fields } = request
  const tag = entityTag(kind, state.id, state.version)
  // A request without fields is a read. It needs no If-Match, because clients use it to learn the tag.
  const isRequired = preconditionRequired || caller.token.requiresIfMatch
  if (isRequired && precondition.kind === 'none' && Object.keys(fields).length > 0)
    throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
  if (namesState(ifNoneMatch, tag)) throw new PreconditionFailed('matched', tag, null, 'none')
  const named = versionsInTags(precondition, kind, state.id, state.version)
  const since = named.length === 0 ? undefined : Math.max(...named)
  // A retry after a lost answer finds its own change already stored: that is a success, not a conflict.
  const isRetry = decision?.changes.length === 0 && since !== undefined
  if (decision !== undefined && (isRetry || !isStale(request, state))) return decision
  if (since === undefined) throw new PreconditionFailed('unknown_tag', tag, null, 'none')
  const { changed, applied } = await changesSince(db, request, state, since, decision?.changes)
  const stored = typeof applied === 'number' ? { tag: entityTag(kind, state.id, applied) } : applied
  throw new PreconditionFailed('changed', tag, changed, stored)
}

/** The recent changes of others that an update without a precondition replaces. */
export function overwrittenBy(
  { precondition }: Asked,
  { recent }: VersionedState,
  changes: readonly Change[],
): RecentChange[] {
  if (precondition.kind !== 'none' || recent.length === 0) return []
  const changed = new Set(changes.map(change => change.field))
  return recent.filter(({ field }) => changed.has(field))
}

/**
 * `changed` has the last change of each field since a version; null if that is no longer known. `applied` is the later version that stored
 * this same request, if one did.
 */
interface Since {
  changed: FieldChange[] | null
  applied: number | 'none' | 'unknown'
}

/** More changes are reported as unknown. */
const CHANGES_READ_MAX = 1000

/**
 * Reads what changed after version `since`. The caller's own update was stored, and only its answer lost, if the row after `since` is
 * theirs and the state after it had every value that the request would set now.
 */
async function changesSince(
  db: Kysely<Tables>,
  { kind, actor, fields }: UpdateRequest,
  state: VersionedState,
  since: number,
  wanted: readonly Change[] | undefined,
): Promise<Since> {
  const rows = await db
    .selectFrom('audit')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', state.id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(CHANGES_READ_MAX)
    .select(['version_before', 'version_after', 'fields', AUTHOR.as('author'), 'actor_id', 'at'])
    .execute()
  const [first] = rows
  if (first?.version_before !== since || rows.length === CHANGES_READ_MAX) return { changed: null, applied: 'unknown' }
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.author, at: row.at })
  const changed = [...last.values()]
  if (actor.id === null || first.actor_id !== actor.id) return { changed, applied: 'none' }
  if (wanted === undefined) return { changed, applied: 'unknown' }
  try {
    const then = await readPast(db, kind, state.id, first.version_after)
    const now: Readonly<Record<string, unknown>> = { ...state }
    const isWanted = new Set(wanted.map(({ field }) => field))
    const kept = Object.keys(fields).filter(name => name in then && !isWanted.has(name))
    // Values of headers cannot be compared: each storing gives them another mask.
    const compared = wanted.filter(({ field }) => field !== 'custom_headers')
    if (!compared.every(({ field, to }) => field in then && sameValue(to, then[field])))
      return { changed, applied: 'none' }
    const isKnown = compared.length === wanted.length && kept.every(name => sameValue(then[name], now[name]))
    return { changed, applied: isKnown ? first.version_after : 'unknown' }
  } catch (error) {
    if (error instanceof VersionGone || error instanceof VersionNotFound) return { changed, applied: 'unknown' }
    throw error
  }
}
