/** Nobody needs to hear of what is done sooner. */
const FIRST_MS = 2_000
const LONGEST_PAUSE_MS = 30_000

/**
 * Says on standard error what a command is doing once it takes longer than two seconds: then, and after pauses that double, up
 * to half a minute. It holds nothing up: a command that ends sooner says nothing.
 */
export class Progress {
  readonly #remark: (text: string) => void
  readonly #startedMs = performance.now()
  #stage = 'working'
  #nextMs = FIRST_MS
  #timer: NodeJS.Timeout | undefined

  constructor(remark: (text: string) => void) {
    this.#remark = remark
    this.#wait()
  }

  /** What is being done now, and how much of it: `sealing anew: 300 of 20,000 values`. */
  at(stage: string, done?: number, total?: number, unit = ''): void {
    const count = done === undefined ? '' : `: ${done}${total === undefined ? '' : ` of ${total}`}${unit && ` ${unit}`}`
    this.#stage = stage + count
    // Work that never waits lets no timer fire.
    if (this.#elapsedMs() >= this.#nextMs) this.#say()
  }

  end(): void {
    clearTimeout(this.#timer)
  }

  #elapsedMs(): number {
    return performance.now() - this.#startedMs
  }

  #wait(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#say(), Math.max(0, this.#nextMs - this.#elapsedMs()))
    this.#timer.unref()
  }

  #say(): void {
    const elapsedMs = this.#elapsedMs()
    this.#remark(`${this.#stage} (${Math.round(elapsedMs / 1000)} s)`)
    this.#nextMs = elapsedMs + Math.min(elapsedMs, LONGEST_PAUSE_MS)
    this.#wait()
  }
}
