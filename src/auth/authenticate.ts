import { setImmediate } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Expression, type Selectable, sql } from 'kysely'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { jsonText, lit, named, on, queries } from '../db/statements/queries.js'
import { type Executor, type Statement, statement } from '../db/statements/statement.js'
import { type CallerView, INT4_MAX, type Permission } from '../db/tables.js'
import { Forbidden, NotAuthenticated } from '../errors.js'
import type { Viewer } from './access.js'
import { type Caller, includesPermission, PERMISSIONS } from './caller.js'
import { bearerTokenHash, invalidToken } from './token.js'

/** The access policy of a route. The application refuses to start if a route has none. */
export interface RoutePolicy {
  /** `public` needs no token. `manage:actions` also admits group managers (DECISIONS section 6). */
  permission: Permission | 'public'
  resource?: 'persona' | 'tool'
  /** True if the body may hold a definition. The worker that checks a large definition also parses it. */
  takesDefinition?: true
  /** True if the route stores something, so a 503 reports the outcome. */
  writes?: true
  /** True if the route only stores proposals; `if asked`: only with `propose=true` in the query. */
  proposes?: true | 'if asked'
  /** True if the route calls other routes, whose answers report the outcome. */
  asksWithin?: true
  /** True if the answer contains the secrets of tools. Only runtime tokens may call such a route. */
  answersSecrets?: true
  /** True if the route creates a resource. Bound tokens and group managers must not create resources. */
  creates?: true
  /** True if `X-Onyx-Authorization` takes precedence over `Authorization`. */
  takesOnyxHeader?: true
  /** The path parameter with the resource's id, and the statement that reads the resource with the caller. */
  lookup?: { parameter: string; statement: CallerStatement }
}

declare module 'fastify' {
  interface FastifyContextConfig {
    policy?: RoutePolicy
  }
  interface FastifyRequest {
    /** The caller. Set before the body is read, on every route that is not public. */
    caller: Caller
    /** The state of the resource in the path, read by the route's `lookup`; null if it does not exist. */
    prefetched: object | null
    /**
     * Authenticates again, because the body may take long to arrive, and reads the resource of `lookup`. Throws `NotAuthenticated`,
     * `Forbidden`.
     */
    readNow(executor: Executor, lookup?: Lookup): Promise<CallerNow>
    /** The SHA-256 of the bearer token; undefined until it is first needed. */
    tokenHash: Buffer | undefined
    /** The reason of a refusal for the metrics: an error code, or the reason of a 503. */
    refusal: string | undefined
    /** Details of a refusal for the log, without caller input. */
    told: Readonly<Record<string, unknown>> | undefined
  }
}

/** Authenticates a request and checks that its token allows the route. Throws `NotAuthenticated`, `Forbidden`. */
export type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** The decorator on scopes whose requests must be authenticated. */
export const REQUIRES_TOKEN = 'requiresToken'

/** Adds the caller to requests. Returns the function that authenticates a request before its body is read. */
export function registerAuthentication(app: FastifyInstance, database: Database): Authenticate {
  // The type is not nullable, because authentication sets the caller before the handler of any route that is not public.
  app.decorateRequest('caller', null as unknown as Caller)
  app.decorateRequest('prefetched', null)
  for (const name of ['tokenHash', 'refusal', 'told'] as const) app.decorateRequest(name, undefined)
  app.decorateRequest('readNow', async function (this: FastifyRequest, executor: Executor, lookup = lookupOf(this)) {
    const found = await authenticate(executor, tokenHashOf(this), lookup)
    requireAdmitted(found.caller, policyOf(this), this)
    return found
  })
  requireDeclaredPolicies(app)
  const asked = new Map<string, ReturnType<typeof authenticate>>()
  return async (request, reply) => {
    const lookup = lookupOf(request)
    const hash = tokenHashOf(request)
    const key = hash.toString('hex') // requests with other tokens do not wait for this one
    const read = () => withRetries(() => authenticate(database.sharedReads(key), hash, lookup))
    // Requests of one turn of the event loop share the caller, who is read after the last of them has arrived.
    const shared = async () => {
      await setImmediate()
      asked.delete(key)
      return await read()
    }
    const found = lookup?.id === undefined ? (asked.get(key) ?? shared()) : read()
    if (lookup?.id === undefined) asked.set(key, found)
    const { caller, prefetched, useIsStale } = await found
    Object.assign(request, { caller, prefetched })
    if (caller.token.expiresAt !== null) reply.header('token-expires-at', caller.token.expiresAt)
    if (useIsStale) recordUse(request, database, caller.token.id)
    requireAdmitted(caller, policyOf(request), request)
  }
}

