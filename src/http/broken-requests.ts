import { randomBytes } from 'node:crypto'
import { type IncomingMessage, type RequestListener, type Server, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { plainAddress } from '../auth/client-address.js'
import { BrokenRequest } from '../errors.js'
import { endUnread } from './connection-end.js'
import type { ErrorCode } from './error-codes.js'
import { brokenAnswer, type ErrorAnswer, sendError } from './error-handler.js'
import { heedExpectations } from './expectation.js'
import { PackedMessage } from './packed-message.js'
import { boundReads } from './parser-bounds.js'

interface Exchange {
  request: IncomingMessage
  response: ServerResponse
}

/** What is known of an open connection. */
interface Connection {
  /** Its requests that are not over, in their order. A list: `countRequests` says why no map. */
  open: Exchange[]
  /** Whether one has no answer that has gone out. */
  isServed: boolean
  /** Those behind it, which the application has not seen. */
  waiting: Exchange[]
  /** What these hold, in header fields. */
  waitingFields: number
  /** Whether it was closed for having too many of these. */
  isClosed: boolean
}

/**
 * Requests of one connection without an answer at once, where a client sends more before it has read the answers (pipelining).
 * Node reads 64 KiB of them in one go, which may be more than a thousand.
 */
export const PIPELINED_REQUESTS_MAX = 16

/** A request with more fields is refused: 16 KiB hold 1,800 short ones, and each takes more than a hundred bytes of memory. */
export const HEADER_FIELDS_MAX = 100

/** What requests may hold that wait behind an answer, which nobody has reserved memory for: in header fields, of one connection and of all. */
const WAITING_FIELDS_MAX = { connection: 1_000, all: 100_000 }
/** A request without any holds about as much. */
const FIELDS_OF_A_REQUEST = 30

/** Learns of each broken request, by its error code. */
export type OnBroken = (code: string) => void

/**
 * Answers what never became a request: malformed HTTP, headers too large or too slow. In the shape of every other error, with an id that
 * stands in the log. What was sent is neither answered nor logged. A request whose body cannot be read to its end, or never ends, learns
 * of that and is answered as all others are. Has the requests of one connection served one after the other, and closes connections with
 * too many that have no answer.
 */
export class BrokenRequests {
  readonly #connections = new WeakMap<Socket, Connection>()
  readonly #answered = new WeakSet<Socket>()
  readonly #onBroken: OnBroken
  #waitingFields = 0

  constructor(onBroken: OnBroken) {
    this.#onBroken = onBroken
  }

  /**
   * Takes note of the requests of each connection, before the application sees them: what is answered must not be taken for the
   * answer of another. The application gets the next one when the answer before it has gone out: only requests that are safe may
   * be worked on side by side (RFC 9112, section 9.3.2), and whoever reads no answers has no more work done. Those beyond
   * `PIPELINED_REQUESTS_MAX` or `WAITING_FIELDS_MAX`, what comes behind them, and what comes behind the last answer of a connection never
   * reach it.
   */
  watch(app: FastifyInstance): void {
    const listeners = app.server.listeners('request') as RequestListener[] // what listens to this event takes these
    app.server.removeAllListeners('request')
    app.server.maxHeadersCount = HEADER_FIELDS_MAX + 1 // Node drops those beyond
    const serve = (connection: Connection, { request, response }: Exchange) => {
      connection.isServed = true
      response.once('close', () => {
        connection.isServed = false
        const next = request.socket.writable ? this.#endWait(connection) : undefined
        if (next !== undefined) serve(connection, next)
      })
      for (const one of listeners) one.call(app.server, request, response)
    }
    app.server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      const connection = this.#connectionOf(request.socket)
      if (connection.isClosed || !request.socket.writable) return
      const exchange = { request, response }
      if (!connection.isServed) {
        noteRequest(connection, exchange)
        serve(connection, exchange)
      } else if (this.#hasRoom(connection, fieldsOf(exchange))) {
        noteRequest(connection, exchange)
        this.#wait(connection, exchange)
      } else {
        connection.isClosed = true
        this.#closePipelined(app, request.socket)
      }
    })
    boundReads(app.server, socket => this.#connections.get(socket)?.isClosed === true)
    heedExpectations(app.server)
  }

  /** Node's `clientError`: the connection cannot go on. `app` is whose log tells of it. */
  answer(app: FastifyInstance, error: NodeJS.ErrnoException, socket: Socket): void {
    if (this.#answered.has(socket)) return // what still comes in after the answer
    this.#answered.add(socket)
    const { open } = this.#connectionOf(socket)
    const isGone = error.code === 'ECONNRESET' || (error.code === 'HPE_INVALID_EOF_STATE' && open.length > 0)
    const isUnused = error.code === TIMEOUT && socket.bytesRead === 0
    if (isGone || isUnused || !socket.writable || this.#belongsToAnother(socket)) {
      socket.destroy()
      return
    }
    const request = open[0]?.request
    const found = brokenRequest(error.code, request !== undefined, app.server)
    if (request instanceof PackedMessage) {
      request.break(found)
      return
    }
    const answer = brokenAnswer(found)
    const requestId = randomBytes(12).toString('base64url')
    const client = plainAddress(socket.remoteAddress ?? '')
    app.log.info({ request_id: requestId, status: answer.status, refusal: answer.code, client }, 'broken request')
    this.#onBroken(answer.code)
    endUnread(socket)
    socket.write(httpText(answer, requestId))
    socket.destroySoon()
  }

  /** Whether a client would take our answer for that of a request which is still in work, or has its answer already. */
  #belongsToAnother(socket: Socket): boolean {
    const { open } = this.#connectionOf(socket)
    return open.length > 1 || open.some(({ request, response }) => request.complete || response.headersSent)
  }

  #hasRoom({ waiting, waitingFields }: Connection, fields: number): boolean {
    const { connection, all } = WAITING_FIELDS_MAX
    const hasOwn = waiting.length < PIPELINED_REQUESTS_MAX - 1 && waitingFields + fields <= connection
    return hasOwn && this.#waitingFields + fields <= all
  }

  #wait(connection: Connection, exchange: Exchange): void {
    const fields = fieldsOf(exchange)
    connection.waiting.push(exchange)
    connection.waitingFields += fields
    this.#waitingFields += fields
  }

  #endWait(connection: Connection): Exchange | undefined {
    const next = connection.waiting.shift()
    const fields = next ? fieldsOf(next) : 0
    connection.waitingFields -= fields
    this.#waitingFields -= fields
    return next
  }

  #closePipelined(app: FastifyInstance, socket: Socket): void {
    const refusal = 'RATE_LIMITED' satisfies ErrorCode
    const client = plainAddress(socket.remoteAddress ?? '')
    app.log.info({ refusal, client }, 'connection closed: too many requests without an answer, or too large ones')
    this.#onBroken(refusal)
    socket.destroy()
  }

  #connectionOf(socket: Socket): Connection {
    let connection = this.#connections.get(socket)
    if (connection === undefined) {
      const made: Connection = { open: [], isServed: false, waiting: [], waitingFields: 0, isClosed: false }
      socket.once('close', () => {
        while (made.waiting.length > 0) this.#endWait(made)
      })
      this.#connections.set(socket, made)
      connection = made
    }
    return connection
  }
}

