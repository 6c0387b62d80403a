import { type RawBuilder, sql } from 'kysely'
import { markReceived } from '../db/clock.js'
import { type BatchRunner, type RowStatement, rowStatement } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { UserKind } from '../db/tables.js'
import { NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, PERMISSIONS } from './caller.js'
import { callersWhere } from './standing.js'
import { invalidToken } from './token.js'

/** A resource to read along with the caller. An undefined id is one that no row can have: only the caller is read. */
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
  standing: string
  /** JSON, parsed by the request that it is for. */
  state: string | null
  schema_steps: number
}

/** A token's hash, and the id of the resource to read along. */
interface Question {
  hash: Buffer
  resource: number | null
}

/**
 * The caller of a request by the hash of its token, with the resource that it names, in one batched statement. Nothing is remembered: a
 * revocation works on the next request. Throws `NotAuthenticated`; database errors pass through.
 */
export async function authenticate(
  database: BatchRunner,
  hash: Buffer,
  lookup: Lookup | undefined,
): Promise<Authenticated> {
  const row = await (lookup?.id === undefined
    ? database.batched(callerOnly, { hash, resource: null })
    : database.batched(lookup.statement, { hash, resource: lookup.id }))
  requireValid(row)
  return {
    caller: callerOf(row),
    prefetched: row.state === null ? null : markReceived(JSON.parse(row.state) as object), // as its statement builds it
    useIsStale: row.use_is_stale,
    schemaSteps: row.schema_steps,
  }
}

/** The caller of a request that has begun before, as they are now, in a transaction. Throws `NotAuthenticated`. */
export async function authenticateWithin(trx: Executor, hash: Buffer): Promise<Caller> {
  const row = await callerOnly.for({ hash, resource: null }).single(trx)
  requireValid(row)
  return callerOf(row)
}

function requireValid(row: CallerRow | undefined): asserts row is CallerRow {
  if (row === undefined || row.revoked || !row.active) throw invalidToken()
  if (row.expired)
    throw new NotAuthenticated('TOKEN_EXPIRED', 'This token has expired. Make or rotate one with agentctl.')
}

function callerOf(row: CallerRow): Caller {
  return {
    userId: row.user_id,
    email: row.email,
    kind: row.kind,
    permission: PERMISSIONS[row.permission - 1] ?? 'basic',
    managedGroupIds: row.managed_groups,
    standing: row.standing,
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
  tools: sql`(case when num_nonnulls(caller.persona_ids, caller.tool_ids) > 0 then coalesce(caller.tool_ids, '{}') end)`,
}

/**
 * A statement that reads the caller of each known token, as `callersWhere` says, and a resource.
 */
export function callerStatement(
  name: string,
  resource: (id: RawBuilder<unknown>) => RawBuilder<unknown>,
): CallerStatement {
  return rowStatement<Question, CallerRow>(name, { hash: 'bytea', resource: 'integer' }, param => ({
    query: sql`
    select input.position, caller.*, (${resource(param('resource'))})::text as state,
      (select count(*)::integer from schema_requirement) as schema_steps
    from input
    cross join lateral (${callersWhere(sql`t.hash = ${param('hash')}`)}
    ) caller`,
  }))
}

/** Reads the callers alone. */
export const callerOnly = callerStatement('caller', () => sql`null::json`)
