import { WaitedInVain } from '../db/connection/database-error.js'
import { RateLimited } from '../errors.js'
import type { Bounded } from '../updates/resource.js'

/** Limits what happens at once. The rest waits in the order of arrival. */
export class Semaphore {
  taken = 0
  readonly #waiting: (() => void)[] = []

  /** Of `max` places. Throws `refusal` after a wait of `waitMs`, and at once if `waitingMax` wait already. */
  constructor(
    readonly max: number,
    readonly waitMs: number,
    readonly refusal: () => Error,
    readonly waitingMax = Number.POSITIVE_INFINITY,
  ) {}

  get isFull(): boolean {
    return this.taken >= this.max
  }

  /** Takes a place, and returns the function that gives it back. Throws `refusal` if none becomes free in time. */
  async enter(): Promise<() => void> {
    if (this.isFull) await this.#wait()
    else this.taken++
    return () => {
      const next = this.#waiting[0]
      if (next === undefined) this.taken--
      else next() // the next in line gets the place
    }
  }

  #wait(): Promise<void> {
    if (this.#waiting.length >= this.waitingMax) throw this.refusal()
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        this.#waiting.splice(this.#waiting.indexOf(end), 1)
        clearTimeout(timer)
        if (error === undefined) resolve()
        else reject(error)
      }
      const timer = setTimeout(() => end(this.refusal()), this.waitMs)
      this.#waiting.push(end)
    })
  }
}

/**
 * Limits the bodies in workers: `max` in total and one of each key (a token), so that a slow one delays no other token. Throws `RateLimited`
 * after a wait for the key's own work, `WaitedInVain` after one for others'.
 */
export function bodyTurns(max: number, waitMs: number): Bounded {
  const ofAll = () => new WaitedInVain('a worker for large definitions', waitMs)
  const ofOne = () => new RateLimited('token-requests', 1)
  const all = new Semaphore(max, waitMs, ofAll)
  const ofKey = new Map<string, Semaphore>()
  return async (key, work) => {
    const own = ofKey.get(key) ?? new Semaphore(1, waitMs, ofOne)
    ofKey.set(key, own)
    const leaveOwn = await own.enter()
    try {
      const leave = await all.enter()
      return await work().finally(leave)
    } finally {
      leaveOwn()
      if (own.taken === 0) ofKey.delete(key)
    }
  }
}