/** What a request holds, in header fields: every second text is the name of one. */
function fieldsOf({ request }: Exchange): number {
  return FIELDS_OF_A_REQUEST + request.rawHeaders.length / 2
}

function noteRequest({ open }: Connection, exchange: Exchange): void {
  open.push(exchange)
  exchange.request.once('close', () => open.splice(open.indexOf(exchange), 1))
}

const TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT'

/** What is wrong, by Node's error code, and whether it had come as far as its body. */
function brokenRequest(code: string | undefined, hasBody: boolean, { headersTimeout, requestTimeout }: Server) {
  switch (code) {
    case TIMEOUT: {
      const [what, setting, ms] = hasBody
        ? ['A whole request', 'REQUEST_TIMEOUT_MS', requestTimeout]
        : ['The headers of a request', 'HEADERS_TIMEOUT_MS', headersTimeout]
      return new BrokenRequest('too_slow', `${what} must arrive within ${ms / 1_000} s (${setting}).`)
    }
    case 'HPE_HEADER_OVERFLOW':
      return new BrokenRequest('headers_too_large', 'The request line and the headers together are larger than 16 KiB.')
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new BrokenRequest('chunk_extensions_too_large', 'The chunk extensions are too large.')
    default:
      return new BrokenRequest('not_http', 'This is not HTTP that can be read.')
  }
}

function httpText({ status, code, detail }: ErrorAnswer, requestId: string): string {
  const body = JSON.stringify({ error_code: code, detail, request_id: requestId })
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    'Connection: close',
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}

/**
 * More header fields than are read are refused rather than dropped. HTTP/1.1 demands a Host (RFC 9112, section 3.2): Node would
 * refuse its absence with an empty answer. Of a second Host or Authorization Node drops all but the first; who handed the request on
 * may have gone by another one: 400.
 */
export function registerHeaderCheck(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.raw.rawHeaders.length / 2 > HEADER_FIELDS_MAX) {
      const detail = `The request has more than ${HEADER_FIELDS_MAX} header fields.`
      return sendError(request, reply, { status: 431, code: 'HEADERS_TOO_LARGE', detail })
    }
    const detail = headerFault(request.raw)
    if (detail === undefined) return done()
    sendError(request, reply, { status: 400, code: 'BAD_REQUEST', detail })
  })
}

function headerFault({ httpVersion, headers, rawHeaders }: IncomingMessage): string | undefined {
  if (httpVersion === '1.1' && headers.host === undefined) return 'The request has no Host header.'
  const repeated = SINGLE_HEADERS.find(name => isRepeated(rawHeaders, name))
  return repeated && `The request has more than one ${repeated} header.`
}

/** Every second text is the name of a header. */
function isRepeated(rawHeaders: readonly string[], name: string): boolean {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const text = rawHeaders[index] as string
    if (text.length === name.length && text.toLowerCase() === name) count++
  }
  return count > 1
}

const SINGLE_HEADERS = ['host', 'authorization']
