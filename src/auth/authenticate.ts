import { type RawBuilder, sql } from 'kysely'
import { markReceived } from '../db/clock.js'
import { type BatchRunner, type RowStatement, rowStatement } from '../db/statements/row-statement.js'
import type { UserKind } from '../db/tables.js'
import { NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, PERMISSIONS } from './caller.js'
import { invalidToken } from './token.js'

/**
 * Which resource to read along with the caller: a statement made by `callerStatement`, and its id. An undefined id is
 * one that no row can have: only the caller is read.
 */
export interface Lookup {
  statement: CallerStatement
  id: number | undefined
}

export interface Authenticated {
  caller: Caller
  /** The state of the resource as the statement builds it, null when there is none. */
  prefetched: object | null
  /** Whether the token's last use is long enough ago to be written again. */
  useIsStale: boolean
  /** How many steps the schema has: another number than before says that somebody migrates it. */
  schemaSteps: number
}

interface CallerRow {
  token_id: number
  user_id: string
  email: string
  kind: UserKind
  active: boolean
  expires_at: string | null
  expired: boolean
  revoked: boolean
  use_is_stale: boolean
  persona_ids: number[] | null
  tool_ids: number[] | null
  requires_if_match: boolean
  permission: 1 | 2 | 3
  managed_groups: number[]
  state: object | null
  schema_steps: number
}

/** A token's hash, and the id of the resource to read along. */
interface Question {
  hash: Buffer
  resource: number | null
}

/**
 * Establishes the caller of a request from the hash of its token, and reads the resource that it names in the same
 * statement; requests that arrive together share one. What a token may do is never remembered between requests: a
 * revocation works on the next one.
 *
 * Throws `NotAuthenticated`; database errors pass through.
 */
export async function authenticate(
  database: BatchRunner,
  hash: Buffer,
  lookup: Lookup | undefined,
): Promise<Authenticated> {
  const row = await (lookup?.id === undefined
    ? database.batched(callerOnly, { hash, resource: null })
    : database.batched(lookup.statement, { hash, resource: lookup.id }))
  if (row === undefined || row.revoked || !row.active) throw invalidToken()
  if (row.expired)
    throw new NotAuthenticated('TOKEN_EXPIRED', 'This token has expired. Make or rotate one with agentctl.')
  return {
    caller: callerOf(row),
    prefetched: row.state && markReceived(row.state),
    useIsStale: row.use_is_stale,
    schemaSteps: row.schema_steps,
  }
}

function callerOf(row: CallerRow): Caller {
  return {
    userId: row.user_id,
    email: row.email,
    kind: row.kind,
    permission: PERMISSIONS[row.permission - 1] ?? 'basic',
    managedGroupIds: row.managed_groups,
    token: {
      id: row.token_id,
      personaIds: row.persona_ids,
      toolIds: row.tool_ids,
      requiresIfMatch: row.requires_if_match,
      expiresAt: row.expires_at,
    },
  }
}

export type CallerStatement = RowStatement<Question, CallerRow>

/** SQL: the caller's user id, for what rides on a caller statement. */
export const userOfCaller: RawBuilder<unknown> = sql`caller.user_id`

/** SQL: the caller as a viewer of tools, likewise. */
export const viewerOfCaller: Viewer = {
  user: userOfCaller,
  managesAll: sql`(caller.permission >= 2)`,
  managedGroups: sql`caller.managed_groups`,
}

/**
 * A statement that reads for each known token its row with its user, what user, groups and scopes permit together (1 basic,
 * 2 manage:actions, 3 admin), and a resource. Scopes narrow; a group manager's scopes must reach the tool operations
 * (DECISIONS sections 6 and 7). `offset 0` has the user looked up by key: joined freely, the planner may read all users.
 */
export function callerStatement(
  name: string,
  resource: (id: RawBuilder<unknown>) => RawBuilder<unknown>,
): CallerStatement {
  return rowStatement<Question, CallerRow>(name, { hash: 'bytea', resource: 'integer' }, param => ({
    query: sql`
    select input.position, caller.*, ${resource(param('resource'))} as state,
      (select count(*)::integer from schema_requirement) as schema_steps
    from input
    cross join lateral (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match,
        least(greatest(${rank(sql`u.permissions`)}, held.granted), case when t.scopes is null then 3 else ${rank(sql`t.scopes`)} end) as permission,
        case when t.scopes is null or ${rank(sql`t.scopes`)} >= 2 then held.managed else '{}' end as managed_groups
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(${rank(sql`g.permissions`)}), 1) as granted,
          coalesce(array_agg(m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      where t.hash = ${param('hash')}
      offset 0
    ) caller`,
  }))
}

function rank(permissions: RawBuilder<unknown>): RawBuilder<number> {
  return sql`case when 'admin' = any(${permissions}) then 3 when 'manage:actions' = any(${permissions}) then 2 else 1 end`
}

/** Reads the callers alone. */
export const callerOnly = callerStatement('caller', () => sql`null::json`)
