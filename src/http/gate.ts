import type { FastifyInstance } from 'fastify'
import { UNKNOWN_PLACE } from '../db/connection/thread-turns.js'
import { RateLimited, RETRY_AFTER_S, Unavailable } from '../errors.js'
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
 * Hahne, "Dynamic queue length thresholds", 1998). All tokens that were never authenticated with have the share of one. Many tokens
 * together can still take all: then what has waited for its client's body for long makes room for whoever comes next.
 */
export function registerGate(
  app: FastifyInstance,
  state: ServingState,
  concurrentRequestsMax: number,
  unfinished: UnfinishedTransfers,
): RequestsInFlight {
  const inFlight = countRequests(app)
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') {
      return done(new Unavailable(found.reason, found.detail, 'not_applied'))
    }
    if (inFlight.count > concurrentRequestsMax && !unfinished.abandonIdlestBody()) {
      return done(overloaded(`${concurrentRequestsMax} requests of all callers`))
    }
    const ofToken = inFlight.ofTokenOf(request)
    const free = concurrentRequestsMax - inFlight.count
    if (ofToken <= free + 1) return done()
    const share = Math.max(0, free + unfinished.countSlowBodies() + 1)
    if (ofToken <= share) return done()
    if (request.work?.place === UNKNOWN_PLACE)
      return done(overloaded(`${share} requests with tokens that this process has not seen before`))
    const unit = 'concurrent-requests'
    done(new RateLimited({ limit: 'token-requests', quota: share, unit, remaining: 0, resetS: RETRY_AFTER_S }))
  })
  return inFlight
}

function overloaded(most: string): Unavailable {
  const message = `${most} are in work, and no more may. Try again in ${RETRY_AFTER_S} s.`
  return new Unavailable('overloaded', message, 'not_applied')
}
