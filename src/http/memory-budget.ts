/** What bodies may hold of this process at once, in bytes. */
export interface MemoryBudgetLimits {
  totalBytes: number
  perTokenBytes: number
}

/** Whose share is used up. */
export type Exhausted = 'token' | 'total'

/**
 * The memory of all request bodies that are under way, shared out: each token has a bound, and all have one together. A token may
 * also have no more than it leaves free, so that there is room for whoever comes next. Whoever takes gives back.
 */
export class MemoryBudget {
  readonly #limits: MemoryBudgetLimits
  /** Only tokens that hold something are listed: ordinary requests hold nothing that counts. */
  readonly #reserved = new Map<string, number>()
  #total = 0

  constructor(limits: MemoryBudgetLimits) {
    this.#limits = limits
  }

  /** The bytes that all bodies hold now. */
  get totalBytes(): number {
    return this.#total
  }

  /** The bytes that a token holds now. */
  heldBy(token: string): number {
    return this.#reserved.get(token) ?? 0
  }

  /** What is left of a token's own bound. */
  remaining(token: string): number {
    return this.#limits.perTokenBytes - this.heldBy(token)
  }

  /** Takes more for a token, or says why not and takes nothing. */
  take(token: string, bytes: number): Exhausted | undefined {
    const reserved = this.heldBy(token) + bytes
    if (reserved > this.#limits.perTokenBytes) return 'token'
    if (reserved > this.#limits.totalBytes - this.#total - bytes) return 'total'
    this.#reserved.set(token, reserved)
    this.#total += bytes
    return undefined
  }

  /** Gives back what was taken. */
  give(token: string, bytes: number): void {
    const reserved = this.heldBy(token) - bytes
    if (reserved > 0) this.#reserved.set(token, reserved)
    else this.#reserved.delete(token)
    this.#total -= bytes
  }
}
