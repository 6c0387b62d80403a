import type { FastifyReply, FastifyRequest } from 'fastify'

declare module 'fastify' {
  interface FastifyRequest {
    /** The request with its answer on their connection; set before any hook of an operation runs. */
    exchange: Exchange
  }
}

/** Why an exchange ended without a whole answer: the client left, did not read the answer in time, or the service shut down. */
export type Cut = 'left' | 'unread' | 'shutdown'

/**
 * A request with its answer, and the one place that knows when it is over. It is in work from its headers until its answer was
 * handed to the system whole; if the connection closes before, until the connection is closed and the handler has settled. Work that
 * still runs for a client that left counts, so that nobody piles up work by leaving. Every handler settles, that is, reaches
 * `onSend`: no body of a closed connection is waited for, and each wait of a handler (pool, row, worker, statement) has a deadline.
 * What a request holds of the bounds is given back in `atEnd`, once.
 */
export class Exchange {
  /** True once the whole answer was handed to the system. */
  isAnswered = false
  /** True once the connection is closed, if that came before the whole answer. */
  isGone = false
  /** True once there is an answer: nothing works on the request any more. */
  isSettled = false
  /** True once nothing is held for it any more. */
  isOver = false
  /** Why the connection closes before the whole answer, if it does. */
  cut: Cut = 'left'
  /**
   * Settles once the request before it on its connection is over, if that is not yet. Pipelined requests are served one after the other:
   * what is made of one would be held until the answers before it are read.
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
    // The response's own `close` does not come for a pipelined request that waits behind another one.
    socket.once('close', this.#onClose)
    // Node also emits `finish` when a connection is destroyed; its own listener destroys one that is to be closed.
    reply.raw.prependOnceListener('finish', () => {
      if (socket.destroyed) return
      this.isAnswered = true
      this.#end()
    })
  }

  /** Registers what is called at the end, once. */
  atEnd(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** There is an answer, and the client has this long to read it. */
  settle(readTimeoutMs: number): void {
    if (this.isSettled) return
    this.isSettled = true
    if (this.isGone) this.#end()
    else this.#unread = setTimeout(() => this.close('unread'), readTimeoutMs).unref()
  }

  /** Closes the connection from this side. */
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
