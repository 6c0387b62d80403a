import rateLimit from '@fastify/rate-limit'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenHashOf } from '../auth/hook.js'
import { type NotAuthenticated, type RateLimit, RateLimited, type RateLimitState } from '../errors.js'
import { rateLimitHeaders } from './rate-limit-headers.js'

/** Both quotas count over this time (DECISIONS section 9). */
const WINDOW_S = 60

/** How many tokens, and how many addresses, are counted at once; beyond it the one used longest ago is forgotten. */
const COUNTED_KEYS_MAX = 10_000

export interface LimitSettings {
  /** Requests of one token in a window; 0 is off. */
  requestsPerMinute: number
  /** Failed authentications of one address in a window; 0 is off. */
  failuresPerMinute: number
}

/** Takes a failed authentication and answers the error to send: one too many becomes `RateLimited`. */
export type FailureLimit = (error: NotAuthenticated, request: FastifyRequest, reply: FastifyReply) => Promise<Error>

/**
 * Two quotas, each per process. Answers nothing where failures are not limited.
 *
 * A token's requests are counted by the token's SHA-256 before it is looked up: a client that hammers, be its token good
 * or dead, costs no more than its quota in look-ups. Failed authentications are counted by address after they failed, so a
 * valid token is never refused for what its neighbours behind the same address do. The price: an address over its quota
 * still gets one indexed look-up for each new token of the right form and checksum; one without them never gets any.
 * Whoever sends enough different tokens to push another's count out gains that token a new window, nothing else.
 */
export async function registerLimits(app: FastifyInstance, settings: LimitSettings): Promise<FailureLimit | undefined> {
  await app.register(rateLimit, { global: false })
  limitTokens(app, settings)
  return failureLimit(app, settings)
}

/** A text that is not a token of ours is refused here, where it costs nothing. */
function limitTokens(app: FastifyInstance, settings: LimitSettings): void {
  if (settings.requestsPerMinute === 0) return
  const count = counter(app, 'token', settings.requestsPerMinute, request => {
    return tokenHashOf(request).toString('base64')
  })
  app.addHook('onRequest', async (request, reply) => {
    if (!request.isOperation) return
    const { exceeded, state } = await count(request)
    if (exceeded) throw new RateLimited(state)
    reply.headers(rateLimitHeaders([state]))
  })
}

function failureLimit(app: FastifyInstance, settings: LimitSettings): FailureLimit | undefined {
  if (settings.failuresPerMinute === 0) return undefined
  const count = counter(app, 'failed-authentication', settings.failuresPerMinute, request => {
    return networkOf(clientAddressOf(request))
  })
  let last: Promise<unknown> = Promise.resolve()
  return async (error, request, reply) => {
    // One behind the other: the plugin reads a count later than it counts, and many at once would all find that of the last.
    const counted = last.then(() => count(request))
    last = counted.catch(() => undefined)
    const { exceeded, state } = await counted
    reply.headers(rateLimitHeaders([state]))
    return exceeded ? new RateLimited(state) : error
  }
}

interface Counted {
  exceeded: boolean
  state: RateLimitState
}

function counter(
  app: FastifyInstance,
  limit: RateLimit,
  max: number,
  keyGenerator: (request: FastifyRequest) => string,
): (request: FastifyRequest) => Promise<Counted> {
  const options: rateLimit.RateLimitOptions = {
    max,
    cache: COUNTED_KEYS_MAX,
    timeWindow: WINDOW_S * 1000,
    keyGenerator,
  }
  const count = app.createRateLimit(options)
  const whole = { limit, quota: max, windowS: WINDOW_S, remaining: max, resetS: WINDOW_S }
  return async request => {
    const counted = await count(request)
    if (counted.isAllowed) return { exceeded: false, state: whole } // no allow list is set
    const { remaining, ttlInSeconds } = counted
    return { exceeded: counted.isExceeded, state: { ...whole, remaining, resetS: Math.max(1, ttlInSeconds) } }
  }
}

/** Whoever has one IPv6 address has its whole /64. */
export function networkOf(address: string): string {
  return rateLimit.normalizeIP(address, 64)
}
