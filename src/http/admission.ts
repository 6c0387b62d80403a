import type { IncomingMessage } from 'node:http'
import underPressure from '@fastify/under-pressure'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { clientAddressOf } from '../auth/client-address.js'
import { type Authenticate, REQUIRES_TOKEN, tokenHashIn } from '../auth/hook.js'
import type { Config } from '../config.js'
import {
  ClientGone,
  Forbidden,
  NotAuthenticated,
  type RateLimit,
  RateLimited,
  RETRY_AFTER_S,
  type Readiness,
  rateLimitHeaders,
  TRY_AGAIN,
  Unavailable,
} from '../errors.js'
import { InFlight } from '../limits/in-flight.js'
import { KEYS_MAX, Rate } from '../limits/rate.js'
import { requestFault } from './request.js'

/** The window of both quotas (DECISIONS section 9). */
const WINDOW_S = 60

export interface AdmissionOptions extends Pick<Config, 'auth' | 'limits'> {
  service: { current(): Readiness }
  /** Requests that are not answered yet. */
  requests: InFlight
  /** True for a request that is part of another one (MCP), which is counted instead. */
  isInner: (raw: IncomingMessage) => boolean
  authenticate: Authenticate
}

/** Smaller answers are always sent: even for the most allowed requests they need little memory. */
const SMALL_ANSWER_BYTES = 64 * 1024

declare module 'fastify' {
  interface FastifyRequest {
    /** Counts the bytes of the answer instead of those of the body. Returns the error to send instead if they exceed the limit. */
    holdAnswer: ((payload: unknown, reply: FastifyReply) => Error | undefined) | undefined
  }
}

/**
 * Admits requests before their bodies are read: the service can serve, the limits on concurrent work and rate hold, and the token is valid.
 * Counts failed authentications per network address.
 */
export async function registerAdmission(scope: FastifyInstance, options: AdmissionOptions): Promise<void> {
  const { auth, limits, service, requests, isInner, authenticate } = options
  const bytes = new InFlight(limits.transferBytes, Math.ceil(limits.transferBytes / 4))
  await scope.register(underPressure, pressureLimits(limits.eventLoopDelayMaxMs))
  const countToken = counter('token', 'RATE_LIMIT_PER_MINUTE', auth.requestsPerMinute)
  const failures = new Failures(auth.failuresPerMinute)
  scope.decorate(REQUIRES_TOKEN, true)
  scope.decorateRequest('holdAnswer', undefined)
  scope.addHook('onRequest', async (request, reply) => {
    const fault = requestFault(request)
    if (fault !== undefined) throw fault
    const takesOnyxHeader = auth.takesOnyxHeader || request.policy?.takesOnyxHeader
    const onyx = takesOnyxHeader ? request.headers['x-onyx-authorization'] : undefined
    requireServing(service.current())
    const hash = tokenHashIn(request, onyx === undefined ? undefined : String(onyx))
    if (isInner(request.raw)) return await authenticate(request, reply)
    const token = Buffer.isBuffer(hash) ? hash.toString('latin1') : undefined
    enterWork(request, token ?? clientAddressOf(request), requests, bytes)
    if (token !== undefined) countToken(token, reply)
    const { exchange } = request
    if (exchange.turn !== undefined) await exchange.turn
    if (exchange.isGone) throw new ClientGone()
    await failures.bound(token, networkOf(clientAddressOf(request)), reply, () => authenticate(request, reply))
  })
  scope.addHook('onSend', (request, reply, payload, done) => {
    const refused = request.holdAnswer?.(payload, reply)
    if (refused === undefined) done(null, payload)
    else done(refused)
  })
}

function requireServing(found: Readiness): void {
  if (found.status !== 'unavailable' || found.reason === 'draining') return
  throw new Unavailable(found.reason, found.detail, 'not_applied')
}

/** Counts a request as in work until its exchange is over. `key` is its token or address. */
function enterWork(request: FastifyRequest, key: string, requests: InFlight, bytes: InFlight): void {
  let held = announcedBytes(request)
  const met = requests.take(key, 1)
  if (met !== undefined) throw refusal(met, requests, 'requests', 'CONCURRENT_REQUESTS_MAX')
  const metBytes = bytes.take(key, held)
  if (metBytes !== undefined) {
    requests.give(key, 1)
    throw refusal(metBytes, bytes, HELD_BYTES, 'TRANSFER_BYTES_MAX')
  }
  request.exchange.atEnd(() => {
    requests.give(key, 1)
    bytes.give(key, held)
  })
  request.holdAnswer = (payload, reply) => {
    if (request.exchange.isOver) return undefined
    bytes.give(key, held)
    held = sizeOf(payload)
    const isAlwaysSent = reply.statusCode >= 400 || held <= SMALL_ANSWER_BYTES
    const metBytes = isAlwaysSent ? bytes.add(key, held) : bytes.take(key, held)
    if (metBytes === undefined) return undefined
    held = 0
    return unsent(request, reply, refusal(metBytes, bytes, HELD_BYTES, 'TRANSFER_BYTES_MAX'))
  }
}

