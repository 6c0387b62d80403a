import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import underPressure from '@fastify/under-pressure'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { type Authenticate, REQUIRES_TOKEN, tokenHashIn } from '../auth/hook.js'
import type { Config } from '../config.js'
import {
  ClientGone,
  NotAuthenticated,
  RateLimited,
  RETRY_AFTER_S,
  type Readiness,
  rateLimitHeaders,
  TRY_AGAIN,
  Unavailable,
} from '../errors.js'
import { requestFault } from './request.js'

/** The window of a token's quota. */
const WINDOW_S = 60

/** The most valid tokens that are remembered. Beyond it the least recently used one is forgotten. */
const KNOWN_MAX = 10_000

/** The most requests of one token that wait for a place of it. */
const WAITING_MAX = 100

/** What one valid token uses. */
interface Share {
  /** Requests in its current window, and when the window ends. */
  count: number
  endsAt: number
  /** Requests that have a place. */
  places: number
  /** Requests that wait for a place, in the order of arrival. Each is called when it has one. */
  readonly waiting: Set<() => void>
}

/**
 * Limits what callers use. Each token has a quota a minute and a number of places, half as many as the pool has connections. A request
 * keeps its place until its answer is read or its connection is closed, so one token holds a bounded number of bodies and answers in
 * memory. Only requests with the same token ever wait for these places. What all callers need, the requests at work, is counted only while
 * this process works: not while a body arrives, and not after the answer is handed over. Node's timeouts end connections that do neither.
 * A token that was not valid at its last look-up has no place. Such requests share a tenth of those at work until they are authenticated.
 */
export class Gate {
  /** The requests that are begun and not over. */
  total = 0
  #atWork = 0
  #strangers = 0
  /** The tokens that were valid at their last look-up, by their hash. */
  readonly #known = new LRUCache<string, Share>({ max: KNOWN_MAX })

  constructor(readonly config: Config) {}

  /** Authenticates a request and takes a place of its token. Throws the errors of `authenticate`, `RateLimited`, `Unavailable`. */
  async admit(request: FastifyRequest, reply: FastifyReply, hash: string, authenticate: () => Promise<void>) {
    this.total++
    request.exchange.atEnd.push(() => this.total--)
    const known = this.#known.get(hash)
    const share = known ?? (await this.#introduce(request, hash, authenticate))
    this.#count(share, reply)
    await this.#enter(share, request)
    if (known === undefined) return
    try {
      await authenticate()
    } catch (error) {
      if (error instanceof NotAuthenticated) this.#known.delete(hash)
      throw error
    }
  }

  /** Counts a request that has a place as one at work. Throws `Unavailable` if too many are. */
  begin(request: FastifyRequest): void {
    const { concurrentRequestsMax } = this.config.limits
    if (request.isAtWork !== false) return
    if (this.#atWork >= concurrentRequestsMax) throw overloaded(concurrentRequestsMax, 'requests of all callers')
    this.#atWork++
    request.isAtWork = true
  }

  rest(request: FastifyRequest): void {
    if (request.isAtWork !== true) return
    this.#atWork--
    request.isAtWork = false
  }

  /** Authenticates a request with an unknown token, and remembers the token if it is valid. */
  async #introduce(request: FastifyRequest, hash: string, authenticate: () => Promise<void>): Promise<Share> {
    const max = Math.ceil(this.config.limits.concurrentRequestsMax / 10)
    if (this.#strangers >= max) throw overloaded(max, 'requests with new tokens')
    this.#strangers++
    const share = { count: 0, endsAt: 0, places: 0, waiting: new Set<() => void>() }
    try {
      await authenticate()
    } finally {
      this.#strangers--
      // A caller who must not make this request also has a valid token.
      if (request.caller !== null && !this.#known.has(hash)) this.#known.set(hash, share)
    }
    return this.#known.get(hash) ?? share
  }

  /** Counts a request against the quota of its token, and sets the RateLimit headers. */
  #count(share: Share, reply: FastifyReply): void {
    const quota = this.config.auth.requestsPerMinute
    if (quota === 0) return
    const now = performance.now()
    if (share.endsAt <= now) Object.assign(share, { count: 0, endsAt: now + WINDOW_S * 1000 })
    share.count++
    const resetS = Math.min(WINDOW_S, Math.ceil((share.endsAt - now) / 1000)) // rounding of the clock can add a second
    const remaining = Math.max(0, quota - share.count)
    const setting = 'RATE_LIMIT_PER_MINUTE'
    const state = { limit: 'token', quota, windowS: WINDOW_S, remaining, resetS, setting } as const
    if (share.count > quota) throw new RateLimited(state)
    reply.headers(rateLimitHeaders(state))
  }

  /** Takes a place of the token, which the request keeps until it is over, and begins work. */
  async #enter(share: Share, request: FastifyRequest): Promise<void> {
    const max = Math.max(1, Math.floor(this.config.database.poolSize / 2))
    if (share.places < max) share.places++
    else await this.#wait(share, max, request.raw.socket)
    request.isAtWork = false
    request.exchange.atEnd.push(() => {
      this.rest(request)
      const [next] = share.waiting
      if (next === undefined) share.places--
      else next() // the place goes on to it
    })
    this.begin(request)
  }

  #wait({ waiting }: Share, quota: number, socket: Socket): Promise<void> {
    const [limit, unit, setting] = ['token-requests', 'concurrent-requests', 'DATABASE_POOL_SIZE'] as const
    const tooMany = new RateLimited({ limit, quota, unit, remaining: 0, resetS: RETRY_AFTER_S, setting })
    if (waiting.size >= WAITING_MAX) throw tooMany
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        waiting.delete(end)
        clearTimeout(timer)
        socket.off('close', leave)
        if (error === undefined) resolve()
        else reject(error)
      }
      const leave = () => end(new ClientGone())
      const timer = setTimeout(end, this.config.server.requestTimeoutMs, tooMany)
      socket.once('close', leave)
      waiting.add(end)
    })
  }
}

