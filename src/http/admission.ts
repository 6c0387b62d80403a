import rateLimit from '@fastify/rate-limit'
import underPressure from '@fastify/under-pressure'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenHashIn, tokenHashOf } from '../auth/hook.js'
import type { Readiness } from '../errors.js'
import {
  NotAuthenticated,
  type RateLimit,
  RateLimited,
  type RateLimitState,
  RETRY_AFTER_S,
  TRY_AGAIN,
  Unavailable,
} from '../errors.js'
import type { InFlight } from '../limits/in-flight.js'
import { rateLimitHeaders } from './answer.js'
import { requestFault } from './request.js'

/** Both quotas count over this time (DECISIONS section 9). */
const WINDOW_S = 60

/** How many tokens, and how many addresses, are counted at once; beyond it the one used longest ago is forgotten. */
const COUNTED_KEYS_MAX = 10_000

export interface AdmissionOptions {
  current: () => Readiness
  /** Requests that are not answered yet (`CONCURRENT_REQUESTS_MAX`). */
  requests: InFlight
  /** Bytes of the bodies of these, as announced (`TRANSFER_BYTES_MAX`). */
  bytes: InFlight
  /** Requests of one token in a window; 0 is off. */
  requestsPerMinute: number
  /** Failed authentications of one address in a window; 0 is off. */
  failuresPerMinute: number
  eventLoopDelayMaxMs: number
  /** Whether the token may stand in `X-Onyx-Authorization`, which is then read before `Authorization`. */
  takesOnyxHeader: boolean
  authenticate: (request: FastifyRequest, reply: FastifyReply) => Promise<void>
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Gives back what the request holds of the bounds; undefined where it holds nothing. */
    leaveWork: (() => void) | undefined
  }
}

/**
 * Lets the requests of this scope's routes in, before their bodies are read: while the service can serve (else 503), within the
 * bounds of requests and announced bytes in work (429 where the token's own share is used up, 503 where that of all is), within the
 * token's quota, and with a token that is good.
 * Failed authentications are counted by address after they failed, so that a valid token is never refused for its neighbours.
 */
export async function registerAdmission(scope: FastifyInstance, options: AdmissionOptions): Promise<void> {
  const { requestsPerMinute, failuresPerMinute, authenticate } = options
  await scope.register(underPressure, pressureLimits(options.eventLoopDelayMaxMs))
  await scope.register(rateLimit, { global: false })
  const countToken = counter(scope, 'token', 'RATE_LIMIT_PER_MINUTE', requestsPerMinute, request =>
    tokenHashOf(request).toString('base64'),
  )
  const countFailure = counter(
    scope,
    'failed-authentication',
    'FAILED_AUTH_LIMIT_PER_MINUTE',
    failuresPerMinute,
    request => {
      return networkOf(clientAddressOf(request))
    },
  )
  let lastFailure: Promise<unknown> = Promise.resolve()
  scope.decorateRequest('leaveWork', undefined)
  scope.addHook('onRequest', async (request, reply) => {
    const fault = requestFault(request)
    if (fault !== undefined) throw fault
    const { headers } = request
    const onyx = options.takesOnyxHeader ? headers['x-onyx-authorization'] : undefined
    if (onyx !== undefined) headers.authorization = String(onyx)
    requireServing(options.current())
    enterWork(request, options)
    try {
      await countToken(request, reply)
      await authenticate(request, reply)
    } catch (error) {
      if (!(error instanceof NotAuthenticated)) throw error
      // One behind the other: the plugin reads a count later than it counts, and many at once would all find that of the last.
      const counted = lastFailure.then(() => countFailure(request, reply))
      lastFailure = counted.catch(() => undefined)
      await counted
      throw error
    }
  })
  scope.addHook('onSend', (request, _reply, payload, done) => {
    request.leaveWork?.()
    done(null, payload)
  })
}

