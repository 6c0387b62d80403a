import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { plainAddress } from '../auth/client-address.js'
import type { ThreadTurns } from '../db/connection/thread-turns.js'
import { behindReads } from './parser-bounds.js'
import { RoundRobin } from './round-robin.js'

/**
 * For so long, and so many in any case, connections are read in one turn of the event loop. With less, callers that ask steadily
 * come into it, and whoever is quiet beside them waits for connections that have nothing to read.
 */
const READ_MS = 4
const READS_MIN = 16

/**
 * Connections that are read again in each turn of the event loop behind one in which more came, and those beside them of which nobody knows
 * whose they are: as one more sender among those who are known a new one would wait for all of them.
 */
const READ_AGAIN = { known: 16, unknown: 8 }

/** What has no whole head behind so many reads is read further when it is its turn: so many connections in so many ms. */
const DRIPPING = { reads: 4, readAgain: 8, everyMs: 5 }

/** An open connection. */
interface Connection {
  socket: Socket
  /** Whose it is: where the last request of it counted, before one is known the address that it comes from. */
  from: number | string
  atWork: number
  /** How often it was read since its last request began. */
  reads: number
}

/**
 * Bounds how much is read in one turn of the event loop. Node reads every connection that has something in the same one: of 400 that
 * send at once the heads alone take 40 ms, in nobody's turn, and what the database answered meanwhile waits. Beyond the bound
 * connections without a request in work are left alone, and read again a few in each turn, those of each token in theirs. Where one
 * token alone asks nothing is bounded, but connections that send a head in many small parts: a read costs as much for one byte.
 * Answers how to find the open connections without a request in work.
 */
export function paceReads(app: FastifyInstance, turns: ThreadTurns): () => Socket[] {
  const open = new Map<Socket, Connection>()
  const unread = new Unread()
  const dripping = new RoundRobin<Connection['from'], Connection>()
  /** Those that are read again in this turn: they are not left alone once more before they were read. */
  const readNow = new Set<Connection>()
  let reads = 0
  let endsAt: number | undefined
  let isOver = false
  let readsDripping = false

  const leaveAlone = () => {
    isOver = true
    for (const connection of open.values()) {
      if (connection.atWork > 0 || readNow.has(connection) || connection.socket.isPaused()) continue
      leave(connection, unread)
    }
  }
  const endTurn = () => {
    endsAt = undefined
    readNow.clear()
    if (unread.isEmpty) return
    for (const connection of unread.next()) {
      readNow.add(connection)
      connection.socket.resume()
    }
    beginTurn(performance.now())
  }
  const beginTurn = (now: number) => {
    reads = 0
    isOver = false
    endsAt = now + READ_MS
    setImmediate(endTurn)
  }
  const noteRead = () => {
    const now = performance.now()
    if (endsAt === undefined) beginTurn(now)
    reads++
    if (!isOver && reads >= READS_MIN && now >= (endsAt ?? now) && turns.servesSeveral) leaveAlone()
  }
  const readDripping = () => {
    for (let count = 0; count < DRIPPING.readAgain; count++) dripping.next()?.socket.resume()
    readsDripping = dripping.size > 0
    if (readsDripping) setTimeout(readDripping, DRIPPING.everyMs).unref()
  }
  const leaveDripping = (connection: Connection) => {
    leave(connection, dripping)
    if (readsDripping) return
    readsDripping = true
    setTimeout(readDripping, DRIPPING.everyMs).unref()
  }

  app.server.on('connection', (socket: Socket) => {
    const connection = { socket, from: plainAddress(socket.remoteAddress ?? ''), atWork: 0, reads: 0 }
    open.set(socket, connection)
    socket.once('close', () => open.delete(socket))
    behindReads(socket, () => {
      if (connection.atWork > 0) return // its request was counted, or counts
      noteRead()
      if (++connection.reads >= DRIPPING.reads && !socket.isPaused()) leaveDripping(connection)
    })
  })
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    const connection = open.get(raw.socket)
    if (connection !== undefined) {
      connection.atWork++
      connection.reads = 0
    }
    noteRead()
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
  return () => [...open.values()].filter(({ atWork }) => atWork === 0).map(({ socket }) => socket)
}

/** Connections that are left alone, in the order in which they are read again. */
class Unread {
  readonly #known = new RoundRobin<Connection['from'], Connection>()
  readonly #unknown = new RoundRobin<Connection['from'], Connection>()

  get isEmpty(): boolean {
    return this.#known.size + this.#unknown.size === 0
  }

  add(from: Connection['from'], connection: Connection): void {
    const among = typeof from === 'number' ? this.#known : this.#unknown
    among.add(from, connection)
  }

  /** Those of the next turn. */
  next(): Connection[] {
    return [...taken(this.#unknown, READ_AGAIN.unknown), ...taken(this.#known, READ_AGAIN.known)]
  }
}

function taken(from: RoundRobin<Connection['from'], Connection>, most: number): Connection[] {
  const found: Connection[] = []
  while (found.length < most) {
    const next = from.next()
    if (next === undefined) break
    found.push(next)
  }
  return found
}

function leave(connection: Connection, among: Pick<Unread, 'add'>): void {
  connection.socket.pause()
  among.add(connection.from, connection)
}
