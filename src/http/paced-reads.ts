import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { plainAddress } from '../auth/client-address.js'
import type { ThreadTurns } from '../db/connection/thread-turns.js'

/**
 * For so long, and so many in any case, heads of requests are read in one turn of the event loop. With less, callers that ask steadily
 * come into it, and whoever is quiet beside them waits for connections that have nothing to read.
 */
const READ_MS = 4
const HEADS_MIN = 16

/** Connections that are read again in each turn of the event loop behind one in which more came. */
const READ_AGAIN = 16

/** An open connection. */
interface Connection {
  socket: Socket
  /** Whose it is: where the last request of it counted, before one is known the address that it comes from. */
  from: number | string
  atWork: number
}

/**
 * Bounds how many requests begin in one turn of the event loop. Node reads every connection that has something in the same one:
 * of 400 that send at once the heads alone take 40 ms, in nobody's turn, and what the database answered meanwhile waits. Beyond
 * the bound connections without a request in work are left alone, and read again a few in each turn, those of each token in theirs.
 * Where one token alone asks nothing is bounded.
 */
export function paceReads(app: FastifyInstance, turns: ThreadTurns): void {
  const open = new Map<Socket, Connection>()
  const unread = new Map<Connection['from'], Connection[]>()
  /** Those that are read again in this turn: they are not left alone once more before they were read. */
  const readNow = new Set<Connection>()
  let heads = 0
  let endsAt: number | undefined
  let isOver = false

  const leaveAlone = () => {
    isOver = true
    for (const connection of open.values()) {
      if (connection.atWork > 0 || readNow.has(connection) || connection.socket.isPaused()) continue
      connection.socket.pause()
      const same = unread.get(connection.from)
      if (same === undefined) unread.set(connection.from, [connection])
      else same.push(connection)
    }
  }
  const readAgain = () => {
    for (let count = 0; count < READ_AGAIN; count++) {
      const [next] = unread
      if (next === undefined) return
      const [from, connections] = next
      const connection = connections.shift()
      if (connection !== undefined) readNow.add(connection)
      connection?.socket.resume()
      unread.delete(from)
      if (connections.length > 0) unread.set(from, connections) // behind those of others
    }
  }
  const endTurn = () => {
    endsAt = undefined
    readNow.clear()
    if (unread.size === 0) return
    readAgain()
    beginTurn(performance.now())
  }
  const beginTurn = (now: number) => {
    heads = 0
    isOver = false
    endsAt = now + READ_MS
    setImmediate(endTurn)
  }

  app.server.on('connection', (socket: Socket) => {
    open.set(socket, { socket, from: plainAddress(socket.remoteAddress ?? ''), atWork: 0 })
    socket.once('close', () => open.delete(socket))
  })
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    const connection = open.get(raw.socket)
    if (connection !== undefined) connection.atWork++
    const now = performance.now()
    if (endsAt === undefined) beginTurn(now)
    heads++
    if (!isOver && heads >= HEADS_MIN && now >= (endsAt ?? now) && turns.servesSeveral) leaveAlone()
    done()
  })
  app.addHook('onResponse', ({ raw, work }, _reply, done) => {
    const connection = open.get(raw.socket)
    if (connection !== undefined) {
      connection.atWork--
      connection.from = work?.place ?? connection.from
    }
    done()
  })
}
