import { randomBytes } from 'node:crypto'
import { type Static, type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify'
import type { RoutePolicy } from '../auth/authenticate.js'
import type { ResourceKind } from '../db/tables.js'
import { InvalidRequest, type Loc, PreconditionFailed, ResourceNotFound } from '../errors.js'
import type { Actor } from '../updates/audit.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions, ResourceTypes, Stored, UpdateRequest, VersionedResource } from '../updates/resource.js'
import { entityTag } from '../updates/tag.js'
import { updateOnce } from '../updates/update-once.js'
import { fault } from '../validation/faults.js'
import { pathId, queryFlag, queryText } from '../validation/parameters.js'
import { identifier, isInt4, reference } from '../validation/vocabulary.js'
import { JSON_TYPE, notePreferences } from './answer.js'
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
import { addWarnings } from './warnings.js'

/* The routes that create, update, restore and delete agents and tools. */

export const UpdateHeaders = Type.Object({
  'if-match': IfMatch,
  'if-none-match': IfNoneMatchOfUpdate,
  'idempotency-key': IdempotencyKey,
  prefer: Prefer,
})

/** The maximum length of the author's message on a proposal. */
export const MESSAGE_LENGTH_MAX = 512

const PROPOSING = {
  propose: queryFlag(
    '`true` stores the update as a proposal, which takes `If-Match` but not the right to edit, and answers 202 with it; with `dry_run=true` it stores nothing.',
  ),
  message: queryText(MESSAGE_LENGTH_MAX, 'With `propose=true`: a message to those who decide.'),
}

const HEADERS = {
  update: UpdateHeaders,
  restoration: UpdateHeaders,
  creation: Type.Object({ ...UpdateHeaders.properties, ...CreationPreconditions }),
  deletion: Type.Omit(UpdateHeaders, ['prefer']),
}

export const RestoreRequest = Type.Object(
  { version: identifier({ description: 'A version of the history.' }) },
  { $id: 'RestoreRequest' },
)

/** The body of a restoration, and its size limit. */
export const RESTORES = { body: RestoreRequest, bodyLimit: 4 * 1024 }

type Act = VersionedResource<ResourceTypes>['act']

/** A validated request that writes. */
export interface WriteRequest<Body extends TObject = TObject> extends Pick<FastifyRequest, 'caller' | 'raw'> {
  params: Record<string, number | undefined>
  body: Static<Body>
  query: { dry_run?: boolean; propose?: boolean; message?: string; update_mask?: string[] }
  headers: Partial<Static<typeof UpdateHeaders>>
  prefetched: object | null
}

/** The part of the engine's request that all writes have in common. */
export type Basis = Omit<UpdateRequest, 'kind' | 'id' | 'fields' | 'key'>

/** The parts that a kind of write adds. */
type Own<T extends ResourceTypes> = Omit<T['Request'], keyof Basis | 'kind' | 'id' | 'fields' | 'key'> & {
  fields?: object
  /** The values that two requests with the same key must share. Header values are hashed with the ring's key `secretKeyId`. */
  about?: (secretKeyId: string | null) => readonly unknown[]
  secretKeyId?: string | null
  warnings(stored: Stored<T>): string[] | Promise<string[]>
}

/** The definition of a route that writes. */
export interface WriteRoute<T extends ResourceTypes, Body extends TObject> {
  resource: VersionedResource<T>
  method: HTTPMethods
  /** The path. The resource's parameter is `persona_id` or `tool_id`. */
  url: string
  policy: RoutePolicy
  operationId: string
  summary: string
  description: string
  record: TSchema
  query?: TProperties
  body?: Body
  bodyLimit?: number
  ask(request: WriteRequest<Body>, basis: Basis): Own<T> | Promise<Own<T>>
}

/** Registers a route whose requests are stored by the engine. */
export function registerWrite<T extends ResourceTypes, Body extends TObject>(
  app: FastifyInstance,
  options: OperationOptions,
  route: WriteRoute<T, Body>,
): void {
  const { resource, method, url, policy, bodyLimit, body, record, query, ask, ...shown } = route
  const { kind, act } = resource
  const parameter = `${kind}_id`
  app.route({
    ...{ method, url },
    ...(bodyLimit !== undefined && { bodyLimit }),
    config: { policy: act === 'update' ? { ...policy, proposes: 'if asked' } : policy },
    schema: {
      ...shown,
      ...(act !== 'creation' && { params: Type.Object({ [parameter]: pathId() }) }),
      querystring: Type.Object({ ...query, dry_run: DryRun, ...(act === 'update' && PROPOSING) }),
      headers: HEADERS[act],
      ...(body !== undefined && { body }),
      response: responsesOf(kind, act, record),
    },
    async handler(request, reply) {
      const asking = request as unknown as WriteRequest<Body> // the route's schemas validate it
      const id = act === 'creation' ? 0 : asking.params[parameter]
      if (id === undefined) throw new ResourceNotFound(kind)
      const basis = basisOf(request, act, options)
      const made = { secretKeyId: null, ...ofAct(asking, kind, act, id), ...(await ask(asking, basis)) }
      const { about = () => [], secretKeyId, warnings, ...own } = made
      const { message = '' } = asking.query
      const same = (keyId: string | null): readonly unknown[] =>
        basis.proposes ? ['propose', message, ...about(keyId)] : about(keyId)
      const sentKey = basis.dryRun ? undefined : asking.headers['idempotency-key']
      const key = requestKey(request.caller, sentKey, same, secretKeyId)
      const asked = { kind, id, key, ...basis, ...own } as T['Request']
      const { database } = options
      const stored = basis.proposes
        ? await options.propose({ database, resource, request: asked }, message)
        : await updateOnce(database, resource, asked, asking.prefetched as T['State'] | null)
      return answer(reply, resource, basis, stored, await warnings(stored))
    },
  })
}

/** The fields of a restoration or deletion, and the values that identify it. */
function ofAct({ body }: WriteRequest, kind: ResourceKind, act: Act, id: number) {
  if (act === 'deletion') return { fields: { deleted: true }, about: () => [kind, id, 'delete'] }
  const { version } = body as Static<typeof RestoreRequest>
  const fields = { version: isInt4(version) ? version : 0 }
  return act === 'restoration' ? { fields, about: () => [kind, id, 'restore', version] } : {}
}

/** The common part of a write. Throws `PreconditionFailed` for a creation with `If-Match`, which no stored state can match (RFC 9110, section 13.1.1). */
export function basisOf(request: FastifyRequest, act: Act, options: OperationOptions): Basis {
  const { query, headers } = request as unknown as WriteRequest // the route's schemas validate it
  const { 'if-match': ifMatch, 'if-none-match': ifNoneMatch = NO_PRECONDITION } = headers
  if (act === 'creation' && ifMatch !== undefined) throw new PreconditionFailed('nothing_stored', null)
  const creates = act === 'creation'
  const isGone = act === 'deletion'
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

/** Throws `InvalidRequest` if a text contains characters that change how a terminal shows it. */
export function requirePlain(text = '', loc: Loc): void {
  const msg = 'Only text without control characters and marks of direction'
  if (/[^\P{Cc}\n\t]|\p{Bidi_Control}/u.test(text)) throw new InvalidRequest([{ loc, msg, type: 'string_control' }])
}

/** The caller as the author in the audit trail. Clients may repeat request ids, so a random suffix is added after a dot, which they cannot contain. */
export function actorOf(request: FastifyRequest): Actor {
  const { id, headers, caller } = request
  const isGiven = headers['x-request-id'] === id
  return {
    id: caller.userId,
    tokenId: caller.token.id,
    requestId: isGiven ? `${id}.${randomBytes(OWN_ID_BYTES).toString('base64url')}` : id,
    clientAddress: clientAddressOf(request),
    command: null,
  }
}

const OWN_ID_BYTES = 12

function responsesOf(kind: ResourceKind, act: Act, record: TSchema) {
  const title = kind === 'persona' ? 'agent' : 'tool'
  const refusals = [404, 409, 412, 413, 415] as const
  const ofWrites = ['idempotent-replayed', 'dry-run', 'warning'] as const
  if (act === 'deletion')
    return responses({ 204: { description: 'It is deleted.', headers: ofWrites } }, [...refusals, 428])
  const headers = ['etag', 'preference-applied', ...ofWrites] as const
  const body = reference(record)
  if (act === 'creation') {
    const description = `The new ${title}; no body with \`return=minimal\`.`
    return responses({ 201: { description, body, headers: ['location', ...headers] } }, [...refusals, 410])
  }
  const now = { description: `The ${title} as it is now.`, body, headers }
  const stored = { description: 'Stored, with `return=minimal`.', headers }
  const proposed = {
    description: 'Proposed, with `propose=true`.',
    body: { $ref: 'ProposalSummary' },
    headers: ['location', ...headers] as const,
  }
  return responses({ 200: now, ...(act === 'update' && { 202: proposed }), 204: stored }, [...refusals, 410, 428])
}

/** 200, or 204 without a body. A creation gets 201 with its address unless it was a dry run, and a proposal gets 202 with its address. */
function answer<T extends ResourceTypes>(
  reply: FastifyReply,
  { kind, act }: VersionedResource<T>,
  { dryRun, strict }: Basis,
  { id, version, snapshot, decision, proposal }: Stored<T>,
  warnings: readonly string[],
): string | FastifyReply {
  const creates = act === 'creation'
  const isGone = act === 'deletion'
  if (!isGone && !(creates && dryRun)) reply.header('etag', (!dryRun && proposal?.tag) || entityTag(kind, id, version))
  if (creates && !dryRun) reply.header('location', `/${kind}/${id}`)
  if (proposal !== undefined) reply.code(202)
  if (proposal !== undefined && !dryRun) reply.header('location', proposal.location)
  if (decision === null) reply.header('idempotent-replayed', 'true')
  addWarnings(reply, warnings)
  if (dryRun) reply.header('dry-run', 'true')
  notePreferences(reply, {
    'handling=strict': strict && decision !== null, // a repeated request is not checked again
    'return=minimal': snapshot === null && !isGone,
  })
  if (snapshot === null) return reply.code(creates ? 201 : 204).send()
  if (creates) reply.code(201)
  reply.type(JSON_TYPE)
  return snapshot
}
