import { WaitedInVain } from '../db/connection/database-error.js'
import { RateLimited, RETRY_AFTER_S } from '../errors.js'
import type { Bounded, WorkBounds } from '../updates/resource.js'

export interface SemaphoreLimits {
  /** How much runs at once. */
  max: number
  /** Of one key. */
  maxPerKey: number
  /** How long one waits before it is refused. */
  waitMs: number
  /** The error of a wait that took too long; `isOwn` where work of the same key was in the way. */
  refusal(isOwn: boolean): Error
}

/** Bounds how much runs at once, in all and of each key; the rest waits in the order in which it came. */
export class Semaphore {
  readonly #limits: SemaphoreLimits
  #running = 0
  readonly #ofKey = new Map<string, number>()
  readonly #waiting = new Set<{ key: string; start: () => void }>()

  constructor(limits: SemaphoreLimits) {
    this.#limits = limits
  }

  /** Runs work when the limits allow it. Throws what `refusal` answers where they do not in time; then it was not begun. */
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

/** One of a key at once, at most `max` of all. A wait that took too long is refused by its setting, to a token for its own work. */
function oneOfKey(max: number, waitMs: number, setting: string, awaited: string): Bounded {
  const refusal = (isOwn: boolean) => {
    if (!isOwn) return new WaitedInVain(awaited, waitMs, setting)
    const unit = 'concurrent-requests'
    return new RateLimited({ limit: 'token-requests', quota: 1, unit, remaining: 0, resetS: RETRY_AFTER_S, setting })
  }
  return new Semaphore({ max, maxPerKey: 1, waitMs, refusal }).run
}

/** Connections that updates which wait for locked rows leave to everybody else. */
const UNLOCKED_CONNECTIONS = 2

/**
 * The bounds of one process. Changes of one row, and creations by one person, take turns. Of updates whose row another session has locked, all but a few
 * connections may wait for it. Two expensive statements run at once, one of a token.
 */
export function workBounds({ poolSize, lockTimeoutMs }: { poolSize: number; lockTimeoutMs: number }): WorkBounds {
  const setting = 'LOCK_TIMEOUT_MS'
  const refusedFor = (awaited: string) => () => new WaitedInVain(awaited, lockTimeoutMs, setting)
  const limits = { maxPerKey: 1, waitMs: lockTimeoutMs }
  const rowTurn = refusedFor('other changes of the same agent or tool, or other creations by the same person')
  const lockedRow = refusedFor('updates of other agents or tools, which wait for locks of other sessions')
  const lockWaitsMax = Math.max(1, poolSize - UNLOCKED_CONNECTIONS)
  const expensiveMax = Math.min(2, Math.max(1, Math.floor(poolSize / 4)))
  return {
    rowTurn: new Semaphore({ ...limits, max: Number.POSITIVE_INFINITY, refusal: rowTurn }).run,
    lockedRow: new Semaphore({ ...limits, max: lockWaitsMax, refusal: lockedRow }).run,
    expensive: oneOfKey(expensiveMax, lockTimeoutMs, setting, 'other requests that read much'),
  }
}

/** Bodies that workers are at: one of a token, so that a slow one holds up no other token's. */
export function bodyTurns(workersMax: number, waitMs: number): Bounded {
  return oneOfKey(workersMax, waitMs, 'DEFINITION_TIMEOUT_MS', 'a worker for large definitions')
}
