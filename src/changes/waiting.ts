import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { RateLimited, TRY_AGAIN, Unavailable } from '../errors.js'
import { readEnds } from './feed.js'

/** At most 200 requests wait for changes at the same time, and at most one for each token. */
const WAITING_MAX = 200
const POLL_MS = 1_000

export interface Page {
  changes: object[]
  next: string
}

/**
 * Requests that wait for changes. They hold no database connection: one query a second finds the newest change for all of them. They then read
 * one after another, for at most a twentieth of the time, so that other requests are not slowed down.
 */
export class Waiting {
  readonly #tokens = new Set<number>()
  #head: Promise<string> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  constructor(
    readonly database: Database,
    readonly service: { readonly isDraining: boolean },
  ) {}

  /** Waits until there are changes after a cursor, the time is over, or the client disconnects. Throws `RateLimited`, `Unavailable`. */
  async wait(token: number, after: string, waitMs: number, socket: Socket, read: (after: string) => Promise<Page>) {
    if (this.#tokens.has(token)) throw new RateLimited('token-waiting', 1)
    if (this.#tokens.size >= WAITING_MAX) {
      const message = `At most ${WAITING_MAX} requests can wait for changes at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    this.#tokens.add(token)
    const ended = new AbortController()
    const end = () => ended.abort()
    socket.once('close', end)
    const deadline = performance.now() + waitMs
    const over = sleep(waitMs, undefined, { signal: ended.signal }).catch(() => undefined)
    const isGone = () => socket.destroyed || this.service.isDraining
    try {
      let page: Page = { changes: [], next: after }
      for (let head: unknown = ''; ; head = await Promise.race([this.#nextHead(), over])) {
        const last = page
        if (head !== last.next) page = await this.#inTurn(async () => (isGone() ? last : await read(last.next)), over)
        if (page.changes.length > 0 || performance.now() >= deadline || isGone()) return page
      }
    } finally {
      end()
      socket.off('close', end)
      this.#tokens.delete(token)
    }
  }

  /** The newest change, read one second from now. All waiting requests share the query. */
  #nextHead(): Promise<string> {
    this.#head ??= sleep(POLL_MS)
      .then(() => withRetries(() => readEnds(this.database.db)))
      .then(({ now }) => now)
      .finally(() => {
        this.#head = undefined
      })
    return this.#head
  }

  /** Waits for its turn, then reads a page. A request whose time is over reads at once: an empty answer must mean that nothing changed. */
  #inTurn(read: () => Promise<Page>, over: Promise<unknown>): Promise<Page> {
    const page = Promise.race([this.#turn, over]).then(read)
    this.#turn = this.#turn.then(async () => {
      const began = performance.now()
      await page.catch(() => undefined)
      await sleep(Math.min(19 * (performance.now() - began), POLL_MS))
    })
    return page
  }
}
