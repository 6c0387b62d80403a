import { TurnNotReached } from './database-error.js'

/** How much work may run at once, and how long the rest may wait for its turn. */
export interface TurnLimits {
  /** Of all keys together. */
  runningMax: number
  /** Of one key. */
  runningPerKeyMax: number
  /** Of one key. */
  waitingPerKeyMax: number
  waitMs: number
}

interface Waiting {
  key: string
  start(): void
}

/**
 * Work that may hold a connection for long, waiting inside the database for others or answering much. It takes turns here, in
 * front of the pool, so that it never has more than a share of the connections. In the order in which it came, but past
 * whoever has as much running as one may have.
 */
export class Turns {
  readonly #limits: TurnLimits
  readonly #running = new Map<string, number>()
  readonly #waiting: Waiting[] = []
  #runningCount = 0

  constructor(limits: TurnLimits) {
    this.#limits = limits
  }

  /**
   * Runs the work when its turn comes and answers what it answers. Work of the same key shares what one key may have.
   * Throws `TurnNotReached` when there are too many before it, or when its turn has not come in time; then it was not begun.
   */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    await this.#enter(key)
    try {
      return await work()
    } finally {
      this.#leave(key)
    }
  }

  #enter(key: string): Promise<void> | undefined {
    const ahead = this.#waiting.reduce((count, waiting) => count + (waiting.key === key ? 1 : 0), 0)
    if (ahead === 0 && this.#hasRoom(key)) {
      this.#take(key)
      return undefined
    }
    if (ahead >= this.#limits.waitingPerKeyMax) throw new TurnNotReached()
    return new Promise((resolve, reject) => {
      const waiting = {
        key,
        start: () => {
          clearTimeout(timer)
          this.#take(key)
          resolve()
        },
      }
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1)
        reject(new TurnNotReached())
      }, this.#limits.waitMs)
      this.#waiting.push(waiting)
    })
  }

  #take(key: string): void {
    this.#runningCount += 1
    this.#running.set(key, (this.#running.get(key) ?? 0) + 1)
  }

  #leave(key: string): void {
    this.#runningCount -= 1
    const left = (this.#running.get(key) ?? 0) - 1
    if (left > 0) this.#running.set(key, left)
    else this.#running.delete(key)
    const at = this.#waiting.findIndex(waiting => this.#hasRoom(waiting.key))
    if (at >= 0) this.#waiting.splice(at, 1)[0]?.start()
  }

  #hasRoom(key: string): boolean {
    const { runningMax, runningPerKeyMax } = this.#limits
    return this.#runningCount < runningMax && (this.#running.get(key) ?? 0) < runningPerKeyMax
  }
}
