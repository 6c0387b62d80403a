import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { sql } from 'kysely'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import { INT4_MAX, type Permission } from '../db/tables.js'
import { Forbidden, NotAuthenticated } from '../errors.js'
import { authenticate, type CallerNow, type CallerStatement, type Lookup } from './authenticate.js'
import { type Caller, includesPermission } from './caller.js'
import { bearerTokenHash } from './token.js'

/** The access policy of a route. The application does not start with a route that has none. */
export interface RoutePolicy {
  /** `public` needs no token. `manage:actions` also admits group managers (DECISIONS section 6). */
  permission: Permission | 'public'
  resource?: 'persona' | 'tool'
  /** True if the body may hold a definition: a large one is parsed by the worker that checks it. */
  takesDefinition?: true
  /** True if the route stores something. Its 503 then has the outcome. */
  writes?: true
  /** True if the route is for proposals only, `if asked` if its query must have `propose=true` for that. */
  proposes?: true | 'if asked'
  /** True if the route calls other routes, whose answers report the outcome. */
  asksWithin?: true
  /** True if it answers secrets of tools: only tokens of runtimes may call it. */
  answersSecrets?: true
  /** True if it creates a resource. Bound tokens and group managers must not create any. */
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
    /** The caller. Set on every route that is not public, before the body is read. */
    caller: Caller
    /** The state of the resource in the path, read by the route's `lookup`; null if it does not exist. */
    prefetched: object | null
    /** Authenticates again, because receiving a body may take long, and reads the resource of the `lookup`. Throws `NotAuthenticated`, `Forbidden`. */
    authenticateAgain(lookup?: Lookup): Promise<CallerNow>
    /** Like `authenticateAgain`, but without retries, in a transaction or on the pool. */
    readNow(executor: Executor, lookup?: Lookup): Promise<CallerNow>
    /** The SHA-256 of the bearer token, or the refusal if there is none; undefined until it is first needed. */
    tokenHash: Buffer | NotAuthenticated | undefined
    /** The reason for a refusal, for metrics: an error code or the reason of a 503. */
    refusal: string | undefined
    /** Details of a refusal for the log, without caller input. */
    told: Readonly<Record<string, unknown>> | undefined
  }
}

/** Authenticates a request, and checks that token and path allow it. Throws `NotAuthenticated`, `Forbidden`. */
export type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** The decorator that marks scopes whose requests are authenticated. */
export const REQUIRES_TOKEN = 'requiresToken'

/**
 * Adds the caller to requests. Returns the function that authenticates a request before its body is read, for the scope with
 * `REQUIRES_TOKEN`. Only routes of that scope may declare a permission.
 */
export function registerAuthentication(app: FastifyInstance, database: Database): Authenticate {
  // Authentication sets it before the handler of any route that is not public, so the type is not nullable.
  app.decorateRequest('caller', null as unknown as Caller)
  app.decorateRequest('prefetched', null)
  for (const name of ['tokenHash', 'refusal', 'told'] as const) app.decorateRequest(name, undefined)
  app.decorateRequest('authenticateAgain', function (this: FastifyRequest, lookup?: Lookup) {
    return withRetries(() => this.readNow(database.db, lookup))
  })
  app.decorateRequest('readNow', async function (this: FastifyRequest, executor: Executor, lookup = lookupOf(this)) {
    const found = await authenticate(executor, tokenHashOf(this), lookup)
    requireAdmitted(found.caller, policyOf(this), this)
    return found
  })
  requireDeclaredPolicies(app)
  return async (request, reply) => {
    const lookup = lookupOf(request)
    const { caller, prefetched, useIsStale } = await withRetries(() => {
      return authenticate(database.db, tokenHashOf(request), lookup)
    })
    Object.assign(request, { caller, prefetched })
    if (caller.token.expiresAt !== null) reply.header('token-expires-at', caller.token.expiresAt)
    if (useIsStale) recordUse(request, database, caller.token.id)
    requireAdmitted(caller, policyOf(request), request)
  }
}

