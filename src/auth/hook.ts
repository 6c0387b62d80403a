import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import type { Permission } from '../db/tables.js'
import { Forbidden, NotAuthenticated, type RateLimitState } from '../errors.js'
import { parseId } from '../schema/parameters.js'
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

/** The access that a route declares; every route has one (a test fails when one does not). */
export interface RoutePolicy {
  /** `public` asks for no token. `manage:actions` also lets group managers through (DECISIONS section 6). */
  permission: Permission | 'public'
  /** The kind of resource that the route works on. */
  resource?: 'persona' | 'tool'
  /** Whether the route stores something: its 503 then says what became of that. */
  writes?: true
  /** Whether its work is requests to other routes, which say what became of it. */
  asksWithin?: true
  /** Whether it makes a new resource: a token that is bound to some cannot, nor can a manager of groups. */
  creates?: true
  /** Whether `X-Onyx-Authorization` is read before `Authorization`, whatever the settings say. */
  takesOnyxHeader?: true
  /** The path parameter that names one, and the statement that reads it along with the caller. */
  lookup?: { parameter: string; statement: CallerStatement }
}

/** The caller of this moment, and the state of the requested resource; null when there is none. */
export type CallerNow = Pick<Authenticated, 'caller' | 'prefetched'>

/** What the log says of a refusal beside its code. */
export interface ToldOfRefusal {
  /** The setting that bounds what it was refused for, if one does. */
  setting: string | undefined
  /** What a 422 finds fault with: nothing that the caller wrote. */
  faults?: readonly string[]
  /** The error behind a 503. */
  cause?: unknown
  /** Whether the update of a 503 is stored. */
  outcome?: unknown
}

declare module 'fastify' {
  interface FastifyContextConfig {
    policy?: RoutePolicy
  }
  interface FastifyRequest {
    /** The caller. Set on every route that is not public, before the body is read. */
    caller: Caller
    /** The state of the resource that the path names, as the route's `lookup` found it; null when there is none. */
    prefetched: object | null
    /** The caller by now, because a body may take long, and what a `lookup` reads. Throws `NotAuthenticated`, `Forbidden`. */
    authenticateAgain(lookup?: Lookup): Promise<CallerNow>
    /** The caller as they are by now, likewise, as a transaction sees them. */
    callerNow(trx: Executor): Promise<Caller>
    /** The SHA-256 of the bearer token, or why there is none, once it was asked for. */
    tokenHash: Buffer | NotAuthenticated | undefined
    /** Why the request was refused, for the metrics: an error code or the reason of a 503. */
    refusal: string | undefined
    /** What the log says of its refusal; put together only for a line that is written. */
    toldOfRefusal: (() => ToldOfRefusal) | undefined
    limit: RateLimitState | undefined
  }
}

/** Establishes the caller, and that token and path allow the request. Throws `NotAuthenticated`, `Forbidden`. */
export type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** The name of the decoration of scopes whose requests are authenticated. */
export const REQUIRES_TOKEN = 'requiresToken'

/**
 * Gives requests their caller. Answers what authenticates a request before its body is read, for the scope with `REQUIRES_TOKEN`, whose
 * routes ask for a permission, as no others may. `requireSchema` throws if a schema with this number of steps does not fit.
 */
export function registerAuthentication(
  app: FastifyInstance,
  database: Database,
  requireSchema: (steps: number) => Promise<void>,
): Authenticate {
  // Typed as always set: authentication sets it before any handler of a route that is not public runs.
  app.decorateRequest('caller', null as unknown as Caller)
  app.decorateRequest('tokenHash', undefined)
  app.decorateRequest('prefetched', null)
  app.decorateRequest('refusal', undefined)
  app.decorateRequest('limit', undefined)
  app.decorateRequest('toldOfRefusal', undefined)
  app.decorateRequest('authenticateAgain', function (this: FastifyRequest, lookup?: Lookup) {
    return authenticateAgain(this, database, lookup)
  })
  app.decorateRequest('callerNow', async function (this: FastifyRequest, trx: Executor) {
    const caller = await authenticateWithin(trx, tokenHashOf(this))
    requireAdmitted(this, caller)
    return caller
  })
  requireDeclaredPolicies(app)
  return (request, reply) => admit(request, reply, database, requireSchema)
}

