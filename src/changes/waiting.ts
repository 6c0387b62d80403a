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

/**
 * Requests that wait for changes. They hold no connection: once a second, one look at the newest change serves all, and then they read in
 * turn.
 */
export class Waiting {
  readonly #tokens = new Set<number>()
  #head: Promise<string> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  constructor(
    readonly database: Database,
    readonly service: { readonly isDraining: boolean },
  ) {}

  /** Reads on after an empty page until there are changes, the time is over or the client leaves. Throws `RateLimited`, `Unavailable`. */
  async wait(token: number, first: Page, waitMs: number, socket: Socket, read: (after: string) => Promise<Page>) {
    if (this.#tokens.has(token)) throw new RateLimited('token-waiting', 1)
    if (this.#tokens.size >= WAITING_MAX) {
      const message = `${WAITING_MAX} requests wait for changes, which is the most at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    this.#tokens.add(token)
    const until = performance.now() + waitMs
    try {
      for (let page = first; ; ) {
        const leftMs = until - performance.now()
        const head = await (leftMs > POLL_MS ? this.#nextHead() : sleep(Math.max(leftMs, 0)))
        if (head === undefined || socket.destroyed || this.service.isDraining) return page
        if (head !== page.next) page = await this.#inTurn(() => read(page.next))
        if (page.changes.length > 0 || !page.isEnd) return page
      }
    } finally {
      this.#tokens.delete(token)
    }
  }

  /** The newest change of a moment from now. */
  #nextHead(): Promise<string> {
    this.#head ??= sleep(POLL_MS)
      .then(() => withRetries(() => readHead(this.database.db)))
      .then(({ head }) => head)
      .finally(() => {
        this.#head = undefined
      })
    return this.#head
  }

  async #inTurn(work: () => Promise<Page>): Promise<Page> {
    const page = this.#turn.then(work)
    this.#turn = page.catch(() => undefined)
    return await page
  }
}
