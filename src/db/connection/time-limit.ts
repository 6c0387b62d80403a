/**
 * Watches that what begins also ends in time, for work that comes one after the other and nearly always ends: one timer
 * for all of it instead of one each, which is looked at when it rings. It keeps no process alive.
 */
export class TimeLimit {
  readonly #limitMs: number
  readonly #expired: () => void
  #begunAt: number | undefined
  #timer: NodeJS.Timeout | undefined

  /** `expired` is called once for work that has not ended `limitMs` after it began. */
  constructor(limitMs: number, expired: () => void) {
    this.#limitMs = limitMs
    this.#expired = expired
  }

  begin(): void {
    this.#begunAt = performance.now()
    this.#timer ??= this.#wait(this.#limitMs)
  }

  end(): void {
    this.#begunAt = undefined
  }

  #wait(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#look(), ms).unref()
  }

  #look(): void {
    this.#timer = undefined
    if (this.#begunAt === undefined) return
    const leftMs = this.#begunAt + this.#limitMs - performance.now()
    if (leftMs > 0) this.#timer = this.#wait(leftMs)
    else this.#expired()
  }
}
