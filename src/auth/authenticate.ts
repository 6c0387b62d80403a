import { setImmediate } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Expression, type Selectable, sql } from 'kysely'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { jsonText, lit, named, on, queries } from '../db/statements/queries.js'
import { type Executor, type Statement, statement } from '../db/statements/statement.js'
import { type CallerView, INT4_MAX, type Permission } from '../db/tables.js'
import { Forbidden, NotAuthenticated } from '../errors.js'
import { type Caller, includesPermission, PERMISSIONS } from './caller.js'
import { bearerTokenHash, invalidToken } from './token.js'
import type { Viewer } from './viewer.js'

/** The access policy of a route. The application does not start if a route has no policy. */
export interface RoutePolicy {
  /** `public`: no token is needed. `manage:actions`: group managers are also admitted (DECISIONS section 6). */
  permission: Permission | 'public'
  resource?: 'persona' | 'tool'
  /** True if the body can contain a definition. A worker parses and checks large bodies of such routes. */
  takesDefinition?: true
  /** True if the route stores something. A 503 of such a route also has `outcome`, which states whether a change was applied. */
  writes?: true
  /** True if the route stores only proposals. `if asked`: the route stores a proposal if the query has `propose=true`; otherwise, a change. */
  proposes?: true | 'if asked'
  /** True if the route sends inner requests to other routes, as `/mcp` does. Its answer contains the results of the inner requests. */
  asksWithin?: true
  /** True if the answer contains secrets of tools. Only runtime tokens can call such a route. */
  answersSecrets?: true
  /** True if the route creates a resource. Bound tokens and group managers cannot call such a route. */
  creates?: true
  /** True if `X-Onyx-Authorization` takes precedence over `Authorization`. */
  takesOnyxHeader?: true
  /** The path parameter with the resource's id, and the statement that reads the resource together with the caller. */
  lookup?: { parameter: string; statement: CallerStatement }
}

declare module 'fastify' {
  interface FastifyContextConfig {
    policy?: RoutePolicy
  }
  interface FastifyRequest {
    /** The caller, set before the body is read. Unset on public routes. */
    caller: Caller
    /** The state of the resource in the path; null if it does not exist or the route has no `lookup`. */
    prefetched: object | null
    /**
     * Authenticates the caller again and reads the resource of `lookup`, because rights can change while the body arrives. Throws `NotAuthenticated`
     * and `Forbidden`.
     */
    readNow(executor: Executor, lookup?: Lookup): Promise<CallerNow>
    /** The SHA-256 of the bearer token; undefined until it is computed. */
    tokenHash: Buffer | undefined
    /** The reason that the metrics show for a refusal: an error code, or the reason of a 503. */
    refusal: string | undefined
    /** Details of a refusal for the log. They contain no text from the caller. */
    told: Readonly<Record<string, unknown>> | undefined
  }
}

/** Authenticates a request and checks that its token allows the route. Throws `NotAuthenticated` and `Forbidden`. */
export type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** The Fastify decorator that marks plugin scopes whose routes require a token. */
export const REQUIRES_TOKEN = 'requiresToken'

