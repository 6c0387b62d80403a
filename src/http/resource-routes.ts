import { randomBytes } from 'node:crypto'
import { type TSchema, Type } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import type { Executor } from '../db/statements/statement.js'
import type { ResourceKind } from '../db/tables.js'
import { PreconditionFailed } from '../errors.js'
import type { Actor } from '../updates/audit.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions } from '../updates/resource.js'
import type { Precondition } from '../updates/tag.js'
import { HTTPValidationError } from '../validation/faults.js'
import { identifier, isInt4, reference } from '../validation/vocabulary.js'
import {
  creationHeaders,
  deletionHeaders,
  errorResponses,
  invalidResponse,
  readOneHeaders,
  readResponses,
  updateHeaders,
} from './openapi.js'
import {
  CreationPreconditions,
  IdempotencyKey,
  IfMatch,
  IfNoneMatchOfUpdate,
  NO_PRECONDITION,
  NO_PREFERENCE,
  Prefer,
} from './parameters.js'
import { clientAddressOf } from './request.js'

/* Headers, answers and requests that the routes of agents and tools share. */

/** The request headers of an update. */
export const UpdateHeaders = Type.Object({
  'if-match': IfMatch,
  'if-none-match': IfNoneMatchOfUpdate,
  'idempotency-key': IdempotencyKey,
  prefer: Prefer,
})

/** The request headers of a creation and of a deletion. */
export const CreationHeaders = Type.Object({ ...UpdateHeaders.properties, ...CreationPreconditions })
export const DeletionHeaders = Type.Omit(UpdateHeaders, ['prefer'])

/** The answers of a creation. */
export function creationResponses(snapshot: TSchema, title: 'agent' | 'tool') {
  const description = `The new ${title}; without it where \`return=minimal\` was preferred.`
  return {
    201: { ...reference(snapshot), description, headers: creationHeaders },
    ...invalidResponse('request'),
    ...errorResponses(400, 401, 403, 404, 409, 410, 412, 413, 415, 429, 500, 503),
  }
}

/** The answers of a deletion. */
export function deletionResponses() {
  return {
    204: { description: 'It is deleted.', type: 'null', headers: deletionHeaders },
    422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
    ...errorResponses(400, 401, 403, 404, 409, 412, 413, 415, 428, 429, 500, 503),
  }
}

/** The answers of an update. */
export function updateResponses(snapshot: TSchema, title: 'agent' | 'tool') {
  return {
    200: { ...reference(snapshot), description: `The ${title} as it is now.`, headers: updateHeaders },
    204: { description: 'It is stored; `return=minimal` was preferred.', type: 'null', headers: updateHeaders },
    ...invalidResponse('request'),
    ...errorResponses(400, 401, 403, 404, 409, 410, 412, 413, 415, 428, 429, 500, 503),
  }
}

export const RestoreRequest = Type.Object(
  { version: identifier({ description: 'A version of the history.' }) },
  { $id: 'RestoreRequest' },
)

export const RESTORE_BYTES_MAX = 4 * 1024

/** The answers of a restoration. */
export function restoreResponses(snapshot: TSchema, title: 'agent' | 'tool') {
  return updateResponses(snapshot, title)
}

/** The engine's request for a restoration. */
export function restorerOf<Kind extends ResourceKind>(
  [kind, id]: readonly [Kind, number],
  request: FastifyRequest,
  version: number,
  query: { dry_run?: boolean | undefined },
  { 'idempotency-key': key, ...headers }: Parameters<typeof updaterOf>[2] & { 'idempotency-key'?: string | undefined },
  options: OperationOptions,
) {
  const asked = updaterOf(request, query, headers, options)
  const used = requestKey(request.caller, asked.dryRun ? undefined : key, () => [kind, id, 'restore', version])
  return { ...asked, kind, id, fields: { version: isInt4(version) ? version : 0 }, key: used }
}

/** The answers of a read. */
export function readOneResponses(record: TSchema, title: 'agent' | 'tool') {
  return readResponses(
    {
      ...reference(record),
      description: `The ${title} as it is now, or as \`version\` says.`,
      headers: readOneHeaders,
    },
    readOneHeaders,
    `The ${title} is still what the caller has.`,
    [400, 401, 403, 404, 409, 410, 429, 500, 503],
  )
}

/** The engine's request for an update, from the query and headers. */
export function updaterOf(
  request: FastifyRequest,
  query: { dry_run?: boolean | undefined },
  headers: Partial<Record<'if-match' | 'if-none-match', Precondition | undefined>> & {
    prefer?: typeof NO_PREFERENCE | undefined
  },
  options: OperationOptions,
) {
  const { strict, minimal } = headers.prefer ?? NO_PREFERENCE
  return {
    readNow: (executor: Executor) => request.readNow(executor),
    actor: actorOf(request),
    precondition: headers['if-match'] ?? NO_PRECONDITION,
    ifNoneMatch: headers['if-none-match'] ?? NO_PRECONDITION,
    preconditionRequired: options.requireIfMatch,
    dryRun: query.dry_run ?? false,
    strict,
    minimal,
    caller: request.caller,
    snapshotBytesMax: options.snapshotBytesMax,
  }
}

/** The engine's request for a deletion. Its answer has no body. */
export function deleterOf<Kind extends ResourceKind>(
  kind: Kind,
  id: number,
  request: FastifyRequest,
  query: { dry_run?: boolean | undefined },
  { 'idempotency-key': key, ...headers }: Parameters<typeof updaterOf>[2] & { 'idempotency-key'?: string | undefined },
  options: OperationOptions,
) {
  const asked = updaterOf(request, query, { ...headers, prefer: undefined }, options)
  const used = requestKey(request.caller, asked.dryRun ? undefined : key, () => [kind, id, 'delete'])
  return { ...asked, minimal: true, kind, id, fields: { deleted: true } as object, key: used }
}

/** The engine's request for a creation. Throws `PreconditionFailed`: nothing is stored that `If-Match` could name (RFC 9110, 13.1.1). */
export function creatorOf(
  request: FastifyRequest,
  query: { dry_run?: boolean | undefined },
  { prefer, 'if-match': ifMatch }: Parameters<typeof updaterOf>[2],
  options: OperationOptions,
) {
  if (ifMatch !== undefined) throw new PreconditionFailed('nothing_stored', null)
  return updaterOf(request, query, { prefer, 'if-match': { kind: 'any' } }, options)
}

/** The caller as author for the audit trail. */
function actorOf(request: FastifyRequest): Actor {
  const { caller } = request
  return {
    id: caller.userId,
    tokenId: caller.token.id,
    requestId: uniqueId(request),
    clientAddress: clientAddressOf(request),
    command: null,
  }
}

/** A client may reuse its request ids. So a dot, which they cannot contain, and a random suffix are appended. */
function uniqueId({ id, headers }: FastifyRequest): string {
  return headers['x-request-id'] === id ? `${id}.${randomBytes(OWN_ID_BYTES).toString('base64url')}` : id
}

const OWN_ID_BYTES = 12
