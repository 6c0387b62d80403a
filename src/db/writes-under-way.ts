import { instantUs, laterInstant } from './clock.js'

const AHEAD_MS_MAX = 1_000

/** A write that was sent to the database and not answered, or was stored while somebody watched. */
interface Write {
  /** What it writes. */
  key: string
  /** The time that it bears, as `instantText` writes it. */
  at: string
  endedMs: number
  ended: Promise<boolean>
}

/** What was written while it was on. */
export interface Watch {
  /** To be called when the statement whose answer is judged is sent, if that is later: it sees what was stored before. */
  restart(): void
  /**
   * Of each write of one of these keys that bears an earlier time, and was not stored before the watch began, a promise: whether it
   * was stored, or may have been. Not where the write that bears the time `shownAt` is of the same key: that came after it.
   */
  earlier(keys: ReadonlySet<string>, at: string, shownAt: string | null): Promise<boolean>[]
  end(): void
}

/**
 * The writes of this process, each from the moment that it is sent and has its time until the database has answered: what waits here,
 * however long, is not among them. What bears an earlier time may be stored later: who reads in between has seen the one without
 * the other, which is the state of no time.
 */
export class WritesUnderWay {
  readonly #writes = new Set<Write>()
  /** The latest time that was shown, or that a write bears: the clock is known to a round trip only, and would run back. */
  #latest: string | null = null
  /** In the order in which they began. */
  readonly #watches = new Set<{ sinceMs: number }>()

  /** Answers what to call when the write was stored, or may have been, or was not. */
  begin(key: string, at: string): (isStored: boolean) => void {
    let resolve: (isStored: boolean) => void = () => undefined
    const ended = new Promise<boolean>(done => {
      resolve = done
    })
    const write = { key, at, endedMs: Number.POSITIVE_INFINITY, ended }
    this.#writes.add(write)
    this.noteShown(at)
    return isStored => {
      write.endedMs = performance.now()
      if (!isStored) this.#writes.delete(write)
      resolve(isStored)
      this.#forget()
    }
  }

  /** Begins before the statement whose answer is judged. */
  watch(): Watch {
    const watch = { sinceMs: performance.now() }
    this.#watches.add(watch)
    return {
      restart: () => {
        watch.sinceMs = performance.now()
        this.#watches.delete(watch) // it began last now
        this.#watches.add(watch)
        this.#forget()
      },
      earlier: (keys, at, shownAt) => {
        const writes = [...this.#writes].filter(({ key }) => keys.has(key))
        const shown = shownAt === null ? undefined : writes.find(write => write.at === shownAt)
        const isShown = (write: Write) => shown !== undefined && write.key === shown.key && write.at <= shown.at
        return writes
          .filter(write => write.endedMs >= watch.sinceMs && write.at < at && !isShown(write))
          .map(({ ended }) => ended)
      },
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