/** Decorates requests with the caller. Returns the function that authenticates a request before its body is read. */
export function registerAuthentication(app: FastifyInstance, database: Database): Authenticate {
  // Null only until authentication sets the caller, so the type omits null.
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
    const key = hash.toString('hex')
    const read = () => withRetries(() => authenticate(database.sharedReads(key), hash, lookup))
    // Requests with the same token that arrive in one turn of the event loop share one read of the caller.
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

/** Returns and remembers the SHA-256 of a request's bearer token. `authorization` is the value of a header. Throws `NotAuthenticated`. */
export function tokenHashOf(request: FastifyRequest, authorization = request.headers.authorization): Buffer {
  request.tokenHash ??= bearerTokenHash(authorization)
  return request.tokenHash
}

/** Fails the start if a route has no permission. Only routes outside `REQUIRES_TOKEN` scopes can be `public`, and all routes there must be. */
function requireDeclaredPolicies(app: FastifyInstance): void {
  const undeclared: string[] = []
  app.addHook('onRoute', function ({ url, config }) {
    const permission = config?.policy?.permission
    const isDeclared = permission !== undefined && (permission !== 'public') === this.hasDecorator(REQUIRES_TOKEN)
    if (url !== '*' && !isDeclared) undeclared.push(url) // `*` is the route of preflight requests
  })
  app.addHook('onReady', async () => {
    if (undeclared.length > 0) throw new Error(`routes without a valid permission: ${undeclared.join(', ')}`)
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

/** Returns the id in the path; undefined if it is not a valid id. */
export function idIn({ params }: Pick<FastifyRequest, 'params'>, parameter: string): number | undefined {
  const text = String((params as Record<string, unknown>)[parameter]) // a string before validation, a number afterwards
  const id = /^\d+$/.test(text) ? Number(text) : 0
  return id >= 1 && id <= INT4_MAX ? id : undefined
}

/** Throws `Forbidden` if the caller's permission or token does not allow the request. */
function requireAdmitted(
  { permission, managedGroupIds, token }: Caller,
  policy: RoutePolicy,
  request: Pick<FastifyRequest, 'params' | 'query'>,
): void {
  const { permission: wanted, resource, creates, writes, answersSecrets, lookup } = policy
  if (answersSecrets && !token.scopes?.includes('runtime'))
    throw new Forbidden(
      'This operation requires a runtime token. Ask the operator for one (agentctl token create --runtime).',
    )
  const isManager = wanted === 'manage:actions' && !creates && managedGroupIds.length > 0
  if (wanted !== 'public' && !includesPermission(permission, wanted) && !isManager)
    throw new Forbidden(`This operation requires the permission ${wanted}.`, wanted)
  const { dry_run: dryRun, propose } = request.query as Record<string, unknown> // a string before validation, a boolean afterwards
  const proposes = policy.proposes === true || (policy.proposes === 'if asked' && String(propose) === 'true')
  const mayPropose = proposes && token.scopes?.includes('propose')
  if (writes && token.readOnly && !mayPropose && String(dryRun) !== 'true')
    throw new Forbidden(
      `This token ${token.scopes?.includes('propose') ? `allows only proposals${policy.proposes ? ' (propose=true)' : ''}` : READ_ONLY}.${lookup || creates ? ' A dry run is allowed (dry_run=true).' : ''}`,
    )
  if (resource === undefined || token.bound === null) return
  if (creates)
    throw new Forbidden(
      'This token is bound to certain agents and tools, so it cannot create an agent or tool. Use a token without bindings.',
    )
  // A route with an id admits tokens bound to that id. A route without an id admits tokens bound to any resource of its kind.
  const bound = token.bound[resource]
  const id = lookup && idIn(request, lookup.parameter)
  if (lookup === undefined ? bound.length === 0 : id === undefined || !bound.includes(id))
    throw new Forbidden(
      'This token is bound to certain agents and tools and does not allow this request. Use another token.',
    )
}

const READ_ONLY = 'is read-only'

/** True if a route with this policy admits the caller. Ignores the path and the query. */
export function admits({ lookup: _, ...policy }: RoutePolicy, caller: Caller): boolean {
  try {
    requireAdmitted(caller, policy, { params: {}, query: {} })
    return true
  } catch {
    return false
  }
}

/** Stores the time of the token's last use in the background, at most once a minute. Does nothing if the row is locked. Never fails the request. */
function recordUse({ log }: FastifyRequest, { db }: Database, id: number): void {
  sql`
    update token set last_used_at = clock_timestamp()
    where id = (select id from token where id = ${id} for no key update skip locked)
      and coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)`
    .execute(db)
    .catch(error => log.debug({ err: error }, 'the last use of a token was not recorded'))
}

/** A resource to read together with the caller. If the path has no valid id, `id` is undefined, and only the caller is read. */
export interface Lookup {
  statement: CallerStatement
  id: number | undefined
}

/** The current caller and the state of the requested resource. The state is null if the resource does not exist. */
export interface CallerNow {
  caller: Caller
  prefetched: object | null
}

/** A row of the view `caller`, with the state of the resource. */
type CallerRow = Omit<Selectable<CallerView>, 'hash'> & { state: object | null }

interface Question {
  hash: Buffer
  resource: number | null
}

/** `found` is a `CallerRow` as JSON text, because one text column is read faster than many columns. */
export type CallerStatement = Statement<Question, { found: string | null }>

/**
 * Reads the caller whose token has the SHA-256 `hash`, and the resource of `lookup` in the same statement. Nothing is cached, so a revocation takes
 * effect with the next request. `useIsStale`: the time of the last use must be updated. Throws `NotAuthenticated` and database errors.
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
    throw new NotAuthenticated(
      'TOKEN_EXPIRED',
      'This token has expired. Ask the operator for a new token (agentctl token create).',
    )
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

/** SQL: the caller in a `callerStatement`, as a viewer. */
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