function overloaded(max: number, unit: string): Unavailable {
  const message = `${max} ${unit} are at work, which is the most at once. ${TRY_AGAIN}`
  return new Unavailable('overloaded', message, 'not_applied', { setting: 'CONCURRENT_REQUESTS_MAX' })
}

declare module 'fastify' {
  interface FastifyRequest {
    /** True while the request counts as one at work; undefined until it has a place. */
    isAtWork: boolean | undefined
  }
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
export async function registerGate(scope: FastifyInstance, options: GateOptions): Promise<void> {
  const { service, gate, isInner, authenticate } = options
  const { auth, limits } = gate.config
  await scope.register(underPressure, pressureLimits(limits.eventLoopDelayMaxMs))
  scope.decorate(REQUIRES_TOKEN, true)
  scope.decorateRequest('isAtWork', undefined)
  scope.addHook('onRequest', async (request, reply) => {
    const fault = requestFault(request)
    if (fault !== undefined) throw fault
    const takesOnyxHeader = auth.takesOnyxHeader || request.policy?.takesOnyxHeader
    const onyx = takesOnyxHeader ? request.headers['x-onyx-authorization'] : undefined
    requireServing(service.current())
    const hash = tokenHashIn(request, onyx === undefined ? undefined : String(onyx))
    if (hash instanceof NotAuthenticated) throw hash
    if (isInner(request.raw)) return await authenticate(request, reply)
    await gate.admit(request, reply, hash.toString('latin1'), () => authenticate(request, reply))
  })
  scope.addHook('preParsing', (request, _reply, payload, done) => {
    if (!request.raw.complete) gate.rest(request)
    done(null, payload)
  })
  scope.addHook('preValidation', async request => gate.begin(request))
  scope.addHook('onSend', (request, _reply, payload, done) => {
    gate.rest(request)
    done(null, payload)
  })
}

function requireServing(found: Readiness): void {
  if (found.status !== 'unavailable' || found.reason === 'draining') return
  throw new Unavailable(found.reason, found.detail, 'not_applied')
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
