import { randomBytes } from 'node:crypto'
import { type Static, type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify'
import type { RoutePolicy } from '../auth/authenticate.js'
import type { ResourceKind } from '../db/tables.js'
import { InvalidRequest, type Loc, PreconditionFailed, ResourceNotFound } from '../errors.js'
import { updateOnce } from '../updates/engine.js'
import { requestKey } from '../updates/idempotency.js'
import type {
  Act,
  Actor,
  OperationOptions,
  ResourceTypes,
  Stored,
  UpdateRequest,
  VersionedResource,
} from '../updates/resource.js'
import { entityTag } from '../updates/tag.js'
import { fault } from '../validation/faults.js'
import { pathId, queryFlag, queryText } from '../validation/parameters.js'
import { identifier, isInt4, reference } from '../validation/vocabulary.js'
import { addWarnings, JSON_TYPE, notePreferences } from './answer.js'
import { responses } from './openapi.js'
import {
  CreationPreconditions,
  DryRun,
  IdempotencyKey,
  IfMatch,
  IfNoneMatchOfUpdate,
  NO_PRECONDITION,
  NO_PREFERENCE,
  Prefer,
} from './parameters.js'
import { clientAddressOf } from './request.js'

export const UpdateHeaders = Type.Object({
  'if-match': IfMatch,
  'if-none-match': IfNoneMatchOfUpdate,
  'idempotency-key': IdempotencyKey,
  prefer: Prefer,
})

export const MESSAGE_LENGTH_MAX = 512

const PROPOSING = {
  propose: queryFlag(
    '`true` stores a proposal instead of the update and answers 202. Requires `If-Match` with an `ETag`. Every user who can see an agent can ' +
      'propose to change the agent. With `dry_run=true`, nothing is stored.',
  ),
  message: queryText(MESSAGE_LENGTH_MAX, 'With `propose=true`: a message to the people who decide on the proposal.'),
}

/** The request headers of each act whose headers differ from those of an update. */
const HEADERS: { readonly [A in Act]?: TObject } = {
  creation: Type.Object({ ...UpdateHeaders.properties, ...CreationPreconditions }),
  deletion: Type.Omit(UpdateHeaders, ['prefer']),
}

export const RestoreRequest = Type.Object(
  { version: identifier({ description: 'The number of the version to restore.' }) },
  { $id: 'RestoreRequest' },
)
export const RESTORES = { body: RestoreRequest, bodyLimit: 4 * 1024 }

type Unparsed = Omit<FastifyRequest, 'params' | 'query' | 'headers' | 'body'>

/** A validated request that stores something. */
export interface WriteRequest<Body extends TObject = TObject> extends Unparsed {
  params: Record<string, number | undefined>
  body: Static<Body>
  query: { dry_run?: boolean; propose?: boolean; message?: string; update_mask?: string[] }
  headers: Partial<Static<typeof UpdateHeaders>>
}

type Common = Omit<UpdateRequest, 'kind' | 'id' | 'fields' | 'key'>

type Own<T extends ResourceTypes> = Omit<T['Request'], keyof UpdateRequest> & {
  fields?: object
  /** Returns the values that must be equal if a request is repeated. The values of a tool's headers are hashed with the key `secretKeyId`. */
  about?: (secretKeyId: string | null) => readonly unknown[]
  secretKeyId?: string | null
  warnings(stored: Stored<T>): string[] | Promise<string[]>
}

export interface WriteRoute<T extends ResourceTypes, Body extends TObject> {
  resource: VersionedResource<T>
  method: HTTPMethods
  url: string
  policy: RoutePolicy
  operationId: string
  summary: string
  description: string
  /** The schema of the answer. Absent for a deletion, because its answer has no body. */
  record?: TSchema
  query?: TProperties
  body?: Body
  bodyLimit?: number
  ask(request: WriteRequest<Body>, common: Common): Own<T> | Promise<Own<T>>
}

/** Registers a route for one act on one kind of resource. */
export function registerWrite<T extends ResourceTypes, Body extends TObject>(
  app: FastifyInstance,
  options: OperationOptions,
  route: WriteRoute<T, Body>,
): void {
  const { resource, method, url, policy, bodyLimit, body, record, query, ask: _, ...shown } = route
  const { kind, act } = resource
  app.route({
    ...{ method, url },
    ...(bodyLimit !== undefined && { bodyLimit }),
    config: { policy: act === 'update' ? { ...policy, proposes: 'if asked' } : policy },
    schema: {
      ...shown,
      ...(act !== 'creation' && { params: Type.Object({ [`${kind}_id`]: pathId() }) }),
      querystring: Type.Object({ ...query, dry_run: DryRun, ...(act === 'update' && PROPOSING) }),
      headers: HEADERS[act] ?? UpdateHeaders,
      ...(body !== undefined && { body }),
      response: responsesOf(kind, act, record),
    },
    handler: async (request, reply) => await handle(options, route, request as unknown as WriteRequest<Body>, reply), // validated by the schemas
  })
}

/**
 * Stores a change or a proposal. A creation is answered with 201, a proposal with 202, and any other change with 200. An answer without a body has
 * the status 204, or 201 for a creation. Without a dry run, the answer to a creation or a proposal has a `Location`.
 */
async function handle<T extends ResourceTypes, Body extends TObject>(
  { database, ...options }: OperationOptions,
  { resource, ask }: WriteRoute<T, Body>,
  request: WriteRequest<Body>,
  reply: FastifyReply,
): Promise<string | FastifyReply> {
  const { kind, act } = resource
  const creates = act === 'creation'
  const isGone = act === 'deletion'
  const id = creates ? 0 : request.params[`${kind}_id`]
  if (id === undefined) throw new ResourceNotFound(kind)
  const common = commonOf(request, act, options)
  const { dryRun, proposes } = common
  const asked = { ...ofAct(request, kind, act, id), ...(await ask(request, common)) }
  const { about = () => [], secretKeyId = null, warnings, ...own } = asked
  const { message = '' } = request.query
  const same = (keyId: string | null) => [...(proposes ? ['propose', message] : []), ...about(keyId)]
  const key = requestKey(request.caller, dryRun ? undefined : request.headers['idempotency-key'], same, secretKeyId)
  const job = { database, resource, request: { kind, id, key, ...common, ...own } as T['Request'] }
  const stored = proposes
    ? await options.propose(job, message)
    : await updateOnce(job, request.prefetched as T['State'] | null)
  const { snapshot, proposal } = stored
  const tag = entityTag(kind, stored.id, stored.version)
  const made = proposal ?? (creates ? { location: `/${kind}/${stored.id}`, tag } : undefined)
  if (made !== undefined && !dryRun) reply.headers({ location: made.location, etag: made.tag })
  else if (!creates && !isGone) reply.header('etag', tag)
  const isRepeated = stored.decision === null
  if (isRepeated) reply.header('idempotent-replayed', 'true')
  addWarnings(reply, await warnings(stored))
  if (dryRun) reply.header('dry-run', 'true')
  notePreferences(reply, {
    'handling=strict': common.strict && !isRepeated, // a repeated request is not checked again
    'return=minimal': snapshot === null && !isGone,
  })
  const [whole, empty] = creates ? [201, 201] : [proposal === undefined ? 200 : 202, 204]
  if (snapshot === null) return reply.code(empty).send()
  reply.code(whole).type(JSON_TYPE)
  return snapshot
}

function ofAct({ body }: WriteRequest, kind: ResourceKind, act: Act, id: number) {
  if (act === 'deletion') return { fields: { deleted: true }, about: () => [kind, id, 'delete'] }
  const { version } = body as Static<typeof RestoreRequest>
  const fields = { version: isInt4(version) ? version : 0 }
  return act === 'restoration' ? { fields, about: () => [kind, id, 'restore', version] } : {}
}

/**
 * Returns the properties that the requests of all acts have in common. Throws `InvalidRequest` for an invalid message, and `PreconditionFailed` for a
 * creation with `If-Match` (RFC 9110, section 13.1.1).
 */
export function commonOf(
  request: Unparsed & { query: unknown; headers: unknown },
  act: Act,
  options: Pick<OperationOptions, 'requireIfMatch' | 'requireApproval' | 'snapshotBytesMax'>,
): Common {
  const { query, headers } = request as Pick<WriteRequest, 'query' | 'headers'> // the route's schemas validate both
  const { 'if-match': ifMatch, 'if-none-match': ifNoneMatch = NO_PRECONDITION } = headers
  const creates = act === 'creation'
  const isGone = act === 'deletion'
  if (creates && ifMatch !== undefined) throw new PreconditionFailed('nothing_stored', null)
  const { propose: proposes = false, message, dry_run: dryRun = false } = query
  if (message !== undefined && !proposes) throw new InvalidRequest([fault('extra_forbidden', ['query', 'message'])])
  requirePlain(message, ['query', 'message'])
  const { strict, minimal } = (isGone ? undefined : headers.prefer) ?? NO_PREFERENCE
  return {
    readNow: (executor, lookup) => request.readNow(executor, lookup),
    actor: actorOf(request),
    precondition: creates ? { kind: 'any' } : (ifMatch ?? NO_PRECONDITION),
    ifNoneMatch: creates ? NO_PRECONDITION : ifNoneMatch,
    preconditionRequired: options.requireIfMatch,
    requireApproval: proposes ? 'none' : options.requireApproval,
    ...{ dryRun, proposes },
    strict,
    minimal: minimal || isGone,
    caller: request.caller,
    snapshotBytesMax: options.snapshotBytesMax,
  }
}

/** Throws `InvalidRequest` if the text contains characters that change how a terminal shows it. */
export function requirePlain(text = '', loc: Loc): void {
  const msg = 'Text must not contain bidirectional control characters, or control characters other than tab and newline'
  if (/[^\P{Cc}\n\t]|\p{Bidi_Control}/u.test(text)) throw new InvalidRequest([{ loc, msg, type: 'string_control' }])
}

/** Returns the caller as the author in the audit trail. A random suffix makes a client's request id unique. */
export function actorOf(request: Unparsed): Actor {
  const { id, raw, caller } = request
  const isGiven = raw.headers['x-request-id'] === id
  return {
    actor_id: caller.userId,
    token_id: caller.token.id,
    request_id: isGiven ? `${id}.${randomBytes(12).toString('base64url')}` : id,
    client_address: clientAddressOf(request),
    command: null,
  }
}

function responsesOf(kind: ResourceKind, act: Act, record?: TSchema) {
  const title = kind === 'persona' ? 'agent' : 'tool'
  const refusals = [404, 409, 412, 413, 415] as const
  const ofWrites = ['idempotent-replayed', 'dry-run', 'warning'] as const
  if (record === undefined)
    return responses({ 204: { description: 'Success without a body.', headers: ofWrites } }, [...refusals, 428])
  const headers = ['etag', 'preference-applied', ...ofWrites] as const
  const body = reference(record)
  if (act === 'creation') {
    const description = `The new ${title}; no body with \`return=minimal\`.`
    return responses({ 201: { description, body, headers: ['location', ...headers] } }, [...refusals, 410])
  }
  const now = { description: `The ${title} after the change.`, body, headers }
  const stored = { description: 'Success without a body, because of `return=minimal`.', headers }
  const proposed = {
    description: 'With `propose=true`: the proposal.',
    body: { $ref: 'ProposalSummary' },
    headers: ['location', ...headers] as const,
  }
  return responses({ 200: now, ...(act === 'update' && { 202: proposed }), 204: stored }, [...refusals, 410, 428])
}