function requireServing(found: Readiness): void {
  if (found.status !== 'unavailable' || found.reason === 'draining') return
  throw new Unavailable(found.reason, found.detail, 'not_applied')
}

/** Takes a request into work until its answer is made, also when its client has left. */
function enterWork(request: FastifyRequest, { requests, bytes }: AdmissionOptions): void {
  const key = keyOf(request)
  const size = announcedBytes(request)
  const met = requests.take(key, 1)
  if (met !== undefined) throw refusal(met, requests, 'requests', 'CONCURRENT_REQUESTS_MAX')
  const metBytes = bytes.take(key, size)
  if (metBytes !== undefined) {
    requests.give(key, 1)
    throw refusal(metBytes, bytes, 'bytes of request bodies', 'TRANSFER_BYTES_MAX')
  }
  request.leaveWork = () => {
    request.leaveWork = undefined
    requests.give(key, 1)
    bytes.give(key, size)
  }
}

/** The token, or where there is none of our form the address. */
function keyOf(request: FastifyRequest): string {
  const hash = tokenHashIn(request)
  return Buffer.isBuffer(hash) ? hash.toString('base64') : clientAddressOf(request)
}

/** What a body may take of memory: as announced, or the route's limit where nothing is. */
function announcedBytes({ headers, routeOptions }: FastifyRequest): number {
  const limit = routeOptions.bodyLimit ?? 0
  const length = headers['content-length']
  if (length !== undefined) return Math.min(Number(length) || 0, limit)
  return headers['transfer-encoding'] === undefined ? 0 : limit
}

function refusal(met: 'all' | 'key', { max, maxPerKey }: InFlight, unit: string, setting: string): Error {
  if (met === 'all') {
    const message = `${max} ${unit} of all callers are in work, and no more may. ${TRY_AGAIN}`
    return new Unavailable('overloaded', message, 'not_applied', { setting })
  }
  const limit = setting === 'TRANSFER_BYTES_MAX' ? 'token-memory' : 'token-requests'
  const quotaUnit = limit === 'token-memory' ? 'content-bytes' : 'concurrent-requests'
  return new RateLimited({ limit, quota: maxPerKey, unit: quotaUnit, remaining: 0, resetS: RETRY_AFTER_S, setting })
}

/**
 * Counts a request and says in the answer's headers what is left; throws `RateLimited` beyond the quota. A quota of 0 is none.
 */
function counter(
  scope: FastifyInstance,
  limit: RateLimit,
  setting: string,
  quota: number,
  keyGenerator: (request: FastifyRequest) => string,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  if (quota === 0) return async () => undefined
  const timeWindow = WINDOW_S * 1000
  const options: rateLimit.RateLimitOptions = { max: quota, cache: COUNTED_KEYS_MAX, timeWindow, keyGenerator }
  const count = scope.createRateLimit(options)
  return async (request, reply) => {
    const counted = await count(request)
    if (counted.isAllowed) return // never: no allow list is set
    const resetS = Math.max(1, counted.ttlInSeconds)
    const state: RateLimitState = { limit, quota, windowS: WINDOW_S, remaining: counted.remaining, resetS, setting }
    if (counted.isExceeded) throw new RateLimited(state)
    reply.headers(rateLimitHeaders(state))
  }
}

/** Whoever has one IPv6 address has its whole /64. */
function networkOf(address: string): string {
  return rateLimit.normalizeIP(address, 64)
}

/** Refuses operations while the event loop is late: whatever would be answered then would be answered late. */
function pressureLimits(maxEventLoopDelay: number): underPressure.FastifyUnderPressureOptions {
  const detail = `The service is busy: its event loop is more than ${maxEventLoopDelay} ms late. ${TRY_AGAIN}`
  const setting = 'EVENT_LOOP_DELAY_MAX_MS'
  return {
    maxEventLoopDelay,
    exposeStatusRoute: false,
    pressureHandler: async () => {
      throw new Unavailable('overloaded', detail, 'not_applied', { setting })
    },
  }
}
