import rateLimit from '@fastify/rate-limit'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenHashOf } from '../auth/hook.js'
import { type NotAuthenticated, type RateLimit, RateLimited, type RateLimitState } from '../errors.js'
import { ByteQuota } from './byte-quota.js'
import { rateLimitHeaders } from './rate-limit-headers.js'

/** Both quotas count over this time (DECISIONS section 9). */
const WINDOW_S = 60

export interface LimitSettings {
  /** Requests of one token in a window; 0 is off. */
  requestsPerMinute: number
  /** Bytes of one token's bodies and answers in a window; 0 is off. */
  bytesPerMinute: number
  /** Failed authentications of one address in a window; 0 is off. */
  failuresPerMinute: number
  /** How many tokens, and how many addresses, are counted at once; beyond it the one used longest ago is forgotten. */
  keysMax: number
}

/** Takes a failed authentication and answers the error to send: one too many becomes `RateLimited`. */
export type FailureLimit = (error: NotAuthenticated, request: FastifyRequest, reply: FastifyReply) => Promise<Error>

/**
 * Three quotas, each per process. Register before authentication. Answers nothing where failures are not limited.
 *
 * A token's requests, and its bytes beside them, are counted by the token's SHA-256 before it is looked up: a client that hammers, be its token good
 * or dead, costs no more than its quota in look-ups. Failed authentications are counted by address after they failed, so a
 * valid token is never refused for what its neighbours behind the same address do. The price: an address over its quota
 * still gets one indexed look-up for each new token of the right form and checksum; one without them never gets any.
 * Whoever sends enough different tokens to push another's count out gains that token a new window, nothing else.
 */
export async function registerLimits(app: FastifyInstance, settings: LimitSettings): Promise<FailureLimit | undefined> {
  await app.register(rateLimit, { global: false })
  limitTokens(app, settings)
  limitBytes(app, settings)
  return failureLimit(app, settings)
}

/** A text that is not a token of ours is refused here, where it costs nothing. */
function limitTokens(app: FastifyInstance, settings: LimitSettings): void {
  if (settings.requestsPerMinute === 0) return
  const count = counter(app, 'token', settings.requestsPerMinute, settings.keysMax, request => {
    return tokenHashOf(request).toString('base64')
  })
  app.addHook('onRequest', async (request, reply) => {
    if (!request.isOperation) return
    const { exceeded, state } = await count(request)
    if (exceeded) throw new RateLimited(state)
    reply.headers(rateLimitHeaders([state]))
  })
}

/**
 * What a request uses is known when it is used, so a token may go over by what it has in work. Its answer says what is left.
 * Register the body parser with `countBytes`.
 */
function limitBytes(app: FastifyInstance, { bytesPerMinute, keysMax }: LimitSettings): void {
  app.decorateRequest('byteQuota', undefined)
  if (bytesPerMinute === 0) return
  const quota = new ByteQuota(bytesPerMinute, keysMax, WINDOW_S * 1000)
  const stateOf = (key: string): RateLimitState => ({
    limit: 'token-bytes',
    quota: bytesPerMinute,
    unit: 'content-bytes',
    windowS: WINDOW_S,
    remaining: quota.remaining(key),
    resetS: quota.resetS(),
  })
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const key = tokenHashOf(request).toString('base64') // Fastify answers what is thrown
    request.byteQuota = { quota, key }
    if (quota.remaining(key) > 0) return done()
    done(new RateLimited(stateOf(key)))
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    // Of a text, to count its bytes would read it once more.
    if (typeof payload === 'string' || Buffer.isBuffer(payload)) countBytes(request, payload.length)
    // Who is not known yet hears nothing of a token's bytes; a 429 names its own limit alone.
    if (request.caller && request.byteQuota && request.limit === undefined) {
      addState(reply, stateOf(request.byteQuota.key))
    }
    done(null, payload)
  })
}

/** Counts bytes that a request sent or is answered, against the quota of its token. */
export function countBytes({ byteQuota }: FastifyRequest, bytes: number): void {
  byteQuota?.quota.use(byteQuota.key, bytes)
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Where the bytes of this request count; undefined where they do not. */
    byteQuota: { quota: ByteQuota; key: string } | undefined
  }
}

function failureLimit(app: FastifyInstance, settings: LimitSettings): FailureLimit | undefined {
  if (settings.failuresPerMinute === 0) return undefined
  const count = counter(app, 'failed-authentication', settings.failuresPerMinute, settings.keysMax, request => {
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
  cache: number,
  keyGenerator: (request: FastifyRequest) => string,
): (request: FastifyRequest) => Promise<Counted> {
  const options: rateLimit.RateLimitOptions = { max, cache, timeWindow: WINDOW_S * 1000, keyGenerator }
  const count = app.createRateLimit(options)
  const whole = { limit, quota: max, windowS: WINDOW_S, remaining: max, resetS: WINDOW_S }
  return async request => {
    const counted = await count(request)
    if (counted.isAllowed) return { exceeded: false, state: whole } // no allow list is set
    const { remaining, ttlInSeconds } = counted
    return { exceeded: counted.isExceeded, state: { ...whole, remaining, resetS: Math.max(1, ttlInSeconds) } }
  }
}

/** Adds a limit to those that the answer names. */
function addState(reply: FastifyReply, state: RateLimitState): void {
  for (const [name, text] of Object.entries(rateLimitHeaders([state]))) {
    const others = reply.getHeader(name)
    reply.header(name, others === undefined ? text : `${others}, ${text}`)
  }
}

/** Whoever has one IPv6 address has its whole /64. */
export function networkOf(address: string): string {
  return rateLimit.normalizeIP(address, 64)
}
