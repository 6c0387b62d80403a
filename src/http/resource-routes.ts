import { type TSchema, Type } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import type { Executor } from '../db/statements/statement.js'
import { reference } from '../schema/vocabulary.js'
import { actorOf } from '../updates/actor.js'
import type { WorkBounds } from '../updates/resource.js'
import type { Precondition } from '../updates/tag.js'
import { errorResponses, invalidResponse, updateHeaders } from './openapi.js'
import { IdempotencyKey, IfMatch, NO_PRECONDITION, NO_PREFERENCE, Prefer } from './parameters.js'

/* What reads and updates of agents and tools take and answer alike. */

/** The headers that an update takes. */
export const UpdateHeaders = Type.Object({ 'if-match': IfMatch, 'idempotency-key': IdempotencyKey, prefer: Prefer })

/** What an update answers. */
export function updateResponses(snapshot: TSchema, title: 'agent' | 'tool') {
  return {
    200: { ...reference(snapshot), description: `The ${title} as it is now.`, headers: updateHeaders },
    204: { description: 'It is stored; `return=minimal` was preferred.', type: 'null', headers: updateHeaders },
    ...invalidResponse('request'),
    ...errorResponses(400, 401, 403, 404, 409, 412, 413, 415, 428, 429, 500, 503),
  }
}

/** An update as the engine knows it, with what its query and headers ask for. */
export function updaterOf(
  request: FastifyRequest,
  query: { dry_run?: boolean | undefined },
  headers: { 'if-match'?: Precondition | undefined; prefer?: typeof NO_PREFERENCE | undefined },
  options: { snapshotBytesMax: number; requireIfMatch: boolean; bounds: WorkBounds },
) {
  const { strict, merges, minimal } = headers.prefer ?? NO_PREFERENCE
  return {
    authenticateAgain: () => request.authenticateAgain(),
    callerNow: (trx: Executor) => request.callerNow(trx),
    actor: actorOf(request),
    precondition: headers['if-match'] ?? NO_PRECONDITION,
    preconditionRequired: options.requireIfMatch,
    dryRun: query.dry_run ?? false,
    strict,
    merges,
    minimal,
    caller: request.caller,
    bounds: options.bounds,
    snapshotBytesMax: options.snapshotBytesMax,
  }
}
