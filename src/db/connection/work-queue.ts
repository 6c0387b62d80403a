import { QueueExhausted } from './database-error.js'

/** How much work may run at once, and how much may wait for how long. */
export interface WorkQueueLimits {
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
 * The queue in front of the pool for work that may keep a connection for long: it waits inside the database for others, or
 * answers much. So this work never has more than a share of the connections. First in, first out, but a key that has as much
 * running as one may have is passed over.
 */
export class WorkQueue {
  readonly #limits: WorkQueueLimits
  readonly #running = new Map<string, number>()
  readonly #waiting: Waiting[] = []
  #runningCount = 0

  constructor(limits: WorkQueueLimits) {
    this.#limits = limits
  }

  /**
   * Runs the work when there is a place for it and answers what it answers. Work of the same key shares what one key may have.
   * Throws `QueueExhausted` when too much of its key waits already, or when no place became free in time; then it was not begun.
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
    if (ahead >= this.#limits.waitingPerKeyMax) throw new QueueExhausted()
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
        reject(new QueueExhausted())
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
