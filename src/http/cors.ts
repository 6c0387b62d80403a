import cors from '@fastify/cors'
import type { FastifyInstance } from 'fastify'

/** What a client of the operations sends, beside what every browser may send. */
const REQUEST_HEADERS = [
  'authorization',
  'content-type',
  'idempotency-key',
  'if-match',
  'if-none-match',
  'prefer',
  'traceparent',
  'x-request-id',
]

/** What a client needs to read of an answer. */
const ANSWER_HEADERS = [
  'dry-run',
  'etag',
  'idempotent-replayed',
  'link',
  'preference-applied',
  'ratelimit',
  'ratelimit-policy',
  'retry-after',
  'token-expires-at',
  'warning',
  'www-authenticate',
  'x-request-id',
]

/** How long a browser may keep the answer to a preflight, in seconds. */
const PREFLIGHT_AGE_S = 600

/**
 * Lets pages of these origins, and of no other, call the service from a browser. Without origins nothing is registered: no
 * answer then has a CORS header. Credentials of the browser are never asked for; a token is a header that the page sends.
 * Register before everything that may refuse a request: a browser shows a page no refusal that lacks these headers.
 */
export async function registerCors(app: FastifyInstance, origins: readonly string[]): Promise<void> {
  if (origins.length === 0) return
  await app.register(cors, {
    origin: [...origins],
    methods: ['GET', 'PATCH', 'POST', 'PUT'],
    allowedHeaders: REQUEST_HEADERS,
    exposedHeaders: ANSWER_HEADERS,
    maxAge: PREFLIGHT_AGE_S,
    strictPreflight: false, // its refusal of other OPTIONS requests has not our form
  })
}
