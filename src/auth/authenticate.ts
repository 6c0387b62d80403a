import type { Expression } from 'kysely'
import { markReceived } from '../db/clock.js'
import { lit, noItems, on } from '../db/statements/queries.js'
import { type BatchRunner, type RowStatement, rowStatement } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { UserKind } from '../db/tables.js'
import { NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, PERMISSIONS } from './caller.js'
import { callersWhere } from './grants.js'
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
  read_only: boolean
  permission: 1 | 2 | 3
  managed_groups: number[]
  grants: string
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

export type CallerStatement = RowStatement<Question, CallerRow>

const caller = on<{ caller: CallerRow }>()

/** SQL: the caller's user id, for what rides on a caller statement. */
export const userOfCaller: Expression<string> = caller.ref('caller.user_id')

/** SQL: the caller as a viewer of tools, likewise. */
export const viewerOfCaller: Viewer = {
  user: userOfCaller,
  managesAll: caller('caller.permission', '>=', lit(2)),
  managedGroups: caller.ref('caller.managed_groups'),
  tools: caller
    .case()
    .when(caller.or([caller('caller.persona_ids', 'is not', null), caller('caller.tool_ids', 'is not', null)]))
    .then(caller.fn.coalesce('caller.tool_ids', noItems<number>()))
    .end()
    .$notNull(), // as any parameter may be null
}

/**
 * A statement that reads the caller of each known token, as `callersWhere` says, and a resource.
 */
export function callerStatement(
  name: string,
  resource: (id: Expression<number>) => Expression<unknown>,
): CallerStatement {
  return rowStatement<Question, CallerRow>(name, { hash: 'bytea', resource: 'integer' }, (param, db) =>
    db
      .selectFrom('input')
      .crossJoinLateral(callersWhere(on<{ t: 'token' }>()('t.hash', '=', param('hash'))).as('caller'))
      .selectAll('caller')
      .select(({ cast, fn, selectFrom }) => [
        'input.position',
        cast<string | null>(resource(param('resource')), 'text').as('state'),
        selectFrom('schema_requirement').select(cast<number>(fn.countAll(), 'integer').as('steps')).as('schema_steps'),
      ]),
  )
}

/** Reads the callers alone. */
export const callerOnly = callerStatement('caller', () => on().lit(null))
