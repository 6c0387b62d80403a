import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'

/** How long a connection may stay after its last answer, so that the client sees it before the end. In ms. */
export const LINGER_MS = 500

/**
 * From the first moment of draining every answer ends its connection: a balancer that keeps connections would send its
 * next request just as they are closed. An idle connection would also hold the close for its whole timeout.
 * A body that is refused before its end does not end it, against Fastify's way. The rest is read and dropped, within the request
 * timeout. Of a body in chunks it is not: to drop chunks costs as much as to read them. Its answer says that the connection
 * ends, or a proxy would send another client's request behind it. Nor is what gets no turn to be read (`endUnread`).
 */
export function registerConnectionEnd(app: FastifyInstance, isDraining: () => boolean): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
  })
  app.addHook('onSend', ({ raw }, reply, payload, done) => {
    if (isCut(raw))
      setImmediate(send) // its end may be in what has arrived and is not yet parsed
    else send()

    function send(): void {
      const ends = closing || isDraining() || isCut(raw)
      if (ends) reply.header('connection', 'close')
      else if (reply.statusCode === 413 || raw.complete === false) reply.removeHeader('connection')
      if (ends && raw.complete === false) lingerAtEnd(raw)
      done(null, payload)
    }
  })
}

/** Requests of whose bodies no more is read. */
const unread = new WeakSet<IncomingMessage>()

/** Has the connection of a body that is read no further end: with its answer, and soon where that has gone out. */
export function endUnread(request: IncomingMessage): void {
  unread.add(request)
  setTimeout(() => request.socket.destroy(), 2 * LINGER_MS).unref()
}

/** Whether the rest of a body is still to come and is not read: of one in chunks, or beyond what its token may have waiting. */
function isCut(request: IncomingMessage): boolean {
  const { complete, headers } = request
  return complete === false && (headers['transfer-encoding'] !== undefined || unread.has(request))
}

/**
 * Has the connection end in two steps: at once for what is written, and later for what is read. Node closes both behind the last
 * answer, and a client that still sends would be reset, often before it has read the answer.
 */
function lingerAtEnd({ socket }: IncomingMessage): void {
  socket.destroySoon = () => {
    socket.end()
    setImmediate(() => socket.pause()) // Node makes it flow once more, to drop the rest
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }
}
