import cors from '@fastify/cors'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { HEADER_NAMES } from './openapi.js'
import { requestFault } from './request.js'

/** Headers of every answer. JSON loads nothing, and pages set their own policy. Strict-Transport-Security belongs to the proxy. */
const COMMON_HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none';frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** Sets the common headers of every answer, and refuses requests with unusable headers. */
export function registerCommonHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply)
    done(requestFault(request))
  })
}

/** The same headers for a request that skips the hooks. */
export function setCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.header('x-request-id', request.id).headers(COMMON_HEADERS)
}

/** Request headers of the operations, in addition to those that browsers always allow. */
const REQUEST_HEADERS =
  'authorization, content-type, idempotency-key, if-match, if-none-match, mcp-method, mcp-name, mcp-protocol-version, prefer, ' +
  'traceparent, x-onyx-authorization, x-request-id'

/** Cache time of a preflight answer, in seconds. */
const PREFLIGHT_AGE_S = 600

/** Allows pages of these origins only to call the service from a browser, without the browser's credentials. */
export async function registerCors(app: FastifyInstance, origins: readonly string[]): Promise<void> {
  if (origins.length === 0) return
  await app.register(cors, {
    origin: [...origins],
    methods: ['DELETE', 'GET', 'PATCH', 'POST', 'PUT'],
    allowedHeaders: REQUEST_HEADERS,
    exposedHeaders: HEADER_NAMES,
    maxAge: PREFLIGHT_AGE_S,
    strictPreflight: false, // its refusal of other OPTIONS requests is not in our error shape
  })
}
