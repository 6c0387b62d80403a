import type { Expression } from 'kysely'
import { lit, noItems, on, queries } from '../db/statements/queries.js'
import { type Executor, type Statement, statement } from '../db/statements/statement.js'
import type { UserKind } from '../db/tables.js'
import { NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, PERMISSIONS } from './caller.js'
import { callersWhere } from './grants.js'
import { invalidToken } from './token.js'

/** A resource to read together with the caller. If the id is undefined (not a valid id), only the caller is read. */
export interface Lookup {
  statement: CallerStatement
  id: number | undefined
}

export interface Authenticated {
  caller: Caller
  /** The state of the resource; null if it does not exist. */
  prefetched: object | null
  /** True if the token's last use should be written again. */
  useIsStale: boolean
  /** The number of steps of the schema. A change means that the schema is being migrated. */
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
  read_only: boolean
  permission: 1 | 2 | 3
  managed_groups: number[]
  grants: string
  /** JSON text, parsed when its row is used. */
  state: string | null
  schema_steps: number
}

/** A token's hash, and the id of the resource to read. */
interface Question {
  hash: Buffer
  resource: number | null
}

/**
 * Reads the caller by the hash of the token, together with the resource, in one statement. Nothing is cached, so a revocation takes
 * effect with the next request. Throws `NotAuthenticated` and database errors.
 */
export async function authenticate(db: Executor, hash: Buffer, lookup: Lookup | undefined): Promise<Authenticated> {
  const row = await (lookup?.id === undefined
    ? callerOnly.first(db, { hash, resource: null })
    : lookup.statement.first(db, { hash, resource: lookup.id }))
  requireValid(row)
  return {
    caller: callerOf(row),
    prefetched: row.state === null ? null : (JSON.parse(row.state) as object), // its statement determines the type
    useIsStale: row.use_is_stale,
    schemaSteps: row.schema_steps,
  }
}

/** Authenticates the caller of a running request again, in a transaction. Throws `NotAuthenticated`. */
export async function authenticateWithin(trx: Executor, hash: Buffer): Promise<Caller> {
  const row = await callerOnly.first(trx, { hash, resource: null })
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
    grants: row.grants,
    token: {
      id: row.token_id,
      personaIds: row.persona_ids,
      toolIds: row.tool_ids,
      requiresIfMatch: row.requires_if_match,
      readOnly: row.read_only,
      expiresAt: row.expires_at,
    },
  }
}

export type CallerStatement = Statement<Question, CallerRow>

const caller = on<{ caller: CallerRow }>()

/** SQL: the caller's user id, for expressions in a caller statement. */
export const userOfCaller: Expression<string> = caller.ref('caller.user_id')

/** SQL: the caller as a viewer of tools, for expressions in a caller statement. */
export const viewerOfCaller: Viewer = {
  user: userOfCaller,
  managesAll: caller('caller.permission', '>=', lit(2)),
  managedGroups: caller.ref('caller.managed_groups'),
  tools: caller
    .case()
    .when(caller.or([caller('caller.persona_ids', 'is not', null), caller('caller.tool_ids', 'is not', null)]))
    .then(caller.fn.coalesce('caller.tool_ids', noItems<number>()))
    .end()
    .$notNull(), // any parameter may be null
}

/** A statement that reads the caller of a token, by `callersWhere`, and a resource. */
export function callerStatement(
  name: string,
  resource: (id: Expression<number>) => Expression<unknown>,
): CallerStatement {
  return statement<Question, CallerRow>(name, { hash: 'bytea', resource: 'integer' }, param =>
    queries()
      .selectFrom(callersWhere(on<{ t: 'token' }>()('t.hash', '=', param('hash'))).as('caller'))
      .selectAll('caller')
      .select(({ cast, fn, selectFrom }) => [
        cast<string | null>(resource(param('resource')), 'text').as('state'),
        selectFrom('schema_requirement').select(cast<number>(fn.countAll(), 'integer').as('steps')).as('schema_steps'),
      ]),
  )
}

/** Reads only the caller. */
export const callerOnly = callerStatement('caller', () => on().lit(null))
