import { type Expression, type Selectable, sql } from 'kysely'
import { lit, on, queries } from '../db/statements/queries.js'
import { type Executor, type Statement, statement } from '../db/statements/statement.js'
import type { CallerView } from '../db/tables.js'
import { NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, PERMISSIONS } from './caller.js'
import { invalidToken } from './token.js'

/** A resource to read together with the caller. If the id is undefined (not a valid id), only the caller is read. */
export interface Lookup {
  statement: CallerStatement
  id: number | undefined
}

/** The current caller, and the state of the requested resource; null if it does not exist. */
export interface CallerNow {
  caller: Caller
  prefetched: object | null
}

/** A row of the view `caller`. `state` is JSON text, parsed when its row is used. */
type CallerRow = Selectable<CallerView> & { state: string | null }

/** A token's hash, and the id of the resource to read. */
interface Question {
  hash: Buffer
  resource: number | null
}

export type CallerStatement = Statement<Question, CallerRow>

/**
 * Reads the caller by the hash of the token, together with the resource, in one statement. Nothing is cached, so a revocation takes
 * effect with the next request. `useIsStale`: the token's last use should be written again. Throws `NotAuthenticated` and database errors.
 */
export async function authenticate(
  db: Executor,
  hash: Buffer,
  lookup: Lookup | undefined,
): Promise<CallerNow & { useIsStale: boolean }> {
  const row = await (lookup?.id === undefined
    ? callerOnly.first(db, { hash, resource: null })
    : lookup.statement.first(db, { hash, resource: lookup.id }))
  if (row === undefined || !row.valid) throw invalidToken()
  if (row.expired)
    throw new NotAuthenticated('TOKEN_EXPIRED', 'This token has expired. Make one with: agentctl token create.')
  return {
    caller: callerOf(row),
    prefetched: row.state === null ? null : (JSON.parse(row.state) as object), // its statement determines the type
    useIsStale: row.use_is_stale,
  }
}

function callerOf(row: CallerRow): Caller {
  return {
    userId: row.user_id,
    email: row.email,
    kind: row.kind,
    permission: PERMISSIONS[row.permission - 1] ?? 'basic',
    managedGroupIds: row.managed_groups,
    grants: row.grants,
    token: {
      id: row.token_id,
      scopes: row.scopes,
      personaIds: row.persona_ids,
      toolIds: row.tool_ids,
      requiresIfMatch: row.requires_if_match,
      readOnly: row.scopes?.some(scope => ['read', 'runtime', 'propose'].includes(scope)) ?? false,
      expiresAt: row.expires_at,
    },
  }
}

const caller = on<{ caller: CallerRow }>()

/** SQL: the caller as a viewer of tools, for expressions in a caller statement. */
export const viewerOfCaller: Viewer = {
  user: caller.ref('caller.user_id'),
  isAdmin: caller('caller.permission', '=', lit(3)),
  managesAll: caller('caller.permission', '>=', lit(2)),
  managedGroups: caller.ref('caller.managed_groups'),
  tools: sql`case when caller.persona_ids is not null or caller.tool_ids is not null then coalesce(caller.tool_ids, '{}') end`,
  agents: sql`case when caller.persona_ids is not null or caller.tool_ids is not null then coalesce(caller.persona_ids, '{}') end`,
}

/** A statement that reads the caller of a token, and a resource. */
export function callerStatement(
  name: string,
  resource: (id: Expression<number>) => Expression<unknown>,
): CallerStatement {
  return statement<Question, CallerRow>(name, { hash: 'bytea', resource: 'integer' }, param =>
    queries()
      .selectFrom('caller')
      .selectAll('caller')
      .select(({ cast }) => cast<string | null>(resource(param('resource')), 'text').as('state'))
      .where('caller.hash', '=', param('hash')),
  )
}

const callerOnly = callerStatement('caller', () => on().lit(null))
