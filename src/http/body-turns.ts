import type { Waiter } from '../db/connection/waiter.js'
import { WorkQueue } from '../db/connection/work-queue.js'

/** After each turn its place is kept for so many times as long: the turns of a place take a quarter of the thread. */
const REST_FACTOR = 3

/** A rest that ends later than it should, for the thread had other work, shortens the next ones by as much, up to so many ms. */
const LATE_MS_MAX = 20

/** How many bodies of one token may wait for a turn, and for how long. */
const WAITING_PER_TOKEN_MAX = 100
const WAIT_MS = 20_000

/**
 * The turns in which dear bodies are parsed, checked and refused on the thread that serves requests: one at a time, with a rest
 * behind each that is as long as the turn was dear, for then others are served. Tokens that send one after the other have the same
 * time; who sends less is served first. Ordinary bodies need none.
 */
export class BodyTurns {
  readonly #queue = new WorkQueue({
    name: 'body_turns',
    awaited: 'a turn for large bodies to be read and parsed',
    runningMax: 2,
    reservedMax: 1, // a short turn of who sends little waits for the rest of no long one
    runningPerCallerMax: 1,
    waitingPerCallerMax: WAITING_PER_TOKEN_MAX,
    waitMs: WAIT_MS,
  })
  /** When the rests of the places that are free should have ended. */
  readonly #restEnds = [0, 0]

  /**
   * Does work when it is the turn of its token, at once where nobody else has one. Throws `RateLimited` when too much of the token
   * waits, `QueueExhausted` when no turn came in time; then the work was not begun.
   */
  async take(token: string, work: () => void, { usedMs = 0, expectedMs = 0, waiter }: Turn = {}): Promise<void> {
    const leave = await this.#queue.enter(token, undefined, (1 + REST_FACTOR) * (usedMs + expectedMs), waiter)
    const restEnd = this.#restEnds.pop() ?? 0
    const start = performance.now()
    try {
      work()
    } finally {
      const heldMs = (1 + REST_FACTOR) * (performance.now() - start + usedMs)
      const end = Math.max(restEnd, start - LATE_MS_MAX) + heldMs
      const free = () => {
        this.#restEnds.push(end)
        leave(heldMs)
      }
      const restMs = end - performance.now()
      if (restMs > 0) setTimeout(free, restMs)
      else free()
    }
  }
}

/** What is known of a turn, in ms. */
interface Turn {
  /** What was used for it outside of `work`, and counts. */
  usedMs?: number
  /** About what `work` will take. */
  expectedMs?: number
  /** Learns of the wait for it. */
  waiter?: Waiter
}
