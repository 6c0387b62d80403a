import type { Kysely } from 'kysely'
import { isAdmin } from '../auth/caller.js'
import { anyOf, val } from '../db/statements/queries.js'
import type { RecentChange, ResourceKind, Tables } from '../db/tables.js'
import { type FieldChange, PreconditionFailed, Refused } from '../errors.js'
import type { Act, Change, Decision, Overwritten, UpdateRequest, VersionedState } from './resource.js'
import { entityTag, namesState, preconditionHolds, versionsInTags } from './tag.js'

/* Checks whether a change needs approval, and whether `If-Match` and `If-None-Match` allow it. Other files check the caller's rights. */

/** Throws `Refused` if the change requires approval and the caller is not an administrator. Creations and dry runs require no approval. */
export function requireDirect(
  act: Act,
  { kind, requireApproval, caller, dryRun }: UpdateRequest,
  changes: readonly Change[],
): void {
  const isCovered = requireApproval === 'all' || (requireApproval === 'tools' && kind === 'tool')
  if (!isCovered || act === 'creation' || dryRun || isAdmin(caller) || changes.length === 0) return
  // A proposal can contain neither secrets nor `enabled`.
  const isProposable = act === 'update' && !changes.some(({ field }) => ['enabled', 'custom_headers'].includes(field))
  const instead = isProposable ? PROPOSE : 'Ask an administrator to make it.'
  throw new Refused('APPROVAL_REQUIRED', `Only administrators may make this change directly. ${instead}`)
}

const PROPOSE = 'To propose it, add propose=true (in MCP, call propose_agent_update or propose_tool_update).'

type Asked = Pick<UpdateRequest, 'kind' | 'precondition'>

/** True if the request has an `If-Match` that does not name the current state. */
export function isStale({ kind, precondition }: Asked, { id, version }: VersionedState): boolean {
  return !preconditionHolds(precondition, entityTag(kind, id, version))
}

const IF_MATCH_REQUIRED = 'This request must have an If-Match header. Send the ETag that a read or list returned.'

/**
 * Returns the decision if the request's preconditions hold. Otherwise throws `Refused`, or `PreconditionFailed` with the changes since the version in
 * `If-Match`. `decision` is undefined if a header value is an unknown mask and `If-Match` names an older version. The function then always throws.
 */
export async function requirePrecondition<D extends Decision>(
  db: Kysely<Tables>,
  request: UpdateRequest,
  state: VersionedState,
  decision: D | undefined,
): Promise<D> {
  const { kind, precondition, ifNoneMatch, preconditionRequired, caller, fields } = request
  const tag = entityTag(kind, state.id, state.version)
  // A request without fields needs no If-Match, because clients use such a request to read the tag.
  const isRequired = preconditionRequired || caller.token.requiresIfMatch
  if (isRequired && precondition.kind === 'none' && Object.keys(fields).length > 0)
    throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
  if (namesState(ifNoneMatch, tag)) throw new PreconditionFailed('matched', tag)
  const named = versionsInTags(precondition, kind, state.id, state.version)
  const since = named.length === 0 ? undefined : Math.max(...named)
  // A client that did not get the answer sends the update again. The change is then already stored, which counts as success.
  const isRetry = decision?.changes.length === 0 && since !== undefined
  if (decision !== undefined && (isRetry || !isStale(request, state))) return decision
  if (since === undefined) throw new PreconditionFailed('unknown_tag', tag)
  throw new PreconditionFailed('changed', tag, await changesSince(db, kind, state.id, since))
}

/** How long a change counts as recent. An update without `If-Match` that overwrites another user's recent change gets a `Warning`. */
const RECENT_MS = 15 * 60_000

const isRecent = ({ at }: RecentChange) => Date.now() - at < RECENT_MS

/** Returns the recent changes in `before`, and adds a new change by `user`. The fields in `changed` are removed from the older changes. */
export function recentChanges(
  before: readonly RecentChange[],
  changed: readonly string[],
  user: string | null,
): RecentChange[] {
  const still = ({ fields }: RecentChange) => fields.filter(field => !changed.includes(field))
  const kept = before.filter(isRecent).map(change => ({ ...change, fields: still(change) }))
  return [...kept, { by: user, at: Date.now(), fields: [...changed] }].filter(({ fields }) => fields.length > 0)
}

/** Returns the recent changes by other users that an update overwrites. Returns none if the update has `If-Match`. */
export async function overwrittenBy(
  db: Kysely<Tables>,
  { precondition, caller }: UpdateRequest,
  { recent_changes }: VersionedState,
  changes: readonly Change[],
): Promise<Overwritten[]> {
  const changed = new Set(precondition.kind === 'none' ? changes.map(({ field }) => field) : [])
  const lost = recent_changes
    .filter(change => change.by !== caller.userId && isRecent(change))
    .flatMap(({ fields, ...change }) => fields.filter(field => changed.has(field)).map(field => ({ field, ...change })))
  const ids = lost.flatMap(({ by }) => by ?? [])
  if (lost.length === 0) return []
  const people = await db
    .selectFrom('user_account')
    .select(['id', 'email'])
    .where('id', '=', anyOf(val(ids)))
    .execute()
  const emails = new Map(people.map(({ id, email }) => [id, email]))
  return lost.map(({ field, by, at }) => {
    const author = by === null ? 'agentctl' : (emails.get(by) ?? by)
    return { field, by: author, ageS: Math.max(0, Math.floor((Date.now() - at) / 1000)) }
  })
}

/** The maximum number of audit rows that are read to find the fields that have changed since a version. */
export const CHANGES_READ_MAX = 1000

async function changesSince(
  db: Kysely<Tables>,
  kind: ResourceKind,
  id: number,
  since: number,
): Promise<FieldChange[] | null> {
  const rows = await db
    .selectFrom('audit_entry')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after')
    .limit(CHANGES_READ_MAX)
    .select(['version_before', 'fields', 'author', 'at'])
    .execute()
  if (rows[0]?.version_before !== since || rows.length === CHANGES_READ_MAX) return null
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.author, at: row.at })
  return [...last.values()]
}
