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
    requestId: request.id,
    clientAddress: clientAddressOf(request),
    command: null,
  }
}
