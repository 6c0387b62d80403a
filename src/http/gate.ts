import type { FastifyInstance } from 'fastify'
import { Unavailable } from '../errors.js'
import type { Readiness } from '../readiness.js'
import { countRequests, type RequestsInFlight } from './requests-in-flight.js'

/** Whether requests can be served now, known without asking the database: what the process has seen so far. */
export interface ServingState {
  /** `serving` once the schema and the vault were found good; until then why not. */
  current: () => Readiness
}

/**
 * Refuses requests that cannot be served, before anything else is done for them: while the service starts, and
 * beyond a number of requests in work at once. Pages that need no database go on.
 */
export function registerGate(
  app: FastifyInstance,
  state: ServingState,
  concurrentRequestsMax: number,
): RequestsInFlight {
  const inFlight = countRequests(app)
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') {
      return done(new Unavailable(found.reason, found.detail, 'not_applied'))
    }
    if (inFlight.count > concurrentRequestsMax) {
      const message = `More than ${concurrentRequestsMax} requests are in work. Try again.`
      return done(new Unavailable('overloaded', message, 'not_applied'))
    }
    done()
  })
  return inFlight
}
