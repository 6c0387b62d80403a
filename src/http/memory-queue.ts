import type { QueueName, Waiter } from '../db/connection/waiter.js'
import { RateLimited, RETRY_AFTER_S } from '../errors.js'
import type { Exhausted } from './memory-budget.js'

/** How many bodies of one token may wait, and of all together: of each some 64 KiB were read before that was known. */
const WAITING_PER_TOKEN_MAX = 100
const WAITING_MAX = 256

/** For how long: as long as for turns. A client has ten seconds more by default until its request must be whole. */
const WAIT_MS = 20_000

/** So often it is looked whether a transfer has become slow that may have to make room. */
const LOOK_MS = 100

/** Nobody knows before how fast it goes. */
const KNOWN_MS = 1_000

const QUEUE: QueueName = 'transfer_memory'

/** What the memory is that is waited for. */
export interface MemoryQueueOptions {
  /** Takes so many bytes for an owner, or says why not. */
  take(owner: string, bytes: number): Exhausted | undefined
  /** Has a slow transfer make room; answers whether one did. */
  makeRoom(owner: string, bytes: number): boolean
  /** What its client is told whose wait was in vain. */
  refusal(exhausted: Exhausted, owner: string, retryAfterS: number): Error
}

/** A body that waits. */
interface Waiting {
  owner: string
  bytes: number
  begin(): void
  failed(error: Error): void
  /** Ends the wait for good. */
  end(): void
}

/**
 * The queue of the bodies for which there is no memory yet: nothing of them is read meanwhile. What is free goes to whose owner will
 * have least under way with it, of the same to who asked first; nobody behind gets what that one needs. An owner whose own share is
 * taken waits for that alone. What is announced counts as under way, whether it comes or not.
 */
export class MemoryQueue {
  readonly #options: MemoryQueueOptions
  readonly #waiting = new Set<Waiting>()
  #look: NodeJS.Timeout | undefined
  #isServing = false
  /** The bytes of the bodies of each owner that have begun and are not over, also of what has not come and holds no memory. */
  readonly #begun = new Map<string, number>()
  /** What was served since somebody waits, and since when. */
  #servedBytes = 0
  #since = 0

  constructor(options: MemoryQueueOptions) {
    this.#options = options
  }

  /**
   * Takes memory for a body and calls `begin`: at once where there is some and nobody waits, else when it is its turn. Calls `failed`
   * instead with `RateLimited` when too much of the owner waits, with what `refusal` makes when too much of all does, or none became
   * free in time. Answers how to end the wait; nothing is called then. Behind `begin`, `end` is to be called when the body is done with.
   */
  enter(owner: string, bytes: number, waiter: Waiter, begin: () => void, failed: (error: Error) => void): () => void {
    if (this.#waiting.size === 0 && this.#take(owner, bytes) === undefined) {
      this.#begin({ owner, bytes, begin })
      return nothing
    }
    if (this.#countOf(owner) >= WAITING_PER_TOKEN_MAX) {
      failed(this.#tooMany())
      return nothing
    }
    if (this.#waiting.size === 0) {
      this.#servedBytes = 0
      this.#since = performance.now()
    }
    const endWait = waiter.beginWait(QUEUE)
    const end = () => {
      clearTimeout(timer)
      this.#waiting.delete(waiting)
      endWait()
      if (this.#waiting.size > 0) return
      clearInterval(this.#look)
      this.#look = undefined
    }
    const waiting: Waiting = { owner, bytes, begin, failed, end }
    const timer = setTimeout(() => this.#refuse(waiting), WAIT_MS)
    this.#waiting.add(waiting)
    this.#look ??= setInterval(() => this.serve(), LOOK_MS)
    this.serve()
    if (this.#waiting.size > WAITING_MAX) this.#refuse(this.#lastOfMost())
    return () => {
      if (!this.#waiting.has(waiting)) return
      end()
      this.serve()
    }
  }

  /** A body that began is answered, or its client gone. */
  end(owner: string, bytes: number): void {
    const left = this.#begunOf(owner) - bytes
    if (left > 0) this.#begun.set(owner, left)
    else this.#begun.delete(owner)
  }

  /** Memory became free. */
  serve(): void {
    if (this.#isServing || this.#waiting.size === 0) return // who makes room gives it back in here
    this.#isServing = true
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      next.end()
      this.#servedBytes += next.bytes
      this.#begin(next)
    }
    this.#isServing = false
  }

  /** Whose turn it is, with its memory taken. */
  #next(): Waiting | undefined {
    const full = new Set<string>()
    for (;;) {
      let first: Waiting | undefined
      let least = Number.POSITIVE_INFINITY
      for (const waiting of this.#waiting) {
        const then = this.#begunOf(waiting.owner) + waiting.bytes
        if (then >= least || full.has(waiting.owner)) continue
        first = waiting
        least = then
      }
      if (first === undefined) return undefined
      const exhausted = this.#take(first.owner, first.bytes)
      if (exhausted === undefined) return first
      if (exhausted === 'total') return undefined
      full.add(first.owner)
    }
  }

  #take(owner: string, bytes: number): Exhausted | undefined {
    let exhausted = this.#options.take(owner, bytes)
    while (exhausted === 'total' && this.#options.makeRoom(owner, bytes)) exhausted = this.#options.take(owner, bytes)
    return exhausted
  }

  /** Ends its wait in vain; who was behind it may need less. */
  #refuse(waiting: Waiting): void {
    const retryAfterS = this.#retryAfterS
    const { owner, bytes, failed } = waiting
    waiting.end()
    const exhausted = this.#take(owner, bytes)
    if (exhausted === undefined) this.#begin(waiting)
    else failed(this.#options.refusal(exhausted, owner, retryAfterS))
    this.serve()
  }

  #begin({ owner, bytes, begin }: Pick<Waiting, 'owner' | 'bytes' | 'begin'>): void {
    this.#begun.set(owner, this.#begunOf(owner) + bytes)
    begin()
  }

  #begunOf(owner: string): number {
    return this.#begun.get(owner) ?? 0
  }

  #countOf(owner: string): number {
    let count = 0
    for (const waiting of this.#waiting) if (waiting.owner === owner) count++
    return count
  }

  /** Who asked last of the owner of whom most wait. */
  #lastOfMost(): Waiting {
    const lasts = new Map<string, { count: number; last: Waiting }>()
    for (const last of this.#waiting) lasts.set(last.owner, { count: (lasts.get(last.owner)?.count ?? 0) + 1, last })
    return [...lasts.values()].reduce((most, other) => (other.count > most.count ? other : most)).last
  }

  #tooMany(): RateLimited {
    const quota = WAITING_PER_TOKEN_MAX
    const sentence = `${quota} requests of this token wait for memory for large bodies, and no more may. Send fewer at once.`
    const unit = 'concurrent-requests'
    const resetS = this.#retryAfterS
    return new RateLimited({ limit: 'token-requests', quota, unit, remaining: 0, resetS, queue: QUEUE }, sentence)
  }

  /** In about how many seconds all that waits now will have been served, if that goes on as it did since somebody waits. */
  get #retryAfterS(): number {
    const ms = performance.now() - this.#since
    if (ms < KNOWN_MS) return RETRY_AFTER_S
    let bytes = 0
    for (const waiting of this.#waiting) bytes += waiting.bytes
    const s = Math.ceil(Math.min(WAIT_MS, (bytes * ms) / Math.max(1, this.#servedBytes)) / 1_000)
    return Math.max(RETRY_AFTER_S, s)
  }
}

function nothing(): void {
  // There is no wait to be ended.
}
