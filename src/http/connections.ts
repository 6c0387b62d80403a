import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ERROR_CODES, type ErrorCode, TRY_AGAIN, Unavailable } from '../errors.js'
import { handleError } from './error-handler.js'
import { clientAddressOf } from './request.js'

/** Time to send the last answers, after the shutdown timeout. */
export const LAST_ANSWERS_MS = 500

/** Time for a client to read the answer to a request that could not be parsed. */
const BROKEN_READ_MS = 1_000

declare module 'fastify' {
  interface FastifyRequest {
    /** The request and its answer on their connection. It is set before any other hook runs. */
    exchange: Exchange
  }
}

/** The newest request of each connection, until all of it has arrived and it is answered. */
const latest = new WeakMap<Socket, Exchange>()

/**
 * A request with its answer. It is over when the whole answer was handed to the system or, if the connection closes earlier, when the
 * handler has settled too. So work that continues for a client that left still counts against the limits. Every handler settles (reaches
 * `onSend`): it does not wait for the body of a closed connection, and its other waits have deadlines.
 */
export interface Exchange {
  request: FastifyRequest
  reply: FastifyReply
  /** True once the whole answer was handed to the system. */
  isAnswered: boolean
  /** True once there is an answer: the handler has finished. */
  isSettled: boolean
  /** Called once, when the exchange is over. */
  atEnd: (() => void)[]
}

export interface ConnectionOptions {
  service: { readonly isDraining: boolean }
  shutdownTimeoutMs: number
  /** Called for a request whose connection closes before its complete answer. */
  onCut: (exchange: Exchange) => void
}

/**
 * Gives each request its exchange. Closes connections while draining, and when an answer is not read within the request timeout. When all connections are open, the least recently used one without an admitted request makes room. A
 * request that is unfinished at the shutdown timeout is answered 503.
 */
export function registerConnections(
  app: FastifyInstance,
  { service, shutdownTimeoutMs, onCut }: ConnectionOptions,
): void {
  app.server.maxHeadersCount = 0 // Node would drop further fields; their size is bounded
  const sockets = new Set<Socket>() // in the order of their last request or answer
  const touch = (socket: Socket) => sockets.delete(socket) && sockets.add(socket) // none of an injected request
  app.server.on('connection', socket => {
    socket.setMaxListeners(0) // each pipelined request adds one
    void socket.remoteAddress // Node caches it here, so the log can name the client after the connection has closed
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    if (sockets.size < app.server.maxConnections) return
    const unused = [...sockets].find(other => other !== socket && !isAdmitted(other))
    if (unused !== undefined && sockets.delete(unused)) unused.destroy()
  })
  // No `Set`: its discarded tables would keep past requests in memory until a full garbage collection.
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
    // The response does not emit `close` for a pipelined request that waits for another one.
    socket.once('close', close)
    // Node emits `finish` also for a destroyed connection. This listener runs before Node's own, which may destroy the connection.
    reply.raw.prependOnceListener('finish', () => {
      if (socket.destroyed) return
      exchange.isAnswered = true
      end(exchange)
    })
    exchange.atEnd.push(() => {
      socket.off('close', close)
      open.splice(open.indexOf(exchange), 1)
      touch(socket)
      // A request holds the memory of its answer, and the connection may stay open for long.
      if (request.raw.complete && latest.get(socket) === exchange) latest.delete(socket)
    })
    open.push(exchange)
    latest.set(socket, exchange)
    touch(socket)
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
    for (const exchange of open) if (!exchange.isSettled && !asksWithin(exchange)) answerLate(exchange)
    setTimeout(() => app.server.closeAllConnections(), LAST_ANSWERS_MS).unref()
  }
  app.addHook('preClose', async () => {
    isClosing = true
    setTimeout(endLate, shutdownTimeoutMs).unref()
    // Closing the server would cut answers that are not read yet.
    await Promise.all(open.map(exchange => new Promise<void>(resolve => exchange.atEnd.push(resolve))))
  })
}

/** True for a connection whose newest request has a valid token and no answer. */
function isAdmitted(socket: Socket): boolean {
  const exchange = latest.get(socket)
  return exchange !== undefined && !exchange.isAnswered && exchange.request.caller !== null
}

function end({ atEnd }: Exchange): void {
  for (const listener of atEnd.splice(0)) listener()
}

/** True for a request that consists of inner requests. These get the 503, and the outer one answers with their results. */
function asksWithin({ request }: Exchange): boolean {
  return request.policy?.asksWithin === true && request.body !== undefined
}

const IN_DOUBT =
  'Whether the update is stored is not known. Repeat it with its If-Match or Idempotency-Key; if it had none, read the resource first.'

/** Answers a request that is unfinished when the process ends. If its work may have begun, its outcome is unknown. */
function answerLate({ request, reply }: Exchange): void {
  const mayBeAtWork = request.body !== undefined || request.method === 'DELETE'
  const isUnknown = mayBeAtWork && request.policy?.writes === true
  const message = `The process ended before the request did. ${isUnknown ? IN_DOUBT : TRY_AGAIN}`
  handleError(new Unavailable('draining', message, isUnknown ? 'unknown' : 'not_applied'), request, reply)
}

/** Answers a request that could not be parsed, in the shape of every other error. Its text is neither echoed nor logged. */
export function answerClientError(
  { server, log }: FastifyInstance,
  { code = '' }: NodeJS.ErrnoException,
  socket: Socket,
  onBroken: (code: ErrorCode) => void,
): void {
  const exchange = latest.get(socket)
  const isLate = code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const isUnused = isLate && socket.bytesRead === 0
  // A client with a complete unanswered request would take this for its answer; after an answer it would be a second one.
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
  setTimeout(() => socket.destroy(), BROKEN_READ_MS).unref() // the client may neither read nor close
}

const HEADERS = 'The headers of a request'
const NOT_HTTP = ['BAD_REQUEST', 'This request is not valid HTTP.'] as const

const BROKEN: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'The request line and the headers together are larger than 16 KiB.'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['PAYLOAD_TOO_LARGE', 'The chunk extensions are too large.'],
}
