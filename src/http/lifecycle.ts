import type { FastifyInstance } from 'fastify'
import { Unavailable } from '../errors.js'
import type { Readiness } from './health.js'

/** Whether requests can be served now, known without asking the database: what the process has seen so far. */
export interface ServingState {
  /** `serving` once the schema and the vault were found good; until then why not. */
  current: () => Readiness
}

/**
 * Refuses requests that cannot be served, before anything else is done for them: while the service starts or drains, and
 * beyond a number of requests in work at once. Pages that need no database go on.
 */
export function registerGate(app: FastifyInstance, state: ServingState, concurrentRequestsMax: number): void {
  let inWork = 0
  app.addHook('onRequest', async (request, reply) => {
    inWork += 1
    reply.raw.once('close', () => {
      inWork -= 1
    })
    const policy = request.routeOptions.config.policy
    if (policy === undefined || policy.permission === 'public') return
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') throw new Unavailable(found.reason, found.detail)
    if (inWork > concurrentRequestsMax) {
      throw new Unavailable('overloaded', `More than ${concurrentRequestsMax} requests are in work. Try again.`)
    }
  })
}

/** Once the service closes, every answer ends its connection: an idle one would hold the close for its whole timeout. */
export function registerConnectionEnd(app: FastifyInstance): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
  })
  app.addHook('onSend', async (_request, reply) => {
    if (closing) reply.header('connection', 'close')
  })
}