/** The SHA-256 of a request's bearer token, made once. Throws `NotAuthenticated` when it has none of our form. */
export function tokenHashOf(request: FastifyRequest): Buffer {
  const found = tokenHashIn(request)
  if (found instanceof NotAuthenticated) throw found
  return found
}

/** The same without a throw. `authorization`: the header's value, or that of another header that takes its place. */
export function tokenHashIn(
  request: FastifyRequest,
  authorization = request.headers.authorization,
): Buffer | NotAuthenticated {
  request.tokenHash ??= bearerTokenHash(authorization)
  return request.tokenHash
}

/** Does not start an application with a route that says nothing of its callers, or asks for a permission that nothing checks. */
function requireDeclaredPolicies(app: FastifyInstance): void {
  const undeclared: string[] = []
  app.addHook('onRoute', function ({ url, config }) {
    const permission = config?.policy?.permission
    const isDeclared = permission !== undefined && (permission !== 'public') === this.hasDecorator(REQUIRES_TOKEN)
    if (url !== '*' && !isDeclared) undeclared.push(url) // preflights: every address and none
  })
  app.addHook('onReady', async () => {
    if (undeclared.length > 0) throw new Error(`no permission is declared for ${undeclared.join(', ')}`)
  })
}

async function admit(
  request: FastifyRequest,
  reply: FastifyReply,
  database: Database,
  requireSchema: (steps: number) => Promise<void>,
): Promise<void> {
  const hash = tokenHashOf(request)
  const policy = policyOf(request)
  const lookup = lookupFor(request, policy)
  const { caller, prefetched, useIsStale, schemaSteps } = await withRetries(() => {
    return authenticate(database, hash, lookup)
  })
  await requireSchema(schemaSteps)
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
  const hash = tokenHashOf(request)
  const found = await withRetries(() => authenticate(database, hash, lookup))
  requireAdmitted(request, found.caller)
  return found
}

/** Throws where the caller may not do what the request asks, as far as the token and the path tell. */
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
  const parameters = request.params as Record<string, string> // the router's own: every value is text
  const id = parseId(parameters[lookup.parameter] ?? '', [])
  return { statement: lookup.statement, id: 'value' in id ? id.value : undefined }
}

function requirePermission(caller: Caller, { permission, creates }: RoutePolicy): void {
  if (permission === 'public' || includesPermission(caller.permission, permission)) return
  if (permission === 'manage:actions' && !creates && mayUseToolOperations(caller)) return
  throw new Forbidden(`This operation takes the permission ${permission}.`, permission)
}

/** A token that only reads may try a change: a dry run stores nothing. */
function requireWriting({ token }: Caller, { writes }: RoutePolicy, { query }: Pick<FastifyRequest, 'query'>): void {
  const { dry_run: dryRun } = query as { dry_run?: unknown } // text, or what validation made of it
  if (!writes || !token.readOnly || dryRun === true || dryRun === 'true') return
  throw new Forbidden('This token is read-only: with it nothing is stored. A dry run (dry_run=true) is answered.')
}

/** A token bound to agents only cannot call tool operations, and the reverse; validation needs no one tool. */
function requireBinding({ token }: Caller, { resource, creates }: RoutePolicy, lookup: Lookup | undefined): void {
  if (resource === undefined || (token.personaIds === null && token.toolIds === null)) return
  if (creates) throw new Forbidden('This token is bound to some agents and tools, and cannot create others.')
  const bound = (resource === 'persona' ? token.personaIds : token.toolIds) ?? []
  if (lookup === undefined ? bound.length > 0 : lookup.id !== undefined && bound.includes(lookup.id)) return
  throw new Forbidden('This token is bound to other resources.')
}

/** Whether a route with this policy lets the caller in, as far as the token tells. */
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

/** Writes the token's last use, at most once a minute; nobody waits for it and its failure fails no request. */
function recordUse(request: FastifyRequest, database: Database, id: number): void {
  recordLastUse
    .for({ id })
    .batched(database)
    .catch(error => request.log.debug({ err: error }, 'the last use of a token was not recorded'))
}
