import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { PreconditionFailed } from '../errors.js'
import type { Change } from './audit.js'
import { changesSince } from './changes-since.js'
import type { RecentChange, UpdateRequest, VersionedState } from './resource.js'
import { entityTag, namesState, preconditionHolds, versionsInTags } from './tag.js'

/* The meaning of `If-Match` and `If-None-Match` for an update. */

type Asked = Pick<UpdateRequest, 'kind' | 'precondition'>
type Stored = Pick<VersionedState, 'id' | 'version'>

export function tagOf({ kind }: Pick<UpdateRequest, 'kind'>, { id, version }: Stored): string {
  return entityTag(kind, id, version)
}

/** True if `If-Match` rejects this state. */
export function isStale(request: Asked, state: Stored): boolean {
  return !preconditionHolds(request.precondition, tagOf(request, state))
}

/** Checks the preconditions of an update that would make these changes: `failed` by `If-Match`, `matched` by `If-None-Match`. */
export function preconditionOf(
  request: UpdateRequest,
  state: Stored,
  changes: readonly Change[],
): 'holds' | 'failed' | 'matched' | 'required' {
  const { precondition, ifNoneMatch, preconditionRequired, caller, fields } = request
  // A request without fields is a read. It needs no If-Match, because clients use it to learn the tag.
  const isRequired = preconditionRequired || caller.token.requiresIfMatch
  if (isRequired && precondition.kind === 'none' && Object.keys(fields).length > 0) return 'required'
  if (namesState(ifNoneMatch, tagOf(request, state))) return 'matched'
  if (!isStale(request, state)) return 'holds'
  // A retry after a lost answer finds its own change already stored: that is a success, not a conflict.
  return changes.length === 0 && namedVersion(request, state) !== undefined ? 'holds' : 'failed'
}

/** The newest past version in a failed precondition; undefined if it names none. */
export function namedVersion({ kind, precondition }: Asked, { id, version }: Stored): number | undefined {
  const versions = versionsInTags(precondition, kind, id, version)
  return versions.length === 0 ? undefined : Math.max(...versions)
}

/**
 * The refusal of an update with a stale `If-Match`. `asked` are all requested changes: they show if this request was stored before.
 */
export async function preconditionFailed(
  trx: Kysely<Tables>,
  request: UpdateRequest,
  state: Stored,
  asked: readonly Change[],
): Promise<PreconditionFailed> {
  const since = namedVersion(request, state)
  const { changed, applied } = await changesSince(trx, request, state, since, asked)
  return new PreconditionFailed(
    since === undefined ? 'unknown_tag' : 'changed',
    tagOf(request, state),
    changed,
    typeof applied === 'number' ? { tag: tagOf(request, { id: state.id, version: applied }) } : applied,
  )
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
