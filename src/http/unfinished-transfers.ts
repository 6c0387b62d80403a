/** Whose client has done nothing for longer than this may have to make room. */
const PATIENCE_MS = 1_000

/**
 * So long has the reader of an answer who holds less than is asked for: behind the buffers of the system, which take 4 MiB at once and
 * more when a third of that has left, who reads 50 kB/s is seen to read every 26 s. Of a body each piece is seen.
 */
const PATIENCE_WITH_READERS_MS = 30_000

/** Who holds most has taken long enough with one transfer when its client had so much time, whatever it does. */
const AGE_MS = 10_000

/** Who has not sent the whole of a body in so much time, in ms, has no memory for the rest before that comes, where others wait for it. */
const PROMPT_MS = 200

/** What all requests share, and of which all is taken. */
export type Shared = 'places' | 'memory'

/** Why a transfer is abandoned: others need what it holds, or the service ends. */
export type AbandonedFor = Shared | 'stop'

/** What is still being read, or still being sent. */
export interface Unfinished {
  readonly kind: 'body' | 'answer'
  /** In whose name it holds memory. */
  readonly owner: string
  /** The bytes of memory that it holds now. */
  heldBytes(): number
  /** Gives back what was reserved for bytes that have not come, and answers how many it was. Answers have nothing of the kind. */
  shrink?(): number
  /** Reads or sends no further, and gives back its memory. */
  abandon(reason: AbandonedFor): void
}

/** The time that the client of a transfer had for it, in ms. */
interface Times {
  /** Before the last pause. */
  earlierMs: number
  /** When it began, or went on. */
  since: number
  /** When its client last did something; undefined while it is the service that has it wait. */
  active: number | undefined
}

/**
 * The bodies that had not arrived as a whole when the service began to read them, and the long answers that have not gone out. Where all
 * places for requests are taken, bodies that wait for their client make room, and where all memory is, answers too: to begin a
 * thousand requests, or to read no answer, costs their sender nothing. The client of a body that waits for the service is not slow.
 */
export class UnfinishedTransfers {
  readonly #times = new Map<Unfinished, Times>()

  add(transfer: Unfinished): void {
    const now = performance.now()
    this.#times.set(transfer, { earlierMs: 0, since: now, active: now })
  }

  delete(transfer: Unfinished): void {
    this.#times.delete(transfer)
  }

  /** Its client has done something. Does nothing, as do the next two, for one that is not among them any more. */
  renew(transfer: Unfinished): void {
    const times = this.#times.get(transfer)
    if (times !== undefined) times.active = performance.now()
  }

  /** The service has it wait. */
  pause(transfer: Unfinished): void {
    const times = this.#times.get(transfer)
    if (times?.active === undefined) return
    times.earlierMs += performance.now() - times.since
    times.active = undefined
  }

  /** It waits for its client again. */
  resume(transfer: Unfinished): void {
    const times = this.#times.get(transfer)
    if (times === undefined) return
    times.since = performance.now()
    times.active = times.since
  }

