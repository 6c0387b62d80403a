import type { IncomingMessage } from 'node:http'
import underPressure from '@fastify/under-pressure'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { type Authenticate, REQUIRES_TOKEN, tokenHashIn } from '../auth/hook.js'
import type { Config } from '../config.js'
import {
  Forbidden,
  NotAuthenticated,
  QUOTA_WINDOW_S,
  RateLimited,
  type Readiness,
  rateLimitHeaders,
  TRY_AGAIN,
  Unavailable,
} from '../errors.js'
import { Semaphore } from './semaphore.js'

/** The most requests of one token that wait for a place of it. */
const WAITING_MAX = 100

/** What one valid token uses. */
interface Share {
  /** The number of requests in the current window, and when it ends. */
  count: number
  endsAt: number
  readonly places: Semaphore
}

/**
 * Limits what callers use. Each token has a quota a minute and a number of places, half as many as the pool has connections. A request
 * keeps its place until its answer is read or its connection is closed, so one token holds a bounded number of bodies and answers in
 * memory. Only requests with the same token wait for these places. A request counts towards `CONCURRENT_REQUESTS_MAX` while this process
 * works on it, not while its body arrives or its answer is read. A token that was not valid at its last look-up has no place: such requests
 * share a tenth of those at work until they are authenticated, in the order of arrival.
 */
export class Gate {
  /** Requests that started and have not finished. */
  total = 0
  #atWork = 0
  readonly #strangers: Semaphore
  readonly #places = new WeakMap<FastifyRequest, () => void>()
  /** The tokens that were valid at their last look-up, by their hash. The least recently used one is forgotten. */
  readonly #known: LRUCache<string, Share>

  constructor(readonly config: Config) {
    const { concurrentRequestsMax: waitingMax } = config.limits
    const max = Math.ceil(waitingMax / 10)
    const refusal = () => overloaded(max, 'with unverified tokens')
    this.#known = new LRUCache({ max: 10 * waitingMax })
    this.#strangers = new Semaphore(max, config.database.lockTimeoutMs, refusal, waitingMax)
  }

  /** Authenticates a request and takes a place of its token. Throws the errors of `authenticate`, `RateLimited`, `Unavailable`. */
  async admit(request: FastifyRequest, reply: FastifyReply, hash: string, authenticate: () => Promise<void>) {
    this.total++
    request.exchange.atEnd.push(() => this.total--)
    const isNew = !this.#known.has(hash)
    if (isNew) {
      const leave = await this.#strangers.enter()
      await this.#lookUp(hash, authenticate).finally(leave)
    }
    const share = this.#shareOf(hash)
    this.#count(share, reply)
    const isCurrent = isNew && !share.places.isFull // after a wait the token may be revoked
    this.#places.set(request, await share.places.enter())
    request.exchange.atEnd.push(() => this.leave(request))
    this.begin(request)
    if (!isCurrent) await this.#lookUp(hash, authenticate)
  }

  /** Counts a request as one at work. Throws `Unavailable` if too many are. */
  begin(request: FastifyRequest): void {
    const { concurrentRequestsMax } = this.config.limits
    if (request.exchange.isAtWork) return
    if (this.#atWork >= concurrentRequestsMax) throw overloaded(concurrentRequestsMax, 'of all callers')
    request.exchange.isAtWork = true
    this.#atWork++
  }

  /** Counts a request no longer as one at work. */
  rest(request: FastifyRequest): void {
    if (request.exchange.isAtWork) this.#atWork--
    request.exchange.isAtWork = false
  }

  /** Gives back the place of a request, which is over or waits by a limit of its own. */
  leave(request: FastifyRequest): void {
    this.rest(request)
    this.#places.get(request)?.()
    this.#places.delete(request)
  }

  /** Authenticates a request, and forgets its token if it is not valid any more. */
  async #lookUp(hash: string, authenticate: () => Promise<void>): Promise<void> {
    try {
      await authenticate()
    } catch (error) {
      if (error instanceof NotAuthenticated) this.#known.delete(hash)
      if (error instanceof Forbidden) this.#shareOf(hash) // the token is valid, but not for this request
      throw error
    }
  }

  #shareOf(hash: string): Share {
    const known = this.#known.get(hash)
    if (known !== undefined) return known
    const { poolSize, lockTimeoutMs } = this.config.database
    const max = Math.max(1, Math.floor(poolSize / 2))
    const refusal = () => new RateLimited('token-requests', max)
    const share = { count: 0, endsAt: 0, places: new Semaphore(max, lockTimeoutMs, refusal, WAITING_MAX) }
    this.#known.set(hash, share)
    return share
  }

  /** Counts a request against the quota of its token, and sets the RateLimit headers. */
  #count(share: Share, reply: FastifyReply): void {
    const quota = this.config.auth.requestsPerMinute
    if (quota === 0) return
    const now = performance.now()
    if (share.endsAt <= now) Object.assign(share, { count: 0, endsAt: now + QUOTA_WINDOW_S * 1000 })
    share.count++
    const resetS = Math.min(QUOTA_WINDOW_S, Math.ceil((share.endsAt - now) / 1000)) // rounding of the clock can add a second
    if (share.count > quota) throw new RateLimited('token', quota, resetS)
    reply.headers(rateLimitHeaders('token', quota, quota - share.count, resetS))
  }
}

function overloaded(max: number, whose: string): Unavailable {
  const message = `The limit of ${max} concurrent requests ${whose} is reached. ${TRY_AGAIN}`
  return new Unavailable('overloaded', message, 'not_applied')
}

export interface GateOptions {
  service: { current(): Readiness }
  gate: Gate
  /** True for a request that is part of another one (MCP), which is counted instead. */
  isInner: (raw: IncomingMessage) => boolean
  authenticate: Authenticate
}

/**
 * Admits requests before their bodies are read: the event loop is not late, the service can serve, the token is valid, and the limits hold.
 */
export async function registerGate(
  scope: FastifyInstance,
  { service, gate, isInner, authenticate }: GateOptions,
): Promise<void> {
  const { eventLoopDelayMaxMs: maxEventLoopDelay } = gate.config.limits
  await scope.register(underPressure, {
    maxEventLoopDelay,
    exposeStatusRoute: false,
    pressureHandler: async () => {
      const late = `The service is busy: its event loop is more than ${maxEventLoopDelay} ms late. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', late, 'not_applied')
    },
  })
  scope.decorate(REQUIRES_TOKEN, true)
  scope.addHook('onRequest', async (request, reply) => {
    const found = service.current()
    if (found.status === 'unavailable' && found.reason !== 'draining')
      throw new Unavailable(found.reason, found.detail, 'not_applied')
    const onyx = request.policy?.takesOnyxHeader ? request.headers['x-onyx-authorization'] : undefined
    const hash = tokenHashIn(request, onyx === undefined ? undefined : String(onyx))
    if (hash instanceof NotAuthenticated) throw hash
    if (isInner(request.raw)) return await authenticate(request, reply)
    await gate.admit(request, reply, hash.toString('latin1'), () => authenticate(request, reply))
  })
  scope.addHook('preParsing', (request, _reply, payload, done) => {
    if (!request.raw.complete) gate.rest(request)
    done(null, payload)
  })
  scope.addHook('preValidation', async request => {
    if (!isInner(request.raw)) gate.begin(request)
  })
  scope.addHook('onSend', (request, _reply, payload, done) => {
    gate.rest(request)
    done(null, payload)
  })
}
