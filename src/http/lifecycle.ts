import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Unavailable } from '../errors.js'
import type { Readiness } from './health.js'

/** Whether requests can be served now, known without asking the database: what the process has seen so far. */
export interface ServingState {
  /** `serving` once the schema and the vault were found good; until then why not. */
  current: () => Readiness
}

/** How many requests of operations are in work. Pages and probes do not count: they need no database. */
export interface RequestsInWork {
  readonly count: number
}

/**
 * Refuses requests that cannot be served, before anything else is done for them: while the service starts or drains, and
 * beyond a number of requests in work at once. Pages that need no database go on.
 */
export function registerGate(app: FastifyInstance, state: ServingState, concurrentRequestsMax: number): RequestsInWork {
  const inWork = countRequests(app)
  app.addHook('onRequest', async request => {
    if (!isOperation(request)) return
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') throw new Unavailable(found.reason, found.detail)
    if (inWork.count > concurrentRequestsMax) {
      throw new Unavailable('overloaded', `More than ${concurrentRequestsMax} requests are in work. Try again.`)
    }
  })
  return inWork
}

/**
 * Counts a request from its headers to its end: answered, or its connection gone and no handler still at it. A client that
 * sends updates and hangs up would otherwise get more work done at once than the bound allows.
 */
function countRequests(app: FastifyInstance): RequestsInWork {
  const inWork = new Map<FastifyRequest, { gone: boolean; handled: boolean }>()
  const settle = (request: FastifyRequest) => {
    const now = inWork.get(request)
    if (now?.gone && !now.handled) inWork.delete(request)
  }
  app.addHook('onRequest', async (request, reply) => {
    if (!isOperation(request)) return
    const now = { gone: false, handled: false }
    inWork.set(request, now)
    const end = () => {
      now.gone = true
      settle(request)
    }
    reply.raw.once('close', end)
    // A pipelined request whose turn never came has no answer that could close; only the request itself does.
    request.raw.once('close', end)
  })
  app.addHook('preHandler', async request => {
    const now = inWork.get(request)
    if (now !== undefined) now.handled = true
  })
  app.addHook('onSend', async request => {
    const now = inWork.get(request)
    if (now !== undefined) now.handled = false
    settle(request)
  })
  return {
    get count() {
      return inWork.size
    },
  }
}

function isOperation(request: FastifyRequest): boolean {
  const policy = request.routeOptions.config.policy
  return policy !== undefined && policy.permission !== 'public'
}

/**
 * Once the service closes, every answer ends its connection: an idle one would hold the close for its whole timeout.
 * A body that is too large does not end it, against Fastify's way: to close while the client still sends would reset the
 * connection, often before it has read the answer. The rest of the body is read and dropped, within the request timeout.
 */
export function registerConnectionEnd(app: FastifyInstance): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
  })
  app.addHook('onSend', async (_request, reply) => {
    if (closing) reply.header('connection', 'close')
    else if (reply.statusCode === 413) reply.removeHeader('connection')
  })
}

/**
 * Everybody who asks while an answer is on its way gets that answer. Readiness asks the database for anyone who calls, so a
 * flood of probes must not become a flood of statements.
 */
export function shared<Answer>(ask: () => Promise<Answer>): () => Promise<Answer> {
  let underWay: Promise<Answer> | undefined
  return () => {
    underWay ??= ask().finally(() => {
      underWay = undefined
    })
    return underWay
  }
}
