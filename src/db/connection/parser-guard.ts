import type { Duplex } from 'node:stream'
import type pg from 'pg'

/** What is used of pg's connection: where it starts to listen to its stream, which may be a socket or TLS over one. */
interface ListeningConnection {
  attachListeners(stream: Duplex): void
}

/**
 * Has what pg throws while it reads the server's bytes end this one connection. pg reads them in the stream's own event,
 * where nobody catches: a value too long for a JavaScript text, or bytes that are not a message, would end the process.
 */
export function guardParser(connection: pg.Connection): void {
  const listening = connection as unknown as ListeningConnection // missing in pg's declarations
  const attach = listening.attachListeners
  listening.attachListeners = stream => {
    attach.call(connection, stream)
    for (const read of stream.listeners('data') as ((bytes: Buffer) => void)[]) {
      stream.off('data', read)
      stream.on('data', bytes => {
        try {
          read(bytes)
        } catch (error) {
          stream.destroy(error instanceof Error ? error : new Error(String(error)))
        }
      })
    }
  }
}