/** The SHA-256 of a request's bearer token, computed once. `authorization` may be the value of another header. Throws `NotAuthenticated`. */
export function tokenHashOf(request: FastifyRequest, authorization = request.headers.authorization): Buffer {
  request.tokenHash ??= bearerTokenHash(authorization)
  return request.tokenHash
}

/** Makes startup fail if a route declares no permission, if one in a `REQUIRES_TOKEN` scope is `public`, or if one outside is not. */
function requireDeclaredPolicies(app: FastifyInstance): void {
  const undeclared: string[] = []
  app.addHook('onRoute', function ({ url, config }) {
    const permission = config?.policy?.permission
    const isDeclared = permission !== undefined && (permission !== 'public') === this.hasDecorator(REQUIRES_TOKEN)
    if (url !== '*' && !isDeclared) undeclared.push(url) // `*`: the route of preflight requests
  })
  app.addHook('onReady', async () => {
    if (undeclared.length > 0) throw new Error(`no permission is declared for ${undeclared.join(', ')}`)
  })
}

function policyOf({ policy }: FastifyRequest): RoutePolicy {
  if (policy === undefined) throw new Error('a request without a policy has no caller')
  return policy
}

function lookupOf(request: FastifyRequest): Lookup | undefined {
  const { lookup } = policyOf(request)
  return lookup && { statement: lookup.statement, id: idIn(request, lookup.parameter) }
}

/** The id in the path; undefined if it is not a valid id. */
export function idIn({ params }: Pick<FastifyRequest, 'params'>, parameter: string): number | undefined {
  const text = String((params as Record<string, unknown>)[parameter]) // a number after validation
  const id = /^\d+$/.test(text) ? Number(text) : 0
  return id >= 1 && id <= INT4_MAX ? id : undefined
}

/** Throws `Forbidden` if the token does not allow this request. */
function requireAdmitted(
  { permission, managedGroupIds, token }: Caller,
  policy: RoutePolicy,
  request: Pick<FastifyRequest, 'params' | 'query'>,
): void {
  const { permission: wanted, resource, creates, writes, answersSecrets, lookup } = policy
  if (answersSecrets && !token.scopes?.includes('runtime'))
    throw new Forbidden('This requires a runtime token: agentctl token create --runtime.')
  const isManager = wanted === 'manage:actions' && !creates && managedGroupIds.length > 0
  if (wanted !== 'public' && !includesPermission(permission, wanted) && !isManager)
    throw new Forbidden(`This operation requires the permission ${wanted}.`, wanted)
  const { dry_run: dryRun, propose } = request.query as Record<string, unknown> // text before validation, a boolean after it
  const proposes = policy.proposes === true || (policy.proposes === 'if asked' && String(propose) === 'true')
  const mayPropose = proposes && token.scopes?.includes('propose')
  if (writes && token.readOnly && !mayPropose && String(dryRun) !== 'true')
    throw new Forbidden(
      `This token ${token.scopes?.includes('propose') ? 'stores only proposals (propose=true)' : READ_ONLY}.${lookup || creates ? ' A dry run (dry_run=true) is answered.' : ''}`,
    )
  if (resource === undefined || token.bound === null) return
  if (creates) throw new Forbidden('This token is bound to some agents and tools, and cannot create others.')
  // A token bound only to agents cannot call tool operations, and vice versa. A route without an id admits tokens bound to any resource of its kind.
  const bound = token.bound[resource]
  const id = lookup && idIn(request, lookup.parameter)
  if (lookup === undefined ? bound.length === 0 : id === undefined || !bound.includes(id))
    throw new Forbidden('This token is bound to other resources.')
}

const READ_ONLY = 'is read-only: with it nothing is stored'

