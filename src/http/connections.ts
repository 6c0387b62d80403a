import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ERROR_CODES, type ErrorCode, TRY_AGAIN, Unavailable } from '../errors.js'
import { handleError } from './error-handler.js'
import { clientAddressOf } from './request.js'

/** The extra time to send the last answers after the shutdown timeout. */
export const LAST_ANSWERS_MS = 500

/** The time for a client to read the answer to a request that could not be parsed. */
const BROKEN_READ_MS = 1_000

declare module 'fastify' {
  interface FastifyRequest {
    /** The request and its answer on their connection. It is set before all other hooks. */
    exchange: Exchange
  }
}

/** The newest request of each connection, until it has fully arrived and is answered. */
const latest = new WeakMap<Socket, Exchange>()

/**
 * A request with its answer. The exchange ends when the whole answer was handed to the operating system. If the connection closes earlier, it
 * ends when the handler has settled (reached `onSend`), so that work for a disconnected client still counts against the limits. Every handler
 * settles, because it does not wait for the body of a closed connection, and its other waits have time limits.
 */
export interface Exchange {
  request: FastifyRequest
  reply: FastifyReply
  /** True once the whole answer was handed to the operating system. */
  isAnswered: boolean
  isSettled: boolean
  atEnd: (() => void)[]
}

/**
 * Gives each request its exchange. Closes connections while draining, and connections whose client does not read an answer within the request
 * timeout. Answers a request with 503 if it is unfinished at the shutdown timeout.
 */
export function registerConnections(
  app: FastifyInstance,
  service: { readonly isDraining: boolean },
  shutdownTimeoutMs: number,
  onCut: (exchange: Exchange) => void,
): void {
  app.server.maxHeadersCount = 0 // no limit, because Node would drop further headers; their total size is limited
  app.server.on('connection', socket => {
    socket.setMaxListeners(0) // each pipelined request adds a listener
    void socket.remoteAddress // Node caches the address here, so that the log can contain it after the connection has closed
  })
  // Not a `Set`, because its discarded tables keep past requests in memory until a full garbage collection.
  const open: Exchange[] = []
  let isClosing = false
  // The first hook of every request sets it, so the type is not nullable.
  app.decorateRequest('exchange', null as unknown as Exchange)
  app.addHook('onRequest', (request, reply, done) => {
    const { socket } = request.raw
    const exchange: Exchange = { request, reply, isAnswered: false, isSettled: false, atEnd: [] }
    const close = () => {
      onCut(exchange)
      if (exchange.isSettled) end(exchange)
    }
    // Listens to the socket, because the response emits no `close` while a pipelined request waits for an earlier one.
    socket.once('close', close)
    // Node also emits `finish` if the connection was destroyed. This listener runs before Node's own, which may destroy the connection.
    reply.raw.prependOnceListener('finish', () => {
      if (socket.destroyed) return
      exchange.isAnswered = true
      end(exchange)
    })
    exchange.atEnd.push(() => {
      socket.off('close', close)
      open.splice(open.indexOf(exchange), 1)
      // Releases the answer's memory now, because the connection may stay open for long.
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
    for (const exchange of open.slice()) if (!exchange.isSettled && !asksWithin(exchange)) answerLate(exchange) // each leaves the list
    setTimeout(() => app.server.closeAllConnections(), LAST_ANSWERS_MS).unref()
  }
  app.addHook('preClose', async () => {
    isClosing = true
    setTimeout(endLate, shutdownTimeoutMs).unref()
    // Waits, because closing the server would cut off answers that are not read yet.
    await Promise.all(open.map(exchange => new Promise<void>(resolve => exchange.atEnd.push(resolve))))
  })
}

function end({ atEnd }: Exchange): void {
  for (const listener of atEnd.splice(0)) listener()
}

/** True for an MCP request whose body has arrived. At the shutdown timeout, its inner requests get a 503, and its own answer contains theirs. */
function asksWithin({ request }: Exchange): boolean {
  return request.policy?.asksWithin === true && request.body !== undefined
}

const IN_DOUBT =
  'Whether the update is stored is not known. Repeat it with its If-Match or Idempotency-Key; if it had none, read the resource first.'

/** Answers a request that is unfinished when the process ends. If its work may have begun, the outcome is unknown. */
function answerLate({ request, reply }: Exchange): void {
  const mayBeAtWork = request.body !== undefined || request.routeOptions.schema?.body === undefined
  const isUnknown = mayBeAtWork && request.policy?.writes === true
  const message = `The process ended before the request did. ${isUnknown ? IN_DOUBT : TRY_AGAIN}`
  handleError(new Unavailable('draining', message, isUnknown ? 'unknown' : 'not_applied'), request, reply)
}

/** Answers a request that could not be parsed, in the same form as other errors. Its text is neither returned nor logged. */
export function answerClientError(
  { server, log }: FastifyInstance,
  { code = '' }: NodeJS.ErrnoException,
  socket: Socket,
  onBroken: (code: ErrorCode) => void,
): void {
  const exchange = latest.get(socket)
  const isLate = code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const isUnused = isLate && socket.bytesRead === 0
  // The client would take this error as the answer to a complete unanswered request, or as a second answer to an incomplete answered one.
  const isToldElsewhere = exchange !== undefined && exchange.request.raw.complete !== exchange.isAnswered
  if (code === 'ECONNRESET' || isUnused || !socket.writable || isToldElsewhere) {
    socket.destroy()
    return
  }
  const [what, ms] = exchange ? ['A whole request', server.requestTimeout] : [HEADERS, server.headersTimeout]
  const late = ['REQUEST_TIMEOUT', `${what} must arrive within ${ms / 1_000} s.`] as const
  const [error_code, detail] = isLate ? late : (BROKEN[code] ?? NOT_HTTP)
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

const HEADERS = 'The headers of a request'
const NOT_HTTP = ['BAD_REQUEST', 'This request is not valid HTTP.'] as const

const BROKEN: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'The request line and the headers together are larger than 16 KiB.'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['PAYLOAD_TOO_LARGE', 'The chunk extensions are too large.'],
}