const HELD_BYTES = 'bytes of request bodies and unread answers'

function sizeOf(payload: unknown): number {
  return typeof payload === 'string' || Buffer.isBuffer(payload) ? Buffer.byteLength(payload) : 0
}

/** The error to send instead of an answer. After an update that was stored, it reports that. */
function unsent({ policy }: FastifyRequest, reply: FastifyReply, refused: Error): Error {
  const isStored = policy?.writes && !reply.hasHeader('dry-run')
  if (!isStored) {
    reply.removeHeader('etag')
    return refused
  }
  const message =
    'The change was applied. Its answer is not sent, because too many bytes of bodies and unread answers are held.'
  return new Unavailable('overloaded', message, 'applied', { setting: 'TRANSFER_BYTES_MAX' })
}

/** The most bytes that the body can need: its Content-Length, or the route's limit for a chunked body. */
function announcedBytes({ headers, routeOptions }: FastifyRequest): number {
  const limit = routeOptions.bodyLimit ?? 0
  const length = headers['content-length']
  if (length !== undefined) return Math.min(Number(length) || 0, limit)
  return headers['transfer-encoding'] === undefined ? 0 : limit
}

function refusal(met: 'all' | 'key', { max, maxPerKey }: InFlight, unit: string, setting: string): Error {
  if (met === 'all') {
    const message = `${max} ${unit} of all callers are in work, which is the most at once. ${TRY_AGAIN}`
    return new Unavailable('overloaded', message, 'not_applied', { setting })
  }
  const limit = setting === 'TRANSFER_BYTES_MAX' ? 'token-memory' : 'token-requests'
  const quotaUnit = limit === 'token-memory' ? 'content-bytes' : 'concurrent-requests'
  return new RateLimited({ limit, quota: maxPerKey, unit: quotaUnit, remaining: 0, resetS: RETRY_AFTER_S, setting })
}

/** Counts requests per key, and sets the RateLimit headers. Throws `RateLimited` beyond the quota; a quota of 0 means no limit. */
function counter(limit: RateLimit, setting: string, quota: number, rate = new Rate(WINDOW_S * 1000)) {
  return (key: string, reply: FastifyReply): void => {
    if (quota === 0) return
    const { count, resetS } = rate.count(key)
    const state = { limit, quota, windowS: WINDOW_S, remaining: Math.max(0, quota - count), resetS, setting }
    if (count > quota) throw new RateLimited(state)
    reply.headers(rateLimitHeaders(state))
  }
}

/**
 * Limits the failed authentications per network. Beyond the quota a token is refused without a lookup, except a token that was valid when
 * last looked up, and one unknown token every few seconds. So a new token can still be used from an address that another client floods with
 * an invalid one.
 */
class Failures {
  readonly #rate = new Rate(WINDOW_S * 1000)
  readonly #unknown: Rate
  readonly #count: ReturnType<typeof counter>
  /** True if a token was valid when last looked up, by its hash. */
  readonly #seen = new LRUCache<string, boolean>({ max: KEYS_MAX })

  constructor(readonly quota: number) {
    this.#count = counter('failed-authentication', 'FAILED_AUTH_LIMIT_PER_MINUTE', quota, this.#rate)
    this.#unknown = new Rate((WINDOW_S * 1000) / Math.max(1, quota))
  }

  /** Authenticates a request with this token, unless it is refused by the quota. */
  async bound(token: string | undefined, network: string, reply: FastifyReply, authenticate: () => Promise<void>) {
    if (token !== undefined && !this.#isLookedUp(token, network)) this.#count(network, reply)
    try {
      await authenticate()
      if (token !== undefined) this.#seen.set(token, true)
    } catch (error) {
      const isFailure = error instanceof NotAuthenticated
      if (token !== undefined && (isFailure || error instanceof Forbidden)) this.#seen.set(token, !isFailure)
      if (isFailure) {
        this.#unknown.count(network)
        this.#count(network, reply)
      }
      throw error
    }
  }

  #isLookedUp(token: string, network: string): boolean {
    if (this.quota === 0 || this.#rate.countOf(network) < this.quota) return true
    return this.#seen.get(token) ?? this.#unknown.count(network).count === 1
  }
}

/** An IPv6 client usually has a whole /64 network: take the first four groups. */
function networkOf(address: string): string {
  if (!address.includes(':')) return address
  const [head = '', tail] = address.split('::')
  const zeros = tail === undefined ? [] : Array<string>(8).fill('0')
  return [...head.split(':'), ...zeros].slice(0, 4).join(':')
}

/** Refuses requests while the event loop is late. */
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
