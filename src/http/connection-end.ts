import type { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { waitsToBeAsked } from './expectation.js'
import { PackedMessage } from './packed-message.js'

/**
 * How long a connection stays after its last answer, so that the client sees it before the end: so many ms to twice as many. Many
 * that are refused at once do not end at once, nor do their clients come back at once.
 */
export const LINGER_MS = 1_000

/**
 * The rest of a body is read and dropped while the bodies that were dropped on its connection have no more bytes in all. It is on its
 * way, mostly in the packet of the headers.
 */
export const DROPPED_BYTES_MAX = 64 * 1024

/** A body of no more bytes counts for nothing: its headers may have as many. */
const FREE_DROPPED_BYTES = 4 * 1024

/** Has an answer end its connection where it must; for answers that no hook sees. */
export type SettleConnection = (request: FastifyRequest, reply: FastifyReply) => void

/**
 * From the first moment of draining every answer ends its connection: a balancer that keeps connections would send its
 * next request just as they are closed.
 *
 * One rule for each body that is answered before its end, whatever it is refused for: one that is announced as small is dropped
 * and the connection goes on, until these are no longer small together; of every other nothing more is read, for nobody pays for that.
 * Then the answer says that the connection ends, or a proxy would send another client's request behind it.
 */
export function registerConnectionEnd(app: FastifyInstance, isDraining: () => boolean): SettleConnection {
  let isClosing = false
  const droppedBytes = new WeakMap<Socket, number>()
  app.addHook('preClose', async () => {
    isClosing = true
  })
  const settle: SettleConnection = ({ raw }, reply) => {
    const unread = unreadBytes(raw)
    const added = raw.complete === true ? raw.readableLength : unread // a body that has come as a whole may wait unread
    const dropped = added > FREE_DROPPED_BYTES ? added + (droppedBytes.get(raw.socket) ?? 0) : 0
    if (dropped > 0) droppedBytes.set(raw.socket, dropped)
    const isBroken = raw instanceof PackedMessage && raw.fault !== undefined
    const isLast = isBroken || isClosing || isDraining()
    const ends = isLast || dropped > DROPPED_BYTES_MAX
    if (ends) reply.header('connection', 'close')
    else if (reply.hasHeader('connection')) reply.removeHeader('connection') // Fastify's, of a body that it refuses
    if (unread === 0) return
    if (unread > DROPPED_BYTES_MAX) endUnread(raw.socket)
    else if (ends || !reply.raw.shouldKeepAlive) endBehindBody(raw, isLast)
    if (raw.isPaused()) raw.resume() // drops what has come, and the rest of a small body
  }
  app.addHook('onSend', (request, reply, payload, done) => {
    const send = () => {
      settle(request, reply)
      done(null, payload)
    }
    if (unreadBytes(request.raw) > DROPPED_BYTES_MAX)
      setImmediate(send) // its end may be in what has arrived and is not yet parsed
    else send()
  })
  return settle
}

/**
 * The bytes of a body that has not been read to its end: of the whole, as announced; without bound where it is in chunks, or its
 * client still waits to be asked for it and may send it or not. 0 where there is none, or its end was read.
 */
export function unreadBytes(request: IncomingMessage): number {
  const { complete, headers } = request
  if (complete !== false) return 0
  if (headers['transfer-encoding'] !== undefined) return Number.POSITIVE_INFINITY
  const bytes = Number(headers['content-length'] ?? 0)
  return bytes > 0 && waitsToBeAsked(request) ? Number.POSITIVE_INFINITY : bytes
}

/**
 * Has a connection end in two steps behind its last answer: at once for what is written, and for what is read when a small body has
 * come, for which it has the request timeout. A proxy that shares the connection among its clients keeps `Connection: close` to itself
 * and hands the rest of the body on: could it not, it would end the connection of its client, who may send another request on that.
 * `isSoon`: no longer than a body of which nothing is read, for the service ends or nothing more of it comes.
 */
function endBehindBody(request: IncomingMessage, isSoon: boolean): void {
  const { socket } = request
  socket.destroySoon = () => {
    socket.end()
    const destroy = () => Socket.prototype.destroySoon.call(socket) // when the answer is out
    if (request.closed) destroy()
    else request.once('close', destroy)
    if (isSoon) afterLinger(destroy)
  }
}

/**
 * Reads no more from a connection, and has it end in two steps behind its last answer: at once for what is written, and later for
 * what is read. Node closes both, and a client that still sends would be reset, often before it has read the answer. The time
 * begins when the whole answer is handed to the system.
 */
export function endUnread(socket: Socket): void {
  socket.pause().on('resume', () => socket.pause()) // Node makes it flow behind each answer, to drop the rest
  socket.destroySoon = () => {
    socket.end()
    afterLinger(() => socket.destroy())
  }
}

function afterLinger(then: () => void): void {
  setTimeout(then, LINGER_MS * (1 + Math.random())).unref()
}
