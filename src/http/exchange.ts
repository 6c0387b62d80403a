import type { FastifyReply, FastifyRequest } from 'fastify'

declare module 'fastify' {
  interface FastifyRequest {
    /** The request and its answer on their connection. It is set before any other hook runs. */
    exchange: Exchange
  }
}

/** The reason for an incomplete answer: the client left, did not read the answer in time, or the service shut down. */
export type Cut = 'left' | 'unread' | 'shutdown'

/**
 * A request with its answer. It alone decides when a request is over: when the whole answer was handed to the system or, if the connection
 * closes earlier, when the handler has settled too. So work that continues for a client that left still counts against the limits. Every
 * handler settles (reaches `onSend`): it does not wait for the body of a closed connection, and its other waits (pool, row, worker,
 * statement) have deadlines. `atEnd` releases what the request holds, once.
 */
export class Exchange {
  /** True once the whole answer was handed to the system. */
  isAnswered = false
  /** True once the connection closed before the whole answer. */
  isGone = false
  /** True once there is an answer: the handler has finished. */
  isSettled = false
  /** True once `atEnd` has run. */
  isOver = false
  /** The reason for an incomplete answer. */
  cut: Cut = 'left'
  /**
   * Resolves when the previous request on the connection is over; undefined if it already is. Pipelined requests run one at a time:
   * otherwise their answers would be held in memory until the earlier ones are read.
   */
  readonly turn: Promise<void> | undefined
  #unread: NodeJS.Timeout | undefined
  readonly #listeners: (() => void)[] = []
  readonly #onClose = () => {
    this.isGone = true
    this.onCut(this)
    if (this.isSettled) this.#end()
  }

  constructor(
    readonly request: FastifyRequest,
    readonly reply: FastifyReply,
    /** Called when the connection closes before the whole answer. */
    readonly onCut: (exchange: Exchange) => void,
    before: Exchange | undefined,
  ) {
    if (before?.isOver === false) this.turn = new Promise(resolve => before.atEnd(resolve))
    const { socket } = request.raw
    // The response does not emit `close` for a pipelined request that waits for another one.
    socket.once('close', this.#onClose)
    // Node emits `finish` also for a destroyed connection. This listener runs before Node's own, which may destroy the connection.
    reply.raw.prependOnceListener('finish', () => {
      if (socket.destroyed) return
      this.isAnswered = true
      this.#end()
    })
  }

  /** Registers a listener for the end of the exchange. */
  atEnd(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Marks the request as answered, and starts the timeout for reading the answer. */
  settle(readTimeoutMs: number): void {
    if (this.isSettled) return
    this.isSettled = true
    if (this.isGone) this.#end()
    else this.#unread = setTimeout(() => this.close('unread'), readTimeoutMs).unref()
  }

  /** Closes the connection. */
  close(cut: Cut): void {
    this.cut = cut
    this.request.raw.socket.destroy()
  }

  #end(): void {
    this.isOver = true
    clearTimeout(this.#unread)
    this.request.raw.socket.off('close', this.#onClose)
    for (const listener of this.#listeners.splice(0)) listener()
  }
}
