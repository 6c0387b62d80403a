/** Whose client has taken longer than this may have to make room. */
const PATIENCE_MS = 1_000

/** What is still being read, or still being sent. */
export interface Unfinished {
  /** Reads or sends no further, and gives back its memory. */
  abandon(): void
}

/**
 * The bodies that had not arrived as a whole when the service began to read them, and the long answers that have not gone out. Where all
 * places, or all memory, for requests are taken, those that wait for their client make room, the oldest first: to begin a thousand
 * requests, or to read no answer, costs their sender nothing.
 */
export class UnfinishedTransfers {
  /** With the time of their beginning, or of what came of them last; oldest first. */
  readonly #since = new Map<Unfinished, number>()

  add(transfer: Unfinished): void {
    this.#since.set(transfer, performance.now())
  }

  /** Its client has done something. Does nothing for one that is not among them any more. */
  renew(transfer: Unfinished): void {
    if (this.#since.delete(transfer)) this.add(transfer)
  }

  delete(transfer: Unfinished): void {
    this.#since.delete(transfer)
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
