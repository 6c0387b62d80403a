import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { TinyChunks, TRY_AGAIN, Unavailable } from '../errors.js'
import { PackedMessage } from './packed-message.js'

/**
 * How small the chunks of a body without a length may be: so many of any size, and beyond that so many bytes each on average.
 * Four megabytes in chunks of one byte would take seconds.
 */
export const CHUNKS = { free: 4_000, meanBytesMin: 64 }

/** The same where nobody reads the body: of what has no token, or of a method that needs none. */
const UNREAD_CHUNKS_FREE = 100

/**
 * Of all connections so many small ones are handed on at once, and so many in each millisecond: a sixteenth of the thread's time. A few of
 * each read go in any case.
 */
const OF_ALL = { atOnce: 6_000, perMs: 30, freeOfRead: 16 }

/** Given back for a request, this ends the parser's work on what has been read. */
const END_OF_READ = 2

/** The parser that Node has for a connection; the name of its handler for pieces of bodies is a number. */
interface Parser {
  onIncoming(request: IncomingMessage, keepsAlive: boolean): number
  [event: number]: unknown
}

type OnPiece = (this: Parser, piece: Buffer) => void

/**
 * Bounds what the parser makes of one read of a connection. Node reads 64 KiB and parses all of it in one go, in nobody's turn: 2,400
 * requests, which take 70 ms, or bodies of 10,000 chunks, which take 20. Of a connection that `isClosed`, and behind so many chunks that
 * their body is refused, nothing is made any more. Small chunks of all connections together are bounded too: a hundred are read in
 * one turn. Node has no public way to end a read: where its parser is not as it is known, it is left alone.
 */
export function boundReads(server: Server, isClosed: (socket: Socket) => boolean): void {
  let ofAll = 0
  let ofAllAt = performance.now()
  const forget = () => {
    const now = performance.now()
    ofAll = Math.max(0, ofAll - (now - ofAllAt) * OF_ALL.perMs)
    ofAllAt = now
  }
  server.on('connection', (socket: Socket & { parser?: Parser }) => {
    const { parser } = socket
    const pieces = parser && Object.entries(parser).find(([, handler]) => isNamed(handler, 'parserOnBody'))
    if (parser === undefined || pieces === undefined || typeof parser.onIncoming !== 'function') return
    const event = Number(pieces[0])
    const onPiece = pieces[1] as OnPiece // that is its name
    const onIncoming = parser.onIncoming
    const read = new SmallChunks()
    let handler: OnPiece | undefined = onPiece
    const handleBy = (next: OnPiece | undefined) => {
      handler = next
      parser[event] = next
    }
    /** Of a body that is cut nobody takes pieces, so nobody stops the connection either: that is done with the first of each read. */
    const stopReading = () => {
      socket.pause() // Node goes on where the body ends
      handleBy(undefined) // the parser goes on with this read, and tells nobody
      setImmediate(() => {
        if (handler === undefined && parser[event] === undefined) handleBy(stopReading)
      })
    }
    parser.onIncoming = (request, keepsAlive) => {
      if (handler !== onPiece) handleBy(onPiece)
      if (isClosed(socket)) return END_OF_READ
      if (request.headers['transfer-encoding'] !== undefined) {
        const body = new SmallChunks()
        const free = freeChunks(request)
        handleBy(piece => {
          if (read.count === 0) {
            forget()
            setImmediate(() => read.clear()) // comes when all that was read is parsed
          }
          const before = read.small
          const isTiny = body.add(piece) > free || read.add(piece) > CHUNKS.free
          ofAll += read.small - before
          if (isTiny || (ofAll > OF_ALL.atOnce && read.small > OF_ALL.freeOfRead)) {
            if (request instanceof PackedMessage) request.cut = isTiny ? new TinyChunks() : noRoom()
            stopReading()
          }
          onPiece.call(parser, piece)
        })
      }
      return onIncoming(request, keepsAlive)
    }
    // Another connection will have this parser, or has it.
    socket.once('close', () => {
      if (parser[event] === handler) handleBy(onPiece)
    })
  })
}

/**
 * Has something done behind each read of a connection, when what it made of that has begun. Not where its parser is not as it is
 * known. A parser loses this handler with its connection.
 */
export function behindReads(socket: Socket & { parser?: Parser }, then: () => void): void {
  const { parser } = socket
  const found = parser && Object.entries(parser).find(([, handler]) => isNamed(handler, 'bound onParserExecute'))
  if (parser === undefined || found === undefined) return
  const onExecute = found[1] as (result: unknown) => void // that is its name
  parser[Number(found[0])] = (result: unknown) => {
    onExecute(result)
    then()
  }
}

/** Counts chunks beyond one for each `meanBytesMin`. */
class SmallChunks {
  count = 0
  small = 0
  #bytes = 0

  /** Answers how many there are now. */
  add({ length }: Buffer): number {
    this.count++
    this.#bytes += length
    this.small = Math.max(0, this.count - this.#bytes / CHUNKS.meanBytesMin)
    return this.small
  }

  clear(): void {
    this.count = 0
    this.small = 0
    this.#bytes = 0
  }
}

function noRoom(): Unavailable {
  const message =
    'Too many small chunks came at once, of all callers together. Send the body with a Content-Length, or larger chunks.'
  return new Unavailable('overloaded', `${message} ${TRY_AGAIN}`, 'not_applied')
}

function freeChunks({ method, headers }: IncomingMessage): number {
  const isRead = method !== 'GET' && headers.authorization !== undefined
  return isRead ? CHUNKS.free : UNREAD_CHUNKS_FREE
}

function isNamed(value: unknown, name: string): boolean {
  return typeof value === 'function' && value.name === name
}
