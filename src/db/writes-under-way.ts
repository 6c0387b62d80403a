import { instantUs, laterInstant } from './clock.js'

const AHEAD_MS_MAX = 1_000

/** A write that this process is storing, or has stored while somebody watched. */
interface Write {
  /** What it writes. */
  key: string
  /** The time that it bears, as `instantText` writes it. */
  at: string
  endedMs: number
  ended: Promise<void>
}

/** What was written while it was on. */
export interface Watch {
  /** Resolves for each write of one of these keys that bears an earlier time, and was not stored before the watch began. */
  earlier(keys: ReadonlySet<string>, at: string): Promise<void>[]
  end(): void
}

/**
 * The writes of this process, each from the moment that it has its time until it is stored or given up. What bears an earlier
 * time may be stored later: who reads in between has seen the one without the other, which is the state of no time.
 */
export class WritesUnderWay {
  readonly #writes = new Set<Write>()
  /** The latest time that was shown, or that a write bears: the clock is known to a round trip only, and would run back. */
  #latest: string | null = null
  /** In the order in which they began. */
  readonly #watches = new Set<{ sinceMs: number }>()

  /** Answers what to call when the write is stored or given up. */
  begin(key: string, at: string): () => void {
    let resolve: () => void = () => undefined
    const ended = new Promise<void>(done => {
      resolve = done
    })
    const write = { key, at, endedMs: Number.POSITIVE_INFINITY, ended }
    this.#writes.add(write)
    this.noteShown(at)
    return () => {
      write.endedMs = performance.now()
      resolve()
      this.#forget()
    }
  }

  /** Begins before the statement whose answer is judged. */
  watch(): Watch {
    const watch = { sinceMs: performance.now() }
    this.#watches.add(watch)
    return {
      earlier: (keys, at) =>
        [...this.#writes]
          .filter(write => write.endedMs >= watch.sinceMs && write.at < at && keys.has(write.key))
          .map(({ ended }) => ended),
      end: () => {
        this.#watches.delete(watch)
        this.#forget()
      },
    }
  }

  /** Notes the time of an answer: what is written from now on bears a later one. */
  noteShown(at: string): void {
    this.#latest = laterInstant(this.#latest, at)
  }

  /**
   * The time that a write must come after, at this time of the database in milliseconds since 1970, which is known to the length of
   * a round trip only; null where there is none. What is further ahead is of a clock that was set back since.
   */
  shownBefore(nowMs: number): string | null {
    const isNear = this.#latest !== null && instantUs(this.#latest) / 1_000 - nowMs < AHEAD_MS_MAX
    return isNear ? this.#latest : null
  }

  /** Nobody asks any more for what ended before the oldest watch began. */
  #forget(): void {
    const [oldest] = this.#watches
    const sinceMs = oldest?.sinceMs ?? Number.POSITIVE_INFINITY
    for (const write of this.#writes) {
      if (write.endedMs < sinceMs) this.#writes.delete(write)
    }
  }
}
