import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { PreconditionFailed } from '../errors.js'
import type { Change } from './audit.js'
import { changesSince } from './changes-since.js'
import type { RecentChange, UpdateRequest, VersionedState } from './resource.js'
import { entityTag, namesState, preconditionHolds, versionsInTags } from './tag.js'

/* What `If-Match` and `If-None-Match` of an update mean for the state that it finds. */

type Asked = Pick<UpdateRequest, 'kind' | 'precondition' | 'merges'>
type Stored = Pick<VersionedState, 'id' | 'version'>

/** The tag of a state. */
export function tagOf({ kind }: Pick<UpdateRequest, 'kind'>, { id, version }: Stored): string {
  return entityTag(kind, id, version)
}

/** True if `If-Match` rejects this state. */
export function isStale(request: Asked, state: Stored): boolean {
  return !preconditionHolds(request.precondition, tagOf(request, state))
}

/** Whether an update that would make these changes may go on: `matched` is what `If-None-Match` excludes, `failed` what `If-Match` does. */
export function preconditionOf(
  request: UpdateRequest,
  state: Stored,
  changes: readonly Change[],
): 'holds' | 'failed' | 'matched' | 'required' {
  const { precondition, ifNoneMatch, preconditionRequired, caller, fields } = request
  // A request that names no field is a read: where If-Match is required, it is how a client learns the tag.
  const isRequired = preconditionRequired || caller.token.requiresIfMatch
  if (isRequired && precondition.kind === 'none' && Object.keys(fields).length > 0) return 'required'
  if (namesState(ifNoneMatch, tagOf(request, state))) return 'matched'
  if (!isStale(request, state)) return 'holds'
  // A retry after a lost answer finds its own change already stored: that is success, not a conflict.
  return changes.length === 0 && namedVersion(request, state) !== undefined ? 'holds' : 'failed'
}

/** The newest past version that a failed precondition names, for a merge the oldest; undefined where there never was one. */
export function namedVersion({ kind, precondition, merges }: Asked, { id, version }: Stored): number | undefined {
  const versions = versionsInTags(precondition, kind, id, version)
  if (versions.length === 0) return undefined
  return merges ? Math.min(...versions) : Math.max(...versions)
}

/**
 * The refusal of an update whose `If-Match` is stale. `asked` is all that the request would change, not what a merge leaves of it: only that
 * tells whether it was stored before. `conflicts` are those of a merge; undefined where there was none.
 */
export async function preconditionFailed(
  trx: Kysely<Tables>,
  request: UpdateRequest,
  state: Stored,
  asked: readonly Change[],
  conflicts: readonly string[] | undefined,
): Promise<PreconditionFailed> {
  const since = namedVersion(request, state)
  const { changed, applied } = await changesSince(trx, request, state, since, asked)
  return new PreconditionFailed(
    since === undefined ? 'unknown_tag' : 'changed',
    tagOf(request, state),
    changed,
    typeof applied === 'number' ? { tag: tagOf(request, { id: state.id, version: applied }) } : applied,
    request.merges ? { conflicts: conflicts === undefined ? null : [...conflicts] } : undefined,
  )
}

/** The changes of others that an update replaces without having named a version. */
export function overwrittenBy(
  { precondition }: Asked,
  { recent }: VersionedState,
  changes: readonly Change[],
): RecentChange[] {
  if (precondition.kind !== 'none' || recent.length === 0) return []
  const changed = new Set(changes.map(change => change.field))
  return recent.filter(({ field }) => changed.has(field))
}
