import type { Kysely } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { PreconditionFailed } from '../errors.js'
import type { Change } from './audit.js'
import { changesSince } from './changes-since.js'
import type { RecentChange, ResourceTypes, UpdateRequest, VersionedResource, VersionedState } from './resource.js'
import { entityTag, namesState, preconditionHolds, versionsInTags } from './tag.js'

/* What `If-Match` and `If-None-Match` of an update mean for the state that it finds. */

type Asked = Pick<UpdateRequest, 'precondition' | 'merges'>

/** True if `If-Match` rejects this state. */
export function isStale(kind: ResourceKind, { precondition }: Asked, { id, version }: VersionedState): boolean {
  return !preconditionHolds(precondition, entityTag(kind, id, version))
}

/** Whether an update that would make these changes may go on: `matched` is what `If-None-Match` excludes, `failed` what `If-Match` does. */
export function preconditionOf(
  kind: ResourceKind,
  request: UpdateRequest,
  state: VersionedState,
  changes: readonly Change[],
): 'holds' | 'failed' | 'matched' | 'required' {
  const { precondition, ifNoneMatch, preconditionRequired, caller, fields } = request
  // A request that names no field is a read: where If-Match is required, it is how a client learns the tag.
  const isRequired = preconditionRequired || caller.token.requiresIfMatch
  if (isRequired && precondition.kind === 'none' && Object.keys(fields).length > 0) return 'required'
  if (namesState(ifNoneMatch, entityTag(kind, state.id, state.version))) return 'matched'
  if (!isStale(kind, request, state)) return 'holds'
  // A retry after a lost answer finds its own change already stored: that is success, not a conflict.
  return changes.length === 0 && namedVersion(kind, request, state) !== undefined ? 'holds' : 'failed'
}

/** The newest past version that a failed precondition names, for a merge the oldest; undefined where there never was one. */
export function namedVersion(
  kind: ResourceKind,
  { precondition, merges }: Asked,
  { id, version }: VersionedState,
): number | undefined {
  const versions = versionsInTags(precondition, kind, id, version)
  if (versions.length === 0) return undefined
  return merges ? Math.min(...versions) : Math.max(...versions)
}

/** The refusal of an update whose `If-Match` is stale. `conflicts` are those of a merge; undefined where there was none. */
export async function preconditionFailed<T extends ResourceTypes>(
  trx: Kysely<Database>,
  resource: VersionedResource<T>,
  request: T['Request'],
  state: T['State'],
  conflicts: readonly string[] | undefined,
): Promise<PreconditionFailed> {
  const { kind } = resource
  const { actor, fields, merges } = request
  const since = namedVersion(kind, request, state)
  // All that was asked for, not what a merge leaves of it: only so is told whether it was stored before.
  const changes = resource.asked(state, request)
  const refused = { actorId: actor.id, fields: Object.keys(fields), changes }
  const { changed, applied } = await changesSince(trx, kind, state.id, since, state.version, refused)
  const tagOf = (version: number) => entityTag(kind, state.id, version)
  return new PreconditionFailed(
    since === undefined ? 'unknown_tag' : 'changed',
    tagOf(state.version),
    changed,
    typeof applied === 'number' ? { tag: tagOf(applied) } : applied,
    merges ? { conflicts: conflicts === undefined ? null : [...conflicts] } : undefined,
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