/** True if a route with this policy would admit the caller's token, without regard to the path and query. */
export function admits({ lookup: _, ...policy }: RoutePolicy, caller: Caller): boolean {
  try {
    requireAdmitted(caller, policy, { params: {}, query: {} })
    return true
  } catch {
    return false
  }
}

/** Records the token's last use at most once a minute, in the background. Errors do not fail the request, and a locked row is skipped. */
function recordUse({ log }: FastifyRequest, { db }: Database, id: number): void {
  sql`
    update token set last_used_at = clock_timestamp()
    where id = (select id from token where id = ${id} for no key update skip locked)
      and coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)`
    .execute(db)
    .catch(error => log.debug({ err: error }, 'the last use of a token was not recorded'))
}

/** A resource to read together with the caller. If `id` is undefined, because the path has no valid id, only the caller is read. */
export interface Lookup {
  statement: CallerStatement
  id: number | undefined
}

/** The caller as stored now, and the state of the requested resource; null if it does not exist. */
export interface CallerNow {
  caller: Caller
  prefetched: object | null
}

/** A row of the view `caller`, with the state of the resource. */
type CallerRow = Omit<Selectable<CallerView>, 'hash'> & { state: object | null }

/** A token's hash, and the id of the resource to read. */
interface Question {
  hash: Buffer
  resource: number | null
}

/** `found` is the `CallerRow` as JSON, because one text takes less time than a column for each field. */
export type CallerStatement = Statement<Question, { found: string | null }>

/**
 * Finds the caller by the hash of the token and reads the resource in the same statement. Nothing is cached, so a revocation takes effect with
 * the next request. `useIsStale`: the token's last use should be recorded again. Throws `NotAuthenticated` and database errors.
 */
export async function authenticate(
  db: Executor,
  hash: Buffer,
  lookup: Lookup | undefined,
): Promise<CallerNow & { useIsStale: boolean }> {
  const answer = await (lookup?.id === undefined
    ? callerOnly.first(db, { hash, resource: null })
    : lookup.statement.first(db, { hash, resource: lookup.id }))
  const row = JSON.parse(answer?.found ?? 'null') as CallerRow | null
  if (row === null || !row.valid) throw invalidToken()
  if (row.expired)
    throw new NotAuthenticated('TOKEN_EXPIRED', 'This token has expired. Make one with: agentctl token create.')
  return { caller: callerOf(row), prefetched: row.state, useIsStale: row.use_is_stale }
}

function callerOf(row: CallerRow): Caller {
  const isBound = row.persona_ids !== null || row.tool_ids !== null
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
      bound: isBound ? { persona: row.persona_ids ?? [], tool: row.tool_ids ?? [] } : null,
      requiresIfMatch: row.requires_if_match,
      readOnly: row.scopes?.some(scope => ['read', 'runtime', 'propose'].includes(scope)) ?? false,
      expiresAt: row.expires_at,
    },
  }
}

const caller = on<{ caller: 'caller' }>()

/** SQL: the caller that a `callerStatement` reads, as a viewer. */
export const viewerOfCaller: Viewer = {
  user: caller.ref('caller.user_id'),
  isAdmin: caller('caller.permission', '=', lit(3)),
  managesAll: caller('caller.permission', '>=', lit(2)),
  managedGroups: caller.ref('caller.managed_groups'),
  tools: sql`case when caller.persona_ids is not null or caller.tool_ids is not null then coalesce(caller.tool_ids, '{}') end`,
  agents: sql`case when caller.persona_ids is not null or caller.tool_ids is not null then coalesce(caller.persona_ids, '{}') end`,
}

/** Builds a statement that reads the caller of a token together with a resource. */
export function callerStatement(
  name: string,
  resource: (id: Expression<number>) => Expression<unknown>,
): CallerStatement {
  return statement<Question, { found: string | null }>(name, { hash: 'bytea', resource: 'integer' }, param => {
    const caller = queries().selectFrom('caller').selectAll('caller').where('caller.hash', '=', param('hash'))
    return queries().selectNoFrom(jsonText(caller.select(named(resource(param('resource')), 'state'))).as('found'))
  })
}

const callerOnly = callerStatement('caller', () => on().lit(null))
