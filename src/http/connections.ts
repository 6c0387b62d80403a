import { randomBytes } from 'node:crypto'
import { type Server, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { plainAddress } from '../auth/client-address.js'
import { TRY_AGAIN } from '../errors.js'
import { type ErrorAnswer, statusOf } from './error-handler.js'
import { HEADER_FIELDS_MAX } from './request.js'

/** What is refused before its body has come is read to its end, so that a client which sends first hears of it; beyond this not. */
const DROPPED_BYTES_MAX = 8 * 2 ** 20

/** Connections without an answered request are ended at this part of the time for a shutdown, whatever they wait for. */
const LATE = 3 / 4

/** The request of each connection that came last. */
const latest = new WeakMap<Socket, FastifyRequest>()

declare module 'fastify' {
  interface FastifyRequest {
    /** Whether the answer was handed to the system whole. */
    isAnswered: boolean
  }
}

/** Ends connections while draining, behind an answer to an unread large body, and late in a shutdown. `onAbandoned`: clients that left. */
export function registerConnections(
  app: FastifyInstance,
  service: { isDraining(): boolean },
  shutdownTimeoutMs: number,
  onAbandoned: (request: FastifyRequest, reply: FastifyReply) => void,
): void {
  app.server.maxHeadersCount = HEADER_FIELDS_MAX + 1 // Node drops those beyond; one more shows that there are too many
  app.decorateRequest('isAnswered', false)
  let isClosing = false
  app.addHook('onRequest', (request, reply, done) => {
    latest.set(request.raw.socket, request)
    reply.raw.once('close', () => {
      if (!request.isAnswered) onAbandoned(request, reply)
    })
    done()
  })
  app.addHook('onResponse', (request, _reply, done) => {
    request.isAnswered = true
    done()
  })
  app.addHook('onSend', ({ raw }, reply, payload, done) => {
    const isLarge = Number(raw.headers['content-length'] ?? 0) > DROPPED_BYTES_MAX || 'transfer-encoding' in raw.headers
    if (isClosing || service.isDraining() || (isLarge && !raw.complete)) reply.header('connection', 'close')
    done(null, payload)
  })
  app.addHook('preClose', async () => {
    isClosing = true
    setTimeout(() => app.server.closeAllConnections(), shutdownTimeoutMs * LATE).unref()
  })
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
  const isToldElsewhere = request !== undefined && request.raw.complete !== request.isAnswered
  if (error.code === 'ECONNRESET' || isUnused || !socket.writable || isToldElsewhere) {
    socket.destroy()
    return
  }
  // A body that nothing reads yet waits for this service, not for its client.
  const hasBody = request?.isAnswered === false
  const isOurs = error.code === TIMEOUT && hasBody && request.raw.readableFlowing === null
  const answer = isOurs ? NOT_READ : brokenRequest(error.code, hasBody, app.server)
  const requestId = randomBytes(12).toString('base64url')
  const client = plainAddress(socket.remoteAddress ?? '')
  app.log.info({ request_id: requestId, status: statusOf(answer.code), refusal: answer.code, client }, 'broken request')
  onBroken(answer.code)
  socket.end(httpText(answer, requestId))
}

const TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT'

const NOT_READ: ErrorAnswer = {
  code: 'SERVICE_UNAVAILABLE',
  detail: `The service did not come to read the request in time. ${TRY_AGAIN}`,
  extra: { reason: 'overloaded', outcome: 'not_applied' },
  headers: { 'retry-after': '1' },
}

/** What is wrong, by Node's error code, and whether it had come as far as its body. */
function brokenRequest(
  code: string | undefined,
  hasBody: boolean,
  { headersTimeout, requestTimeout }: Server,
): ErrorAnswer {
  switch (code) {
    case TIMEOUT: {
      const [what, ms] = hasBody ? ['A whole request', requestTimeout] : ['The headers of a request', headersTimeout]
      return { code: 'REQUEST_TIMEOUT', detail: `${what} must arrive within ${ms / 1_000} s.` }
    }
    case 'HPE_HEADER_OVERFLOW':
      return { code: 'HEADERS_TOO_LARGE', detail: 'The request line and the headers together are larger than 16 KiB.' }
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return { code: 'PAYLOAD_TOO_LARGE', detail: 'The chunk extensions are too large.' }
    default:
      return { code: 'BAD_REQUEST', detail: 'This is not HTTP that can be read.' }
  }
}

function httpText({ code, detail, extra, headers }: ErrorAnswer, requestId: string): string {
  const body = JSON.stringify({ error_code: code, detail, request_id: requestId, ...extra })
  const status = statusOf(code)
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    ...Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    'Connection: close',
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}
