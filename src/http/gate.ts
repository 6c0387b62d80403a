import type { IncomingMessage } from 'node:http'
import underPressure from '@fastify/under-pressure'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { type Authenticate, REQUIRES_TOKEN, tokenHashOf } from '../auth/authenticate.js'
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

const WAITING_MAX = 100

interface Share {
  count: number
  endsAt: number
  readonly places: Semaphore
}

/**
 * Limits the requests of callers. Each token has a quota per minute and a number of places for concurrent requests. A request occupies a place until
 * its answer is read or its connection closes, so the memory for bodies and answers is limited. A new or rejected token gets its places only after it
 * is authenticated. At most a tenth of `CONCURRENT_REQUESTS_MAX` such authentications run at the same time.
 */
export class Gate {
  total = 0
  #admitted = 0
  readonly #strangers: Semaphore
  /** For each admitted request, the function that releases its place. */
  readonly #places = new WeakMap<FastifyRequest, () => void>()
  /** The shares of tokens by their hashes. Contains only tokens that were valid at their last use. The least recently used token is removed first. */
  readonly #known: LRUCache<string, Share>

  constructor(readonly config: Config) {
    const { concurrentRequestsMax: waitingMax } = config.limits
    const max = Math.ceil(waitingMax / 10)
    const refusal = () => overloaded(max, ' with tokens that are not verified yet')
    this.#known = new LRUCache({ max: 10 * waitingMax })
    this.#strangers = new Semaphore(max, config.database.lockTimeoutMs, refusal, waitingMax)
  }

  /** Authenticates a request and gives it a place of its token. Throws `RateLimited`, `Unavailable` and the errors of `authenticate`. */
  async admit(request: FastifyRequest, reply: FastifyReply, hash: string, authenticate: () => Promise<void>) {
    this.total++
    request.exchange.atEnd.push(() => this.total--)
    if (!this.#known.has(hash)) {
      const leave = await this.#strangers.enter()
      await this.#lookUp(hash, authenticate).finally(leave)
    }
    const share = this.#shareOf(hash)
    this.#count(share, reply)
    const leave = await share.places.enter()
    const { concurrentRequestsMax } = this.config.limits
    if (this.#admitted >= concurrentRequestsMax) {
      leave()
      throw overloaded(concurrentRequestsMax)
    }
    this.#admitted++
    this.#places.set(request, leave)
    request.exchange.atEnd.push(() => this.leave(request))
    await this.#lookUp(hash, authenticate) // the token may have been revoked during the wait
  }

  /** Releases the place of a request that ends or begins to wait for changes. */
  leave(request: FastifyRequest): void {
    const leave = this.#places.get(request)
    if (leave === undefined) return
    this.#places.delete(request)
    this.#admitted--
    leave()
  }

  /** Authenticates a request. Forgets a token that is no longer valid. */
  async #lookUp(hash: string, authenticate: () => Promise<void>): Promise<void> {
    try {
      await authenticate()
    } catch (error) {
      if (error instanceof NotAuthenticated) this.#known.delete(hash)
      if (error instanceof Forbidden) this.#shareOf(hash) // the token is valid, but does not allow this request
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

  /** Counts a request against its token's quota and sets the rate limit headers. Throws `RateLimited`. */
  #count(share: Share, reply: FastifyReply): void {
    const quota = this.config.auth.requestsPerMinute
    if (quota === 0) return
    const now = performance.now()
    if (share.endsAt <= now) Object.assign(share, { count: 0, endsAt: now + QUOTA_WINDOW_S * 1000 })
    share.count++
    const resetS = Math.min(QUOTA_WINDOW_S, Math.ceil((share.endsAt - now) / 1000)) // rounding can add a second
    if (share.count > quota) throw new RateLimited('token', quota, resetS)
    reply.headers(rateLimitHeaders('token', quota, quota - share.count, resetS))
  }
}

function overloaded(max: number, which = ''): Unavailable {
  const message = `The service is busy: it has reached its limit of concurrent requests${which} (${max}). ${TRY_AGAIN}`
  return new Unavailable('overloaded', message, 'not_applied')
}

/**
 * Admits requests before their bodies are read. Checks the event loop's delay, the readiness of the service, the token and the limits. `isInner`
 * returns true for a request within an MCP request. Inner requests do not count against the limits.
 */
export async function registerGate(
  scope: FastifyInstance,
  gate: Gate,
  service: { current(): Readiness },
  authenticate: Authenticate,
  isInner: (raw: IncomingMessage) => boolean,
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
    const hash = tokenHashOf(request, onyx === undefined ? undefined : String(onyx))
    if (isInner(request.raw)) return await authenticate(request, reply)
    await gate.admit(request, reply, hash.toString('latin1'), () => authenticate(request, reply))
  })
}

/** Limits the concurrent uses of a resource. Further uses wait in the order in which they were requested. */
export class Semaphore {
  taken = 0
  readonly #waiting: (() => void)[] = []

  /** There are `max` places. `enter` throws `refusal` after waiting `waitMs`, or immediately if `waitingMax` callers already wait. */
  constructor(
    readonly max: number,
    readonly waitMs: number,
    readonly refusal: () => Error,
    readonly waitingMax = Number.POSITIVE_INFINITY,
  ) {}

  async enter(): Promise<() => void> {
    if (this.taken >= this.max) await this.#wait()
    else this.taken++
    return () => {
      const next = this.#waiting[0]
      if (next === undefined) this.taken--
      else next() // hands the place to the first waiting caller
    }
  }

  #wait(): Promise<void> {
    if (this.#waiting.length >= this.waitingMax) throw this.refusal()
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        this.#waiting.splice(this.#waiting.indexOf(end), 1)
        clearTimeout(timer)
        if (error === undefined) resolve()
        else reject(error)
      }
      const timer = setTimeout(() => end(this.refusal()), this.waitMs)
      this.#waiting.push(end)
    })
  }
}
