import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { acceptOften } from './accept-often.js'

/** The addresses to listen on for a host: `localhost` may be two. */
export async function addressesOf(host: string): Promise<string[]> {
  return host === 'localhost' ? (await lookup(host, { all: true })).map(({ address }) => address) : [host]
}

/**
 * Listens on each of these addresses, on one port; 0 picks a free one. Where the first cannot be listened on it rejects; another that
 * cannot is left out. Fastify would make a server of its own for each further address of `localhost`, which knows none of our bounds of
 * connections: here their connections are handed to the one server.
 */
export async function listenOn(app: FastifyInstance, [first, ...others]: string[], port: number): Promise<void> {
  await app.listen({ ...(first !== undefined && { host: first }), port })
  void acceptOften(app.server)
  const bound = app.server.address()
  for (const host of others) {
    const entrance = createServer({ allowHalfOpen: true, noDelay: true }, socket => {
      app.server.emit('connection', socket)
    })
    entrance.maxConnections = app.server.maxConnections
    entrance.on('drop', refused => app.server.emit('drop', refused))
    app.server.once('close', () => entrance.close())
    entrance.listen({ host, port: typeof bound === 'object' ? bound?.port : port })
    const isListening = await once(entrance, 'listening').then(
      () => true,
      () => false,
    )
    if (isListening) void acceptOften(entrance)
  }
}