/** The SHA-256 of a request's bearer token, computed once. Throws `NotAuthenticated` without a well-formed token. */
function tokenHashOf(request: FastifyRequest): Buffer {
  const found = tokenHashIn(request)
  if (found instanceof NotAuthenticated) throw found
  return found
}

/** Like `tokenHashOf`, but returns the error. `authorization` may come from another header. */
export function tokenHashIn(
  request: FastifyRequest,
  authorization = request.headers.authorization,
): Buffer | NotAuthenticated {
  request.tokenHash ??= bearerTokenHash(authorization)
  return request.tokenHash
}

/** Prevents the start of an application that has a route without a permission, or with one that no hook checks. */
function requireDeclaredPolicies(app: FastifyInstance): void {
  const undeclared: string[] = []
  app.addHook('onRoute', function ({ url, config }) {
    const permission = config?.policy?.permission
    const isDeclared = permission !== undefined && (permission !== 'public') === this.hasDecorator(REQUIRES_TOKEN)
    if (url !== '*' && !isDeclared) undeclared.push(url) // preflights match every address
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

/** The id in the path; undefined if it is not a valid one. */
export function idIn({ params }: Pick<FastifyRequest, 'params'>, parameter: string): number | undefined {
  const text = String((params as Record<string, unknown>)[parameter]) // a number after validation
  const id = /^\d+$/.test(text) ? Number(text) : 0
  return id >= 1 && id <= INT4_MAX ? id : undefined
}

/** Throws `Forbidden` if token and path do not allow a request. */
function requireAdmitted(
  { permission, managedGroupIds, token }: Caller,
  policy: RoutePolicy,
  request: Pick<FastifyRequest, 'params' | 'query'>,
): void {
  const { permission: wanted, resource, creates, writes, answersSecrets, lookup } = policy
  if (answersSecrets && !token.scopes?.includes('runtime'))
    throw new Forbidden('This takes a token of a runtime: agentctl token create --runtime.')
  const isManager = wanted === 'manage:actions' && !creates && managedGroupIds.length > 0
  if (wanted !== 'public' && !includesPermission(permission, wanted) && !isManager)
    throw new Forbidden(`This operation requires the permission ${wanted}.`, wanted)
  const { dry_run: dryRun, propose } = request.query as Record<string, unknown> // text, or a boolean after validation
  const proposes = policy.proposes === true || (policy.proposes === 'if asked' && String(propose) === 'true')
  const mayPropose = proposes && token.scopes?.includes('propose')
  if (writes && token.readOnly && !mayPropose && String(dryRun) !== 'true')
    throw new Forbidden(
      `This token ${token.scopes?.includes('propose') ? 'stores only proposals (propose=true)' : READ_ONLY}. A dry run (dry_run=true) is answered.`,
    )
  if (resource === undefined || (token.personaIds === null && token.toolIds === null)) return
  if (creates) throw new Forbidden('This token is bound to some agents and tools, and cannot create others.')
  // A token bound only to agents cannot call tool operations, and vice versa. Validation works on no particular tool.
  const bound = (resource === 'persona' ? token.personaIds : token.toolIds) ?? []
  const id = lookup && idIn(request, lookup.parameter)
  if (lookup === undefined ? bound.length === 0 : id === undefined || !bound.includes(id))
    throw new Forbidden('This token is bound to other resources.')
}

const READ_ONLY = 'is read-only: with it nothing is stored'

/** True if a route with this policy admits the caller, judging by the token alone. */
export function admits({ lookup: _, ...policy }: RoutePolicy, caller: Caller): boolean {
  try {
    requireAdmitted(caller, policy, { params: {}, query: {} })
    return true
  } catch {
    return false
  }
}

/** Writes the token's last use, at most once a minute. The request does not wait for it, and does not fail with it. It skips a locked row. */
function recordUse({ log }: FastifyRequest, { db }: Database, id: number): void {
  sql`
    update token set last_used_at = clock_timestamp()
    where id = (select id from token where id = ${id} for no key update skip locked)`
    .execute(db)
    .catch(error => log.debug({ err: error }, 'the last use of a token was not recorded'))
}
