import { setTimeout as sleep } from 'node:timers/promises'
import { QueueExhausted } from '../db/connection/database-error.js'
import { WorkQueue } from '../db/connection/work-queue.js'
import { Unavailable } from '../errors.js'

/** After each turn nobody has one for so many times as long: all turns together take an eighth of the thread. */
const REST_FACTOR = 7

/** How many bodies of one token may wait for a turn, and for how long. */
const WAITING_PER_TOKEN_MAX = 100
const WAIT_MS = 20_000

/**
 * The turns in which dear bodies are parsed, checked and refused on the thread that serves requests: one at a time, with a rest
 * behind each that is as long as the turn was dear, for then others are served. Tokens take turns, and who had none lately comes
 * first; a token alone has half of that eighth. Ordinary bodies need none.
 */
export class BodyTurns {
  readonly #queue = new WorkQueue({
    runningMax: 1,
    runningPerCallerMax: 1,
    waitingPerCallerMax: WAITING_PER_TOKEN_MAX,
    waitMs: WAIT_MS,
    restRatio: 1, // who sends one now and then comes before those who send one after the other
  })

  /** Whether something of this token waits for its turn. */
  isAwaited(token: string): boolean {
    return this.#queue.isAwaited(token)
  }

  /**
   * Does work when it is the turn of its token, at once where nobody else has one. `usedMs` were used for it before, and count.
   * Throws `RateLimited` when too much of the token waits, `Unavailable` when no turn came in time; then the work was not begun.
   */
  async take(token: string, work: () => void, usedMs = 0): Promise<void> {
    const turn = async () => {
      const start = performance.now() - usedMs
      try {
        work()
      } finally {
        await sleep(REST_FACTOR * (performance.now() - start))
      }
    }
    try {
      await this.#queue.run(token, turn)
    } catch (error) {
      if (!(error instanceof QueueExhausted)) throw error
      throw new Unavailable('overloaded', 'Other large bodies are read before this one. Try again.', 'not_applied')
    }
  }
}
