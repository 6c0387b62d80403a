/** A body whose client has taken longer than this may have to make room. */
const PATIENCE_MS = 1_000

/** What is still being read. */
interface Unfinished {
  /** Reads no further, and has the request refused. */
  abandon(): void
}

/**
 * The bodies that had not arrived as a whole when the service began to read them. Where all places, or all memory, for requests are taken,
 * those that wait for their client make room, the oldest first: to begin a thousand requests costs their sender nothing.
 */
export class UnfinishedBodies {
  /** With the time of their beginning, oldest first. */
  readonly #since = new Map<Unfinished, number>()

  add(body: Unfinished): void {
    this.#since.set(body, performance.now())
  }

  delete(body: Unfinished): void {
    this.#since.delete(body)
  }

  /** How many have waited for their client for so long that they may have to make room. */
  countSlow(): number {
    const latest = performance.now() - PATIENCE_MS
    let count = 0
    for (const since of this.#since.values()) {
      if (since > latest) break
      count++
    }
    return count
  }

  /** Abandons the oldest, if it has waited long enough; answers whether there was one. */
  abandonOldest(): boolean {
    const [oldest] = this.#since
    if (oldest === undefined || oldest[1] > performance.now() - PATIENCE_MS) return false
    this.#since.delete(oldest[0])
    oldest[0].abandon()
    return true
  }
}
