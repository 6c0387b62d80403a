import { setTimeout as sleep } from 'node:timers/promises'
import type { Waiter } from '../db/connection/waiter.js'
import { WorkQueue } from '../db/connection/work-queue.js'

/** After each turn nobody has one for so many times as long: all turns together take an eighth of the thread. */
const REST_FACTOR = 7

/** How many bodies of one token may wait for a turn, and for how long. */
const WAITING_PER_TOKEN_MAX = 100
const WAIT_MS = 20_000

/** How long a turn waits for the pieces of a body that it reads. */
const PIECE_MS_MAX = 50

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

  /**
   * Does work when it is the turn of its token, at once where nobody else has one. Throws `RateLimited` when too much of the token
   * waits, `QueueExhausted` when no turn came in time; then the work was not begun.
   */
  async take(
    token: string,
    work: () => void,
    { usedMs = 0, expectedMs = 0, goesOn, waiter }: Turn = {},
  ): Promise<void> {
    const leave = await this.#queue.enter(token, undefined, (1 + REST_FACTOR) * (usedMs + expectedMs), waiter)
    const start = performance.now() - usedMs
    try {
      work()
    } finally {
      const rest = sleep(REST_FACTOR * (performance.now() - start))
      const pieces = Promise.race([goesOn ?? NOTHING, sleep(PIECE_MS_MAX)])
      void Promise.all([rest, pieces]).then(() => leave())
    }
  }
}

const NOTHING = Promise.resolve()

/** What is known of a turn. */
interface Turn {
  /** What was used for it before, and counts. */
  usedMs?: number
  /** About what it will take. */
  expectedMs?: number
  /** When what it began is done, and asks for the next turn where it needs one: others have theirs behind the whole body. */
  goesOn?: Promise<void> | undefined
  /** Learns of the wait for it. */
  waiter?: Waiter
}
