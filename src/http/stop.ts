import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { UnfinishedTransfers } from './unfinished-transfers.js'
import type { UnreadAnswers } from './unread-answers.js'

/** While the service ends, what waits for its client is looked at so often. */
const LOOK_MS = 100

/** The part of the time for the end after which no client is waited for, and after which connections that linger end too. */
const LATE = 3 / 4
const LAST = 7 / 8

/** What may wait for its client. */
export interface WaitingForClients {
  /** The open connections without a request in work. */
  idleConnections: () => Socket[]
  unfinished: UnfinishedTransfers
  unread: UnreadAnswers
}

/**
 * When the service closes no client can hold that up until it is forced: nothing of the service is in work for them. Connections without
 * a request in work are ended, which Node takes for busy where one has sent nothing, or a part of a head. A body of which little
 * comes for a second is refused. Late in `timeoutMs`, the time for the whole end, the rest of the bodies are refused too, and answers
 * that are not read are cut off; what handlers are at goes on.
 */
export function registerStop(app: FastifyInstance, waiting: WaitingForClients, timeoutMs: number): void {
  const { idleConnections, unfinished, unread } = waiting
  app.addHook('preClose', async () => {
    const began = performance.now()
    const look = () => {
      const past = (performance.now() - began) / timeoutMs
      for (const socket of idleConnections()) if (past >= LAST || !socket.writableEnded) socket.destroy()
      if (past < LATE) unfinished.abandonSlowBodies()
      else {
        unfinished.abandonAll()
        unread.abandonAll()
      }
    }
    look()
    setInterval(look, LOOK_MS).unref() // one may come until nothing listens any more
  })
}
