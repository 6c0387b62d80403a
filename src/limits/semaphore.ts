import { WaitedInVain } from '../db/connection/database-error.js'
import { RateLimited, RETRY_AFTER_S } from '../errors.js'
import type { Bounded, WorkBounds } from '../updates/resource.js'

export interface SemaphoreLimits {
  max: number
  /** The most work of one key that runs at once. */
  maxPerKey: number
  /** The wait, in milliseconds, after which work is refused. */
  waitMs: number
  /** Makes the error of a wait that took too long. `isOwn`: work of the same key was in the way. */
  refusal(isOwn: boolean): Error
}

/** Limits the work that runs at once, in total and for each key. The rest waits in the order of arrival. */
export class Semaphore {
  readonly #limits: SemaphoreLimits
  #running = 0
  readonly #ofKey = new Map<string, number>()
  readonly #waiting = new Set<{ key: string; start: () => void }>()

  constructor(limits: SemaphoreLimits) {
    this.#limits = limits
  }

  /** Runs work when the limits allow it. Throws `refusal` if they do not in time; the work has not begun then. */
  readonly run: Bounded = async (key, work) => {
    await this.#enter(key)
    try {
      return await work()
    } finally {
      this.#running--
      this.#count(key, -1)
      for (const next of this.#waiting) if (this.#isFree(next.key)) next.start()
    }
  }

  #enter(key: string): Promise<void> | undefined {
    const { waitMs, refusal } = this.#limits
    if (this.#isFree(key)) return this.#begin(key)
    return new Promise((resolve, reject) => {
      const start = () => {
        clearTimeout(limit)
        this.#waiting.delete(waiting)
        resolve(this.#begin(key))
      }
      const waiting = { key, start }
      const limit = setTimeout(() => {
        this.#waiting.delete(waiting)
        reject(refusal(this.#running < this.#limits.max))
      }, waitMs)
      this.#waiting.add(waiting)
    })
  }

  #isFree(key: string): boolean {
    return this.#running < this.#limits.max && (this.#ofKey.get(key) ?? 0) < this.#limits.maxPerKey
  }

  #begin(key: string): undefined {
    this.#running++
    this.#count(key, 1)
  }

  #count(key: string, by: 1 | -1): void {
    const count = (this.#ofKey.get(key) ?? 0) + by
    if (count === 0) this.#ofKey.delete(key)
    else this.#ofKey.set(key, count)
  }
}

/**
 * Allows one of each key and `max` in total. A wait that takes too long is `RateLimited` if the token's own work is in the way, else
 * `WaitedInVain`.
 */
function oneOfKey(max: number, waitMs: number, setting: string, awaited: string): Bounded {
  const refusal = (isOwn: boolean) => {
    if (!isOwn) return new WaitedInVain(awaited, waitMs, setting)
    const unit = 'concurrent-requests'
    return new RateLimited({ limit: 'token-requests', quota: 1, unit, remaining: 0, resetS: RETRY_AFTER_S, setting })
  }
  return new Semaphore({ max, maxPerKey: 1, waitMs, refusal }).run
}

/** Returns the limits of one process. At most two expensive statements run at once, one for each token. */
export function workBounds({ poolSize, lockTimeoutMs }: { poolSize: number; lockTimeoutMs: number }): WorkBounds {
  const expensiveMax = Math.min(2, Math.max(1, Math.floor(poolSize / 4)))
  return { expensive: oneOfKey(expensiveMax, lockTimeoutMs, 'LOCK_TIMEOUT_MS', 'other requests that read much') }
}

/** Limits the bodies in workers: one for each token, so that a slow one delays no other token. */
export function bodyTurns(workersMax: number, waitMs: number): Bounded {
  return oneOfKey(workersMax, waitMs, 'DEFINITION_TIMEOUT_MS', 'a worker for large definitions')
}
