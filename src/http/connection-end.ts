import type { FastifyInstance } from 'fastify'

/** How long a connection may stay after its last answer, so that the client sees it before the end. In ms. */
export const LINGER_MS = 500

/**
 * From the first moment of draining every answer ends its connection: a balancer that keeps connections would send its
 * next request just as they are closed. An idle connection would also hold the close for its whole timeout.
 * A body that is refused before its end does not end it, against Fastify's way: to close while the client still sends would
 * reset the connection, often before it has read the answer. The rest of the body is read and dropped, within the request
 * timeout. Of a body in chunks it is not: to drop chunks costs as much as to read them, so the connection ends after a while.
 */
export function registerConnectionEnd(app: FastifyInstance, isDraining: () => boolean): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    if (closing || isDraining()) reply.header('connection', 'close')
    else if (reply.statusCode === 413 || request.raw.complete === false) reply.removeHeader('connection')
    done(null, payload)
  })
  app.addHook('onResponse', ({ raw }, _reply, done) => {
    if (raw.complete === false && raw.headers['transfer-encoding'] !== undefined) {
      setImmediate(() => raw.socket.pause()) // Node makes it flow once more, to drop the rest
      setTimeout(() => raw.socket.destroy(), LINGER_MS).unref()
    }
    done()
  })
}
