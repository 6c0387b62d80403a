import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { tokenHashOf } from '../auth/hook.js'
import { placeOfToken, TOKEN_PLACES } from '../db/connection/thread-turns.js'

/** How many requests of operations are in work. Pages and probes do not count: they need no database. */
export interface RequestsInFlight {
  readonly count: number
  /** How many of them have the token of this one, itself included. Those without a token of our form count as of one. */
  ofTokenOf(request: FastifyRequest): number
  /** Has something done for each whose client goes away before it is answered; what it asked for may go on. */
  whenAbandoned(then: OnAbandoned): void
}

/** Learns of a request that will have no answer. Fastify tells of those alone whose body had not arrived as a whole. */
type OnAbandoned = (request: FastifyRequest, reply: FastifyReply) => void

/**
 * Counts a request from its headers to its end: answered, or its connection gone and no handler still at it. A client that
 * sends updates and hangs up would otherwise get more work done at once than the bound allows.
 *
 * The count is a number and each request knows its own state. A map of the requests in work would do the same and cost up
 * to a fifth of a request: V8 makes a map's table anew when it empties, the old tables refer to the new ones, and what
 * hangs on that chain is kept until the next full garbage collection. So the counts of tokens are in a table that stays.
 */
export function countRequests(app: FastifyInstance): RequestsInFlight {
  const ofTokens = new Uint32Array(TOKEN_PLACES)
  const onAbandoned: OnAbandoned[] = []
  const inFlight = {
    count: 0,
    ofTokenOf: ({ work }: FastifyRequest) => (work && ofTokens[work.place]) ?? 0,
    whenAbandoned: (then: OnAbandoned) => void onAbandoned.push(then),
  }
  const count = ({ place }: Work, by: 1 | -1) => {
    inFlight.count += by
    ofTokens[place] = (ofTokens[place] ?? 0) + by
  }
  const settle = (work: Work) => {
    if (!work.gone || work.handled || work.isOver) return
    work.isOver = true
    count(work, -1)
    for (const then of work.whenOver ?? []) then()
  }
  app.decorateRequest('work', undefined)
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.isOperation) return done()
    const work: Work = {
      place: placeOf(request),
      gone: false,
      answered: false,
      handled: false,
      isOver: false,
      whenOver: undefined,
    }
    request.work = work
    count(work, 1)
    const end = () => {
      if (!work.gone && !work.answered) for (const then of onAbandoned) then(request, reply)
      work.gone = true
      settle(work)
    }
    reply.raw.once('close', end)
    request.raw.once('close', () => {
      const { socket } = request.raw
      if (socket.destroyed) return end()
      // A request that was read to its end closes too. One whose turn has not come has no answer yet that could close.
      if (reply.raw.socket !== null || reply.raw.writableFinished) return
      // Many requests may wait on one connection (pipelining), each with a listener that goes with its answer: no leak to warn of.
      socket.setMaxListeners(0).once('close', end)
      reply.raw.once('close', () => socket.off('close', end)) // the connection may live on
    })
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
  app.addHook('onResponse', ({ work }, _reply, done) => {
    if (work !== undefined) work.answered = true
    done()
  })
  return inFlight
}

/** Has something done when a request is over: answered, or its connection gone and no handler still at it. */
export function whenOver({ work, raw }: FastifyRequest, then: () => void): void {
  if (work === undefined) raw.once('close', then)
  else if (work.isOver) then()
  else if (work.whenOver === undefined) work.whenOver = [then]
  else work.whenOver.push(then)
}

/** Where the requests of this one's token are counted. */
function placeOf(request: FastifyRequest): number {
  try {
    return placeOfToken(tokenHashOf(request))
  } catch {
    return 0 // it has none: authentication says so
  }
}

/** What is known of a request in work. */
interface Work {
  /** Where its token is counted. */
  place: number
  /** Its answer has gone out, or its connection is gone. */
  gone: boolean
  /** Its answer has gone out. */
  answered: boolean
  /** Its handler is at it. */
  handled: boolean
  /** It was taken off the count. */
  isOver: boolean
  /** What to do then. */
  whenOver: (() => void)[] | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** How far this request is; undefined for what is not an operation. */
    work: Work | undefined
  }
}
