import { randomBytes } from 'node:crypto'
import { type Server, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { plainAddress } from '../auth/client-address.js'
import { Refused, TRY_AGAIN, Unavailable } from '../errors.js'
import { handleError, statusOf } from './error-handler.js'
import { Exchange } from './exchange.js'
import { HEADER_FIELDS_MAX } from './request.js'

/** What is refused before its body has come is read to its end, so that a client which sends first hears of it; beyond this not. */
const DROPPED_BYTES_MAX = 8 * 2 ** 20

/** After the time for a shutdown, how long the last answers have to leave. */
export const LAST_ANSWERS_MS = 500

/** The request of each connection that came last, until it has come whole and is over. */
const latest = new WeakMap<Socket, FastifyRequest>()

export interface ConnectionOptions {
  service: { isDraining(): boolean }
  shutdownTimeoutMs: number
  /** How long a client has to read an answer. */
  readTimeoutMs: number
  /** Called for a request whose connection closes before its whole answer. */
  onCut: (exchange: Exchange) => void
}

/**
 * Gives each request its exchange. Closes connections while draining, after an answer to a large body that was not read, and when an
 * answer is not read in time. A request in work at the end of the time for a shutdown is answered 503.
 */
export function registerConnections(
  app: FastifyInstance,
  { service, shutdownTimeoutMs, readTimeoutMs, onCut }: ConnectionOptions,
): void {
  app.server.maxHeadersCount = HEADER_FIELDS_MAX + 1 // Node drops those beyond; one more shows that there are too many
  app.server.on('connection', socket => socket.setMaxListeners(0)) // one for each pipelined request
  const open = new Set<Exchange>()
  let isClosing = false
  // Typed as always set: the first hook of every request sets it.
  app.decorateRequest('exchange', null as unknown as Exchange)
  app.addHook('onRequest', (request, reply, done) => {
    const { socket } = request.raw
    const exchange = new Exchange(request, reply, onCut, latest.get(socket)?.exchange)
    latest.set(socket, request)
    request.exchange = exchange
    open.add(exchange)
    exchange.atEnd(() => {
      open.delete(exchange)
      // A request holds its answer, and its connection may stay open for long.
      if (request.raw.complete && latest.get(socket) === request) latest.delete(socket)
    })
    done()
  })
  app.addHook('onSend', ({ raw, exchange }, reply, payload, done) => {
    const isLarge = Number(raw.headers['content-length'] ?? 0) > DROPPED_BYTES_MAX || 'transfer-encoding' in raw.headers
    if (isClosing || service.isDraining() || (isLarge && !raw.complete)) reply.header('connection', 'close')
    exchange.settle(readTimeoutMs)
    done(null, payload)
  })
  const endLate = () => {
    for (const exchange of open) if (!exchange.isSettled && !asksWithin(exchange)) answerLate(exchange)
    setTimeout(() => {
      for (const exchange of open) exchange.cut = 'shutdown'
      app.server.closeAllConnections()
    }, LAST_ANSWERS_MS).unref()
  }
  app.addHook('preClose', async () => {
    isClosing = true
    setTimeout(endLate, shutdownTimeoutMs).unref()
    // To close a server cuts answers that are made and not read yet.
    await Promise.all([...open].map(exchange => new Promise<void>(resolve => exchange.atEnd(resolve))))
  })
}

/** The requests that it waits for are answered late, and what they say is its answer. */
function asksWithin({ request }: Exchange): boolean {
  return request.policy?.asksWithin === true && request.body !== undefined
}

const IN_DOUBT =
  'Whether the update is stored is not known. Repeat it with its If-Match or Idempotency-Key; if it had none, read the resource first.'

/** Answers a request that the end of the process comes before. The work of one whose body was read, or that has none, may still be stored. */
function answerLate({ request, reply }: Exchange): void {
  const mayBeAtWork = request.body !== undefined || request.method === 'DELETE'
  const isUnknown = mayBeAtWork && request.policy?.writes === true
  const message = `The process ended before the request did. ${isUnknown ? IN_DOUBT : TRY_AGAIN}`
  handleError(new Unavailable('draining', message, isUnknown ? 'unknown' : 'not_applied'), request, reply)
}

/** Answers what never became a whole request, in the shape of every other error. What was sent is neither answered nor logged. */
export function answerClientError(
  app: FastifyInstance,
  error: NodeJS.ErrnoException,
  socket: Socket,
  onBroken: (code: string) => void,
): void {
  const request = latest.get(socket)
  const isUnused = error.code === TIMEOUT && socket.bytesRead === 0
  // The client of a whole request would take this for its answer, that of an answered one for a second.
  const isToldElsewhere = request !== undefined && request.raw.complete !== request.exchange.isAnswered
  if (error.code === 'ECONNRESET' || isUnused || !socket.writable || isToldElsewhere) {
    socket.destroy()
    return
  }
  // A body that nothing reads yet waits for this service, not for its client.
  const hasBody = request?.exchange.isAnswered === false
  const isOurs = error.code === TIMEOUT && hasBody && request.raw.readableFlowing === null
  const answer = isOurs ? NOT_READ : brokenRequest(error.code, hasBody, app.server)
  const requestId = randomBytes(12).toString('base64url')
  const client = plainAddress(socket.remoteAddress ?? '')
  app.log.info({ request_id: requestId, status: statusOf(answer.code), refusal: answer.code, client }, 'broken request')
  onBroken(answer.code)
  socket.end(httpText(answer, requestId))
}

const TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT'

const NOT_READ = new Refused(
  'SERVICE_UNAVAILABLE',
  `The service did not come to read the request in time. ${TRY_AGAIN}`,
  {
    extra: { reason: 'overloaded', outcome: 'not_applied' },
    headers: { 'retry-after': '1' },
  },
)

/** What is wrong, by Node's error code, and whether it had come as far as its body. */
function brokenRequest(
  code: string | undefined,
  hasBody: boolean,
  { headersTimeout, requestTimeout }: Server,
): Refused {
  switch (code) {
    case TIMEOUT: {
      const [what, ms] = hasBody ? ['A whole request', requestTimeout] : ['The headers of a request', headersTimeout]
      return new Refused('REQUEST_TIMEOUT', `${what} must arrive within ${ms / 1_000} s.`)
    }
    case 'HPE_HEADER_OVERFLOW':
      return new Refused('HEADERS_TOO_LARGE', 'The request line and the headers together are larger than 16 KiB.')
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new Refused('PAYLOAD_TOO_LARGE', 'The chunk extensions are too large.')
    default:
      return new Refused('BAD_REQUEST', 'This is not HTTP that can be read.')
  }
}

function httpText({ code, message: detail, extra, headers }: Refused, requestId: string): string {
  const body = JSON.stringify({ error_code: code, detail, request_id: requestId, ...extra })
  const status = statusOf(code)
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    'Connection: close',
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}
