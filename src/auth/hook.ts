import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import type { Permission } from '../db/tables.js'
import { Forbidden, NotAuthenticated } from '../errors.js'
import { parseId } from '../validation/parameters.js'
import {
  type Authenticated,
  authenticate,
  authenticateWithin,
  type CallerStatement,
  type Lookup,
} from './authenticate.js'
import { type Caller, includesPermission, mayUseToolOperations } from './caller.js'
import { recordLastUse } from './last-use.js'
import { bearerTokenHash } from './token.js'

/** The access policy of a route. The application does not start with a route that has none. */
export interface RoutePolicy {
  /** `public` needs no token. `manage:actions` also admits group managers (DECISIONS section 6). */
  permission: Permission | 'public'
  /** The kind of resource that the route works on. */
  resource?: 'persona' | 'tool'
  /** True if the body may hold a definition: a large one is parsed by the worker that checks it. */
  takesDefinition?: true
  /** True if the route stores something. Its 503 then has the outcome. */
  writes?: true
  /** True if the route sends requests to other routes, whose answers have the outcome. */
  asksWithin?: true
  /** True if it creates a resource. Bound tokens and group managers must not create any. */
  creates?: true
  /** True if `X-Onyx-Authorization` takes precedence over `Authorization`, whatever the settings are. */
  takesOnyxHeader?: true
  /** The path parameter with the resource's id, and the statement that reads the resource with the caller. */
  lookup?: { parameter: string; statement: CallerStatement }
}

/** The current caller, and the state of the requested resource; null if it does not exist. */
export type CallerNow = Pick<Authenticated, 'caller' | 'prefetched'>

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
    /** The same in a transaction or on the pool, without retries. */
    readNow(executor: Executor): Promise<CallerNow>
    /** Authenticates again within a transaction. Throws likewise. */
    callerNow(trx: Executor): Promise<Caller>
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
  app.decorateRequest('tokenHash', undefined)
  app.decorateRequest('prefetched', null)
  app.decorateRequest('refusal', undefined)
  app.decorateRequest('told', undefined)
  app.decorateRequest('authenticateAgain', function (this: FastifyRequest, lookup?: Lookup) {
    return authenticateAgain(this, database, lookup)
  })
  app.decorateRequest('readNow', function (this: FastifyRequest, executor: Executor) {
    return readNow(this, executor)
  })
  app.decorateRequest('callerNow', async function (this: FastifyRequest, trx: Executor) {
    const caller = await authenticateWithin(trx, tokenHashOf(this))
    requireAdmitted(this, caller)
    return caller
  })
  requireDeclaredPolicies(app)
  return (request, reply) => admit(request, reply, database)
}

/** The SHA-256 of a request's bearer token, computed once. Throws `NotAuthenticated` without a well-formed token. */
export function tokenHashOf(request: FastifyRequest): Buffer {
  const found = tokenHashIn(request)
  if (found instanceof NotAuthenticated) throw found
  return found
}

/** The same, returning the error. `authorization` may come from another header. */
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

async function admit(request: FastifyRequest, reply: FastifyReply, database: Database): Promise<void> {
  const hash = tokenHashOf(request)
  const policy = policyOf(request)
  const lookup = lookupFor(request, policy)
  const { caller, prefetched, useIsStale } = await withRetries(() => {
    return authenticate(database.db, hash, lookup)
  })
  request.caller = caller
  request.prefetched = prefetched
  if (caller.token.expiresAt !== null) reply.header('token-expires-at', caller.token.expiresAt)
  if (useIsStale) recordUse(request, database, caller.token.id)
  requirePermission(caller, policy)
  requireWriting(caller, policy, request)
  requireBinding(caller, policy, lookup)
}

async function authenticateAgain(
  request: FastifyRequest,
  database: Database,
  lookup = lookupFor(request, policyOf(request)),
): Promise<CallerNow> {
  return await withRetries(() => readNow(request, database.db, lookup))
}

async function readNow(
  request: FastifyRequest,
  executor: Executor,
  lookup = lookupFor(request, policyOf(request)),
): Promise<CallerNow> {
  const found = await authenticate(executor, tokenHashOf(request), lookup)
  requireAdmitted(request, found.caller)
  return found
}

/** Throws if the caller must not make this request, judging by token and path. */
function requireAdmitted(request: FastifyRequest, caller: Caller): void {
  const policy = policyOf(request)
  requirePermission(caller, policy)
  requireWriting(caller, policy, request)
  requireBinding(caller, policy, lookupFor(request, policy))
}

function policyOf({ policy }: FastifyRequest): RoutePolicy {
  if (policy === undefined) throw new Error('a request without a policy has no caller')
  return policy
}

function lookupFor(request: FastifyRequest, { lookup }: RoutePolicy): Lookup | undefined {
  if (lookup === undefined) return undefined
  const parameters = request.params as Record<string, string> // path parameters are always text
  const id = parseId(parameters[lookup.parameter] ?? '', [])
  return { statement: lookup.statement, id: 'value' in id ? id.value : undefined }
}

function requirePermission(caller: Caller, { permission, creates }: RoutePolicy): void {
  if (permission === 'public' || includesPermission(caller.permission, permission)) return
  if (permission === 'manage:actions' && !creates && mayUseToolOperations(caller)) return
  throw new Forbidden(`This operation takes the permission ${permission}.`, permission)
}

/** A read-only token may make dry runs, which store nothing. */
function requireWriting({ token }: Caller, { writes }: RoutePolicy, { query }: Pick<FastifyRequest, 'query'>): void {
  const { dry_run: dryRun } = query as { dry_run?: unknown } // text, or a boolean after validation
  if (!writes || !token.readOnly || dryRun === true || dryRun === 'true') return
  throw new Forbidden('This token is read-only: with it nothing is stored. A dry run (dry_run=true) is answered.')
}

/** A token bound only to agents cannot call tool operations, and vice versa. Validation works on no particular tool. */
function requireBinding({ token }: Caller, { resource, creates }: RoutePolicy, lookup: Lookup | undefined): void {
  if (resource === undefined || (token.personaIds === null && token.toolIds === null)) return
  if (creates) throw new Forbidden('This token is bound to some agents and tools, and cannot create others.')
  const bound = (resource === 'persona' ? token.personaIds : token.toolIds) ?? []
  if (lookup === undefined ? bound.length > 0 : lookup.id !== undefined && bound.includes(lookup.id)) return
  throw new Forbidden('This token is bound to other resources.')
}

/** True if a route with this policy admits the caller, judging by the token alone. */
export function admits(policy: RoutePolicy, caller: Caller): boolean {
  try {
    requirePermission(caller, policy)
    requireWriting(caller, policy, { query: {} })
    requireBinding(caller, policy, undefined)
    return true
  } catch {
    return false
  }
}

/** Writes the token's last use, at most once a minute. The request does not wait for it, and does not fail with it. */
function recordUse(request: FastifyRequest, database: Database, id: number): void {
  recordLastUse
    .run(database.db, { id })
    .catch(error => request.log.debug({ err: error }, 'the last use of a token was not recorded'))
}
