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
 * Requests that wait for changes. They hold no connection: once a second, one look at the newest change serves all. Then they read in turn, for
 * at most a twentieth of the time, so that others keep the rest however many changes there are.
 */
export class Waiting {
  readonly #tokens = new Set<number>()
  #head: Promise<string> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  constructor(
    readonly database: Database,
    readonly service: { readonly isDraining: boolean },
  ) {}

  /** Reads until there are changes after a cursor, the time is over or the client leaves. Throws `RateLimited`, `Unavailable`. */
  async wait(token: number, after: string, waitMs: number, socket: Socket, read: (after: string) => Promise<Page>) {
    if (this.#tokens.has(token)) throw new RateLimited('token-waiting', 1)
    if (this.#tokens.size >= WAITING_MAX) {
      const message = `${WAITING_MAX} requests wait for changes, which is the most at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    this.#tokens.add(token)
    const ended = new AbortController()
    const end = () => ended.abort()
    socket.once('close', end)
    const over = sleep(waitMs, undefined, { signal: ended.signal }).catch(() => undefined)
    try {
      let page: Page = { changes: [], next: after, isEnd: true }
      for (let head: string | undefined = ''; head !== undefined; head = await Promise.race([this.#nextHead(), over])) {
        if (socket.destroyed || this.service.isDraining) break
        const { next } = page
        if (head !== next) page = (await Promise.race([this.#inTurn(() => read(next), ended.signal), over])) ?? page
        if (page.changes.length > 0 || !page.isEnd) break
      }
      return page
    } finally {
      end()
      socket.off('close', end)
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

  /** The work of a request in its turn; nothing if the request has ended by then. */
  #inTurn(work: () => Promise<Page>, ended: AbortSignal): Promise<Page | undefined> {
    let began = 0
    const page = this.#turn.then(() => {
      began = performance.now()
      return ended.aborted ? undefined : work()
    })
    this.#turn = page.catch(() => undefined).then(() => sleep(Math.min(19 * (performance.now() - began), POLL_MS)))
    return page
  }
}
