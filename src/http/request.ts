import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import cors from '@fastify/cors'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Refused } from '../errors.js'
import { HEADER_NAMES } from './openapi.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The operation id of the route, the address pattern of a page, or `none` for an unknown address. */
    readonly operation: string
    /** The access policy of the route; undefined for an unknown address. */
    readonly policy: FastifyContextConfig['policy']
  }
}

/**
 * Adds getters for the route's operation and policy to each request, sets the common headers of every answer, and refuses requests with
 * unusable headers. Pages of `corsOrigins` only may call the service from a browser, without the browser's credentials.
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
      const { config } = this.routeOptions as Partial<FastifyRequest['routeOptions']> // a malformed address has no route config
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
    maxAge: PREFLIGHT_AGE_S,
    strictPreflight: false, // its refusal of other OPTIONS requests is not in our error shape
  })
}

/** The client's address: the one that trusted proxies report if it is valid, else the peer's. IPv4 addresses are plain. */
export function clientAddressOf({
  ip,
  socket,
}: Pick<FastifyRequest, 'ip'> & { socket: { remoteAddress?: string | undefined } }): string {
  const address = isIP(ip) === 0 ? (socket.remoteAddress ?? '') : ip
  return address.replace(/^::ffff:(?=\d+\.)/i, '')
}

/** The caller's `X-Request-ID` if it has the allowed form, else a new one (DECISIONS section 2). */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const received = headers['x-request-id']
  if (typeof received === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(received)) return received
  return randomUUID()
}

/** Node keeps only the first of these, but a proxy may have used another one. */
const SINGLE_HEADERS = ['host', 'authorization']

/** The refusal of a request for its headers; undefined if they are valid. */
export function requestFault({ raw }: FastifyRequest): Error | undefined {
  const { httpVersion, headers, rawHeaders } = raw
  // HTTP/1.1 requires a Host (RFC 9112, section 3.2). Node's own refusal would have no body.
  if (httpVersion === '1.1' && headers.host === undefined)
    return new Refused('BAD_REQUEST', 'The request has no Host header.')
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map(name => name.toLowerCase())
  const repeated = SINGLE_HEADERS.find(name => names.indexOf(name) !== names.lastIndexOf(name))
  return repeated === undefined
    ? undefined
    : new Refused('BAD_REQUEST', `The request has more than one ${repeated} header.`)
}

/** Headers of every answer. JSON loads nothing, and pages set their own policy. Strict-Transport-Security belongs to the proxy. */
const COMMON_HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none';frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
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
