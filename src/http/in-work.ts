import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenHashIn } from '../auth/hook.js'
import { RateLimited, RETRY_AFTER_S, TRY_AGAIN, Unavailable } from '../errors.js'
import { InFlight } from '../limits/in-flight.js'
import type { Readiness } from '../readiness.js'

/** Bounds of what one process has in hand; of one token half of the requests, and a quarter of the bytes. */
export interface InWorkLimits {
  /** Requests of operations that are not answered yet (`CONCURRENT_REQUESTS_MAX`). */
  requestsMax: number
  /** Bytes of the bodies of these, as announced (`TRANSFER_BYTES_MAX`). */
  bytesMax: number
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Gives back what the request holds of the bounds; undefined where it holds nothing. */
    leaveWork: (() => void) | undefined
  }
}

/**
 * Refuses operations while the service cannot serve (503), and beyond the bounds of requests and announced bytes in work: 429 where
 * the token's own share is used up, 503 where that of all is. A request is in work from its headers until its answer is made, also
 * when its client has left. Pages and probes do not count. Answers the count of requests.
 */
export function registerInWork(
  app: FastifyInstance,
  current: () => Readiness,
  { requestsMax, bytesMax }: InWorkLimits,
): { readonly count: number } {
  const requests = new InFlight(requestsMax, Math.ceil(requestsMax / 2))
  const bytes = new InFlight(bytesMax, Math.ceil(bytesMax / 4))
  app.decorateRequest('leaveWork', undefined)
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const found = current()
    if (found.status === 'unavailable' && found.reason !== 'draining')
      return done(new Unavailable(found.reason, found.detail, 'not_applied'))
    const key = keyOf(request)
    const size = announcedBytes(request)
    const met = requests.take(key, 1)
    if (met !== undefined) return done(refusal(met, requests, 'requests', 'CONCURRENT_REQUESTS_MAX'))
    const metBytes = bytes.take(key, size)
    if (metBytes !== undefined) {
      requests.give(key, 1)
      return done(refusal(metBytes, bytes, 'bytes of request bodies', 'TRANSFER_BYTES_MAX'))
    }
    request.leaveWork = () => {
      request.leaveWork = undefined
      requests.give(key, 1)
      bytes.give(key, size)
    }
    done()
  })
  const leave = (
    request: FastifyRequest,
    _reply: FastifyReply,
    payload: unknown,
    done: (error: null, payload: unknown) => void,
  ) => {
    request.leaveWork?.()
    done(null, payload)
  }
  app.addHook('onSend', leave)
  return {
    get count() {
      return requests.total
    },
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
