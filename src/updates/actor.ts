import { randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import type { Actor } from './audit.js'

/** The caller of a request as the audit trail names them. */
export function actorOf(request: FastifyRequest): Actor {
  const { caller } = request
  return {
    id: caller.userId,
    name: caller.email,
    tokenId: caller.token.id,
    requestId: uniqueId(request),
    clientAddress: clientAddressOf(request),
    command: null,
  }
}

/** An id that the client chose may come twice: behind a dot, which no client's id has, stands one of ours. */
function uniqueId({ id, headers }: FastifyRequest): string {
  return headers['x-request-id'] === id ? `${id}.${randomBytes(OWN_ID_BYTES).toString('base64url')}` : id
}

const OWN_ID_BYTES = 12
