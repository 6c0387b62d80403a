import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import cors from '@fastify/cors'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Refused } from '../errors.js'
import { HEADER_NAMES } from './openapi.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The operation id of the route, the URL pattern of a page, or `none` for an unknown path. */
    readonly operation: string
    readonly policy: FastifyContextConfig['policy']
  }
}

/**
 * Decorates requests with the operation and policy of the route, sets the common headers of every answer, and refuses invalid headers. Pages of
 * other origins can send requests only if their origin is in `corsOrigins`.
 */
export async function registerRequests(app: FastifyInstance, corsOrigins: readonly string[]): Promise<void> {
  app.decorateRequest('operation', {
    getter(this: FastifyRequest) {
      const { schema, url } = this.routeOptions
      return schema?.operationId ?? url ?? 'none'
    },
  })
  app.decorateRequest('policy', {
    getter(this: FastifyRequest) {
      const { config } = this.routeOptions as Partial<FastifyRequest['routeOptions']> // undefined if the address is malformed
      return config?.policy
    },
  })
  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply)
    done(requestFault(request))
  })
  if (corsOrigins.length === 0) return
  await app.register(cors, {
    origin: [...corsOrigins],
    methods: ['DELETE', 'GET', 'PATCH', 'POST', 'PUT'],
    allowedHeaders: REQUEST_HEADERS,
    exposedHeaders: HEADER_NAMES,
    maxAge: 600, // seconds
    strictPreflight: false, // in strict mode, an OPTIONS request that is not a preflight is refused without our error body
  })
}

/** Returns the address that trusted proxies report. If that address is invalid, returns the peer's address. IPv4-mapped IPv6 becomes IPv4. */
export function clientAddressOf({ ip, socket }: Pick<FastifyRequest, 'ip' | 'socket'>): string {
  const address = isIP(ip) === 0 ? (socket.remoteAddress ?? '') : ip
  return address.replace(/^::ffff:(?=\d+\.)/i, '')
}

/** Returns the client's `X-Request-ID` if it has the allowed form, or else a new id (DECISIONS section 2). */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const received = headers['x-request-id']
  if (typeof received === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(received)) return received
  return randomUUID()
}

/** Headers that must not be repeated. Node reads only the first value, but a proxy may have read another value. */
const SINGLE_HEADERS = ['host', 'authorization'] as const

/** Returns the error of a request with invalid headers; undefined if the headers are valid. */
export function requestFault({ raw }: FastifyRequest): Error | undefined {
  const { httpVersion, headers, rawHeaders } = raw
  // HTTP/1.1 requires a Host header (RFC 9112, section 3.2). Node's own refusal has no body.
  if (httpVersion === '1.1' && headers.host === undefined)
    return new Refused('BAD_REQUEST', 'The request must have a Host header.')
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map(name => name.toLowerCase())
  const repeated = SINGLE_HEADERS.find(name => names.indexOf(name) !== names.lastIndexOf(name))
  return repeated && new Refused('BAD_REQUEST', `The request must have only one ${repeated} header.`)
}

/** The headers of every answer. Pages replace the content security policy. A proxy in front of the service sets Strict-Transport-Security. */
const COMMON_HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none';frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** Sets the common headers. Also used for requests that Fastify refuses before it runs hooks. */
export function setCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.header('x-request-id', request.id).headers(COMMON_HEADERS)
}

/** The request headers that CORS must allow explicitly. */
const REQUEST_HEADERS =
  'authorization, content-type, idempotency-key, if-match, if-none-match, mcp-method, mcp-name, mcp-protocol-version, prefer, ' +
  'traceparent, x-onyx-authorization, x-request-id'