  /** How many bodies have waited for their client for so long that they may have to make room. */
  countSlowBodies(): number {
    const now = performance.now()
    let count = 0
    for (const [{ kind }, times] of this.#times) if (kind === 'body' && idleMs(times, now) >= PATIENCE_MS) count++
    return count
  }

  /** Abandons the body whose client has sent nothing for longest, if that is long enough; answers whether there was one. */
  abandonIdlestBody(): boolean {
    const now = performance.now()
    return this.#abandonMost('places', ({ kind }, times) => {
      const idle = idleMs(times, now)
      return kind !== 'body' || idle < PATIENCE_MS ? [] : [idle]
    })
  }

  /**
   * Makes room for a request whose owner holds `heldBytes`, and would then hold `thenBytes`: abandons a transfer of who holds most, of
   * these the one whose client has done nothing for longest. Who reads an answer and holds less than that has longer. Where no client
   * is slow, the body of who holds most makes room, if that is more than `heldBytes`. Answers whether there was one.
   */
  abandonOfLargest(heldBytes: number, thenBytes: number, heldBy: (owner: string) => number): boolean {
    return this.#abandonForMemory(thenBytes, heldBy, ({ kind }, held) => kind === 'body' && held > heldBytes)
  }

  /**
   * Makes room for what may wait, and whose owner would then hold `thenBytes`: what is reserved for bodies that come slowly is given back as
   * far as it is not used yet. Where that is nothing, abandons a transfer of who holds most, of these the one whose client has done
   * nothing for longest; who reads an answer and holds less than that has longer. Where no client does nothing, the body makes room whose
   * client had long for it, of who holds more. Answers whether there is more room now.
   */
  makeRoomForWaiting(thenBytes: number, heldBy: (owner: string) => number): boolean {
    const now = performance.now()
    let unusedBytes = 0
    for (const [transfer, times] of this.#times) {
      if (clientMs(times, now) >= PROMPT_MS) unusedBytes += transfer.shrink?.() ?? 0
    }
    if (unusedBytes > 0) return true
    const hadLong = ({ kind }: Unfinished, held: number, tookMs: number) =>
      kind === 'body' && held > thenBytes && tookMs >= PATIENCE_MS
    return this.#abandonForMemory(thenBytes, heldBy, hadLong)
  }

  /** The service ends: abandons all bodies whose client has sent nothing for longer than it may have to make room. */
  abandonSlowBodies(): void {
    const now = performance.now()
    for (const [transfer, times] of this.#times) {
      if (transfer.kind === 'body' && idleMs(times, now) >= PATIENCE_MS) this.#abandon(transfer, 'stop')
    }
  }

  /** The service ends: abandons whatever is left. */
  abandonAll(): void {
    for (const transfer of this.#times.keys()) this.#abandon(transfer, 'stop')
  }

  #abandonForMemory(
    thenBytes: number,
    heldBy: (owner: string) => number,
    mayGo: (transfer: Unfinished, held: number, tookMs: number) => boolean,
  ): boolean {
    const now = performance.now()
    return this.#abandonMost('memory', (transfer, times) => {
      if (transfer.heldBytes() === 0) return []
      const [held, idle] = [heldBy(transfer.owner), idleMs(times, now)]
      const holdsMuch = held >= thenBytes
      const tookMs = clientMs(times, now)
      const isOld = idle >= 0 && holdsMuch && tookMs >= AGE_MS
      const patienceMs = transfer.kind === 'answer' && !holdsMuch ? PATIENCE_WITH_READERS_MS : PATIENCE_MS
      if (isOld || idle >= patienceMs) return [1, held, idle]
      return mayGo(transfer, held, tookMs) ? [0, held] : []
    })
  }

  /** Abandons the one of the highest rank; those of an empty rank stay. */
  #abandonMost(reason: Shared, rankOf: (transfer: Unfinished, times: Times) => number[]): boolean {
    let found: Unfinished | undefined
    let highest: number[] = []
    for (const [transfer, times] of this.#times) {
      const rank = rankOf(transfer, times)
      if (!isHigher(rank, highest)) continue
      found = transfer
      highest = rank
    }
    if (found === undefined) return false
    this.#abandon(found, reason)
    return true
  }

  #abandon(transfer: Unfinished, reason: AbandonedFor): void {
    this.#times.delete(transfer)
    transfer.abandon(reason)
  }
}

/** How long its client had for it. */
function clientMs({ active, earlierMs, since }: Times, now: number): number {
  return earlierMs + (active === undefined ? 0 : now - since)
}

/** For how long its client has done nothing; negative while that is not its turn. */
function idleMs({ active }: Times, now: number): number {
  return active === undefined ? -1 : now - active
}

function isHigher(rank: readonly number[], than: readonly number[]): boolean {
  for (const [place, value] of rank.entries()) {
    const other = than[place] ?? -1
    if (value !== other) return value > other
  }
  return false
}
