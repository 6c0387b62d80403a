import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { RateLimited, TRY_AGAIN, Unavailable } from '../errors.js'
import { readHead } from './feed.js'

/** The most requests that wait for changes at once; of one token one. */
const WAITING_MAX = 200
const POLL_MS = 1_000

export interface Page {
  changes: object[]
  /** The cursor of the next page. */
  next: string
  /** True if nothing is known to follow. */
  isEnd: boolean
}

interface Waiter {
  /** Reads if `head` is not where the waiter is, and ends the wait if there are changes. */
  look(head: string): Promise<void>
  end(): void
  fail(error: unknown): void
}

/**
 * Requests that wait for changes. They hold no connection: once a second, one of them all finds the newest change and, if there is one, reads
 * for each in turn.
 */
export class Waiting {
  readonly #waiters = new Map<number, Waiter>()
  #isPolling = false

  constructor(
    readonly database: Database,
    readonly service: { readonly isDraining: boolean },
  ) {}

  /**
   * Waits from an empty page on until `read` finds changes, the time is over or the connection closes. Throws `RateLimited`, `Unavailable`,
   * and what `read` throws.
   */
  async wait(
    token: number,
    { page, waitS, socket, read }: { page: Page; waitS: number; socket: Socket; read(after: string): Promise<Page> },
  ): Promise<Page> {
    if (this.#waiters.has(token)) throw new RateLimited('token-waiting', 1)
    if (this.#waiters.size >= WAITING_MAX) {
      const message = `${WAITING_MAX} requests wait for changes, which is the most at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    let now = page
    let stop = () => {}
    try {
      return await new Promise<Page>((resolve, fail) => {
        const end = () => resolve(now)
        const look = async (head: string) => {
          if (now.next === head) return
          now = await read(now.next)
          if (now.changes.length > 0 || !now.isEnd) end()
        }
        this.#waiters.set(token, { look: head => look(head).catch(fail), end, fail })
        const timer = setTimeout(end, waitS * 1_000)
        socket.once('close', end)
        stop = () => {
          clearTimeout(timer)
          socket.off('close', end)
        }
        void this.#poll()
      })
    } finally {
      stop()
      this.#waiters.delete(token)
    }
  }

  /** Runs while requests wait. */
  async #poll(): Promise<void> {
    if (this.#isPolling) return
    this.#isPolling = true
    while (this.#waiters.size > 0) {
      await sleep(POLL_MS)
      await this.#look().catch(error => {
        for (const { fail } of this.#waiters.values()) fail(error)
      })
    }
    this.#isPolling = false
  }

  async #look(): Promise<void> {
    const { isDraining } = this.service
    const head = isDraining ? '' : await withRetries(() => readHead(this.database.db))
    for (const { look, end } of [...this.#waiters.values()]) {
      if (isDraining) end()
      else await look(head)
    }
  }
}
