import type { FastifyInstance } from 'fastify'
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
  app.addHook('onRequest', (request, _reply, done) => {
    if (!request.isOperation) return done()
    const found = state.current()
    if (found.status === 'unavailable' && found.reason !== 'draining') {
      return done(new Unavailable(found.reason, found.detail))
    }
    if (inWork.count > concurrentRequestsMax) {
      return done(new Unavailable('overloaded', `More than ${concurrentRequestsMax} requests are in work. Try again.`))
    }
    done()
  })
  return inWork
}

/**
 * Counts a request from its headers to its end: answered, or its connection gone and no handler still at it. A client that
 * sends updates and hangs up would otherwise get more work done at once than the bound allows.
 *
 * The count is a number and each request knows its own state. A map of the requests in work would do the same and cost up
 * to a fifth of a request: V8 makes a map's table anew when it empties, the old tables refer to the new ones, and what
 * hangs on that chain is kept until the next full garbage collection.
 */
function countRequests(app: FastifyInstance): RequestsInWork {
  const inWork = { count: 0 }
  const settle = (work: Work) => {
    if (!work.gone || work.handled || work.isOver) return
    work.isOver = true
    inWork.count--
  }
  app.decorateRequest('work', undefined)
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.isOperation) return done()
    const work: Work = { gone: false, handled: false, isOver: false }
    request.work = work
    inWork.count++
    const end = () => {
      work.gone = true
      settle(work)
    }
    reply.raw.once('close', end)
    // A pipelined request whose turn never came has no answer that could close; only the request itself does.
    request.raw.once('close', end)
    done()
  })
  app.addHook('preHandler', ({ work }, _reply, done) => {
    if (work !== undefined) work.handled = true
    done()
  })
  app.addHook('onSend', ({ work }, _reply, payload, done) => {
    if (work !== undefined) {
      work.handled = false
      settle(work)
    }
    done(null, payload)
  })
  return inWork
}

/** What is known of a request in work. */
interface Work {
  /** Its answer has gone out, or its connection is gone. */
  gone: boolean
  /** Its handler is at it. */
  handled: boolean
  /** It was taken off the count. */
  isOver: boolean
}

declare module 'fastify' {
  interface FastifyRequest {
    /** How far this request is; undefined for what is no operation. */
    work: Work | undefined
  }
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
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (closing) reply.header('connection', 'close')
    else if (reply.statusCode === 413) reply.removeHeader('connection')
    done(null, payload)
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
