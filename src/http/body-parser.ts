import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { type Fault, RateLimited, Unavailable } from '../errors.js'
import { fault } from '../schema/faults.js'
import { type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'
import { type BodyBounds, BodyReader, type ReadBody, type TakeRoom } from './body-reader.js'
import { ByteBudget, type ByteBudgetLimits } from './byte-budget.js'

/** What bodies may be, by the kind of resource that they are about, and the memory that all of them share. */
export interface BodySettings {
  persona: BodyBounds
  tool: BodyBounds
  budget: ByteBudgetLimits
  /** Learns how many bytes of each body were read. */
  onRead: (request: FastifyRequest, bytes: number) => void
}

/** A body as it came, with what a client may say of it elsewhere: a mask in the query, strict handling in a header. */
export interface ReceivedBody {
  parsed: ParsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

/**
 * Bodies are JSON and nothing else; other media types are 415. The parser answers a `ReceivedBody` rather than throwing,
 * because a fault of the body is reported together with those of path and query; the schema of the route makes the value
 * of it that the handler gets. What it took of the budget is given back
 * when the request is over: answered, or its connection gone and no handler still at it.
 */
export function registerBodyParser(app: FastifyInstance, settings: BodySettings): void {
  const budget = new ByteBudget(settings.budget)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(/^application\/(json|[\w.+-]+\+json)\s*(;|$)/i, (request, stream, done) => {
    const bounds = request.policy?.resource === 'tool' ? settings.tool : settings.persona
    const announced = request.headers['content-length']
    const reader = new BodyReader(stream, announced, bounds, roomFor(request, budget), (error, body) => {
      settings.onRead(request, reader.receivedBytes)
      if (body === undefined) done(error)
      else done(null, received(request, body))
    })
    reader.start()
  })
}

function received({ query, headers }: FastifyRequest, body: ReadBody): ReceivedBody {
  const parsed = 'bytes' in body ? parseJsonBody(body.bytes) : refused(fault(body.beyond, ['body']))
  return { parsed, query: query as ParameterTexts, headers } // the parser's own: text, or texts where one is repeated
}

function refused(fault: Fault): ParsedBody {
  return { kind: 'refused', faults: [fault] }
}

/** Takes room in the name of the request's token; of its address where there is no token to ask for. */
function roomFor(request: FastifyRequest, budget: ByteBudget): TakeRoom {
  let held = 0
  return bytes => {
    const owner = request.isOperation ? `token ${request.caller.token.id}` : clientAddressOf(request)
    const exhausted = budget.take(owner, bytes)
    if (exhausted === 'token') throw new RateLimited('bodies', RETRY_AFTER_S)
    if (exhausted === 'total') {
      const message = 'The bodies of all requests together take too much memory. Try again.'
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    held += bytes
    if (held > bytes) return
    const giveBack = () => budget.give(owner, held)
    if (request.work === undefined) request.raw.once('close', giveBack)
    else request.work.onOver = giveBack
  }
}

/** Bodies that are under way come to an end, or to their timeout, by themselves. In seconds. */
const RETRY_AFTER_S = 1
