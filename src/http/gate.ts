import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isOfToken, type ThreadTurns } from '../db/connection/thread-turns.js'
import { RateLimited, RETRY_AFTER_S, TRY_AGAIN, Unavailable } from '../errors.js'
import type { Readiness } from '../readiness.js'
import { countRequests, type RequestsInFlight } from './requests-in-flight.js'
import type { UnfinishedTransfers } from './unfinished-transfers.js'

/** Whether requests can be served now, known without asking the database: what the process has seen so far. */
export interface ServingState {
  /** `serving` once the schema and the vault were found good; until then why not. */
  current: () => Readiness
}

/**
 * Refuses requests that cannot be served, before anything else is done for them: while the service starts, and
 * beyond a number of requests in work at once. Pages that need no database go on.
 *
 * A token may have as many requests in work as places are free: one alone gets half of them, two a third each (Choudhury and
 * Hahne, "Dynamic queue length thresholds", 1998). Many tokens together can still take all: then what has waited for its client's
 * body for long makes room for whoever comes next. Requests with tokens that authenticated nothing since the start, which anybody can
 * make up, have as many places of their own until they are authenticated, shared out in the same way between addresses, each with its
 * connections that have failed to authenticate apart from the others, and are judged as all others then.
 */
export function registerGate(
  app: FastifyInstance,
  state: ServingState,
  concurrentRequestsMax: number,
  unfinished: UnfinishedTransfers,
  turns: ThreadTurns,
): Gate {
  const inFlight = countRequests(app, turns)
  const judge = (request: FastifyRequest): Error | undefined => {
    if (request.work !== undefined && !isOfToken(request.work.place)) {
      const free = concurrentRequestsMax - inFlight.ofUnseenTokens
      const ofAddress = inFlight.ofSame(request)
      if (free < 0) return overloaded(`${concurrentRequestsMax} requests with ${UNSEEN}`)
      return ofAddress <= free + 1 ? undefined : overloaded(`${ofAddress - 1} requests from one address with ${UNSEEN}`)
    }
    const count = inFlight.count - inFlight.ofUnseenTokens
    if (count > concurrentRequestsMax && !unfinished.abandonIdlestBody()) {
      return overloaded(`${concurrentRequestsMax} requests of all callers`)
    }
    const ofToken = inFlight.ofSame(request)
    const free = concurrentRequestsMax - count
    if (ofToken <= free + 1) return undefined
    const share = Math.max(0, free + unfinished.countSlowBodies() + 1)
    if (ofToken <= share) return undefined
    const unit = 'concurrent-requests'
    return new RateLimited({ limit: 'token-requests', quota: share, unit, remaining: 0, resetS: RETRY_AFTER_S })
  }
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') {
      return done(new Unavailable(found.reason, found.detail, 'not_applied'))
    }
    done(judge(request))
  })
  return {
    inFlight,
    registerAuthenticated: behind => {
      behind.addHook('onRequest', (request, _reply, done) => {
        if (inFlight.noteAuthenticated(request)) done(judge(request))
        else done()
      })
    },
  }
}

/** The gate of an application. */
export interface Gate {
  inFlight: RequestsInFlight
  /** Counts and judges each request as of its own token from where this is registered on. Register behind authentication. */
  registerAuthenticated(app: FastifyInstance): void
}

const UNSEEN = 'tokens that this process has not seen before'

function overloaded(most: string): Unavailable {
  const message = `${most} are in work, and no more may. ${TRY_AGAIN}`
  return new Unavailable('overloaded', message, 'not_applied', { setting: 'CONCURRENT_REQUESTS_MAX' })
}
