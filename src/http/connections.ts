import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ERROR_CODES, type ErrorCode, TRY_AGAIN, Unavailable } from '../errors.js'
import { handleError, isDryRun } from './error-handler.js'
import { clientAddressOf } from './request.js'

/** The time to send the last answers after the shutdown timeout. */
export const LAST_ANSWERS_MS = 500

/** The time in which a client can read the answer to a request that could not be parsed. */
const BROKEN_READ_MS = 1_000

declare module 'fastify' {
  interface FastifyRequest {
    /** The request with its answer. Set before all other hooks run. */
    exchange: Exchange
  }
}

/** The newest request of each connection. A request is removed after its answer if the request body has arrived completely. */
const latest = new WeakMap<Socket, Exchange>()

/**
 * A request with its answer. The exchange ends when the whole answer has been handed to the operating system. If the connection closes earlier, the
 * exchange ends when the handler reaches `onSend`, so that work for a disconnected client still counts against the limits.
 */
export interface Exchange {
  request: FastifyRequest
  reply: FastifyReply
  /** True when the whole answer has been handed to the operating system. */
  isAnswered: boolean
  isSettled: boolean
  atEnd: (() => void)[]
}

/**
 * Creates the exchange of each request. During a shutdown, closes each connection after its answer. Always closes a connection if the client does not
 * read the answer within the request timeout. At the shutdown timeout, answers unfinished requests with 503. Calls `onCut` if a connection closes
 * before the answer was sent.
 */
export function registerConnections(
  app: FastifyInstance,
  service: { readonly isDraining: boolean },
  shutdownTimeoutMs: number,
  onCut: (exchange: Exchange) => void,
): void {
  app.server.maxHeadersCount = 0 // 0 means no limit. With a limit, Node silently drops further headers
  app.server.on('connection', socket => {
    socket.setMaxListeners(0) // each pipelined request adds a listener
    void socket.remoteAddress // Node then caches the address, so that it can be logged after the connection has closed
  })
  // A `Set` would keep discarded requests in memory until a full garbage collection.
  const open: Exchange[] = []
  let isClosing = false
  // Null only until the first hook runs, so the type omits null.
  app.decorateRequest('exchange', null as unknown as Exchange)
  app.addHook('onRequest', (request, reply, done) => {
    const { socket } = request.raw
    const exchange: Exchange = { request, reply, isAnswered: false, isSettled: false, atEnd: [] }
    const close = () => {
      onCut(exchange)
      if (exchange.isSettled) end(exchange)
    }
    // The response to a pipelined request emits no `close` while an earlier request is unanswered, so the socket is observed.
    socket.once('close', close)
    // Node also emits `finish` if the connection is lost. This listener must run first, because Node's listener can destroy a working connection.
    reply.raw.prependOnceListener('finish', () => {
      if (socket.destroyed) return
      exchange.isAnswered = true
      end(exchange)
    })
    exchange.atEnd.push(() => {
      socket.off('close', close)
      open.splice(open.indexOf(exchange), 1)
      // Releases the memory of the answer, because the connection can stay open for a long time.
      if (request.raw.complete && latest.get(socket) === exchange) latest.delete(socket)
    })
    open.push(exchange)
    latest.set(socket, exchange)
    request.exchange = exchange
    done()
  })
  app.addHook('onSend', ({ raw, exchange }, reply, payload, done) => {
    if (isClosing || service.isDraining) reply.header('connection', 'close')
    exchange.isSettled = true
    const limit = setTimeout(() => raw.socket.destroy(), app.server.requestTimeout).unref()
    exchange.atEnd.push(() => clearTimeout(limit))
    if (raw.socket.destroyed) end(exchange)
    done(null, payload)
  })
  const endLate = () => {
    for (const exchange of open.slice()) if (!exchange.isSettled && !asksWithin(exchange)) answerLate(exchange) // a copy: late answers change `open`
    setTimeout(() => app.server.closeAllConnections(), LAST_ANSWERS_MS).unref()
  }
  app.addHook('preClose', async () => {
    isClosing = true
    setTimeout(endLate, shutdownTimeoutMs).unref()
    // Closing the server would cut off answers that clients are still reading.
    await Promise.all(open.map(exchange => new Promise<void>(resolve => exchange.atEnd.push(resolve))))
  })
}

function end({ atEnd }: Exchange): void {
  for (const listener of atEnd.splice(0)) listener()
}

/** True for an MCP request whose body has arrived. It is not answered directly: its inner requests are answered, and it ends with their results. */
function asksWithin({ request }: Exchange): boolean {
  return request.policy?.asksWithin === true && request.body !== undefined
}

const IN_DOUBT =
  'It is not known whether the change was stored. If you sent If-Match or Idempotency-Key, repeat the same request; otherwise, first read the record.'

/** Answers a request that is unfinished at the shutdown timeout. If the handler of an update may have begun, the outcome is `unknown`. */
function answerLate({ request, reply }: Exchange): void {
  const mayBeAtWork = request.body !== undefined || request.routeOptions.schema?.body === undefined
  const isUnknown = mayBeAtWork && request.policy?.writes === true && !isDryRun(request)
  const message = `This process is shutting down and could not answer the request in time. ${isUnknown ? IN_DOUBT : TRY_AGAIN}`
  handleError(new Unavailable('draining', message, isUnknown ? 'unknown' : 'not_applied'), request, reply)
}

/** Answers a request that could not be parsed, with an ordinary error body. The text of the request is neither returned nor logged. */
export function answerClientError(
  { server, log }: FastifyInstance,
  { code = '' }: NodeJS.ErrnoException,
  socket: Socket,
  onBroken: (code: ErrorCode) => void,
): void {
  const exchange = latest.get(socket)
  const isLate = code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const isUnused = isLate && socket.bytesRead === 0
  // True if the client could mistake the answer for the answer to an earlier request, or for a second answer to this request.
  const isToldElsewhere = exchange !== undefined && exchange.request.raw.complete !== exchange.isAnswered
  if (code === 'ECONNRESET' || isUnused || !socket.writable || isToldElsewhere) {
    socket.destroy()
    return
  }
  const [what, ms] = exchange
    ? ['A whole request', server.requestTimeout]
    : ['The headers of a request', server.headersTimeout]
  const late = ['REQUEST_TIMEOUT', `${what} must arrive within ${ms / 1_000} s.`] as const
  const [error_code, detail] = isLate ? late : code === 'HPE_HEADER_OVERFLOW' ? TOO_LONG : NOT_HTTP
  const status = ERROR_CODES[error_code]
  const request_id = randomUUID()
  log.info({ request_id, status, refusal: error_code, client: clientAddressOf({ ip: '', socket }) }, 'broken request')
  onBroken(error_code)
  const body = JSON.stringify({ error_code, detail, request_id })
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${request_id}`,
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    'Connection: close',
  ]
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
  setTimeout(() => socket.destroy(), BROKEN_READ_MS).unref() // the client may neither read the answer nor close the connection
}

const TOO_LONG = [
  'HEADERS_TOO_LARGE',
  'The request line and headers exceed 16 KiB. Send fewer headers or a shorter address.',
] as const
const NOT_HTTP = ['BAD_REQUEST', 'This request is not valid HTTP.'] as const
