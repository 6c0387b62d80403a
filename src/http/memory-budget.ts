/** What bodies and answers may hold of this process at once, in bytes. */
export interface MemoryBudgetLimits {
  totalBytes: number
  perTokenBytes: number
}

/** Whose share is used up. */
export type Exhausted = 'token' | 'total'

/** The first bytes of each token count as its own, and not as those of all: whoever holds little is not refused for what others hold. */
export const FREE_BYTES = 64 * 1024

/**
 * The memory of all request bodies and large answers that are under way, shared out: each token has a bound, and all have one together.
 * A token may also have no more than it leaves free, so that there is room for whoever comes next. Whoever takes gives back.
 */
export class MemoryBudget {
  readonly #limits: MemoryBudgetLimits
  /** Only tokens that hold something are listed: most requests hold nothing that counts. */
  readonly #reserved = new Map<string, number>()
  #total = 0

  constructor(limits: MemoryBudgetLimits) {
    this.#limits = limits
  }

  /** The bytes that all hold now, but for the first of each. */
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

  /** Takes more for a token, or says why not and takes nothing. `limits`: lower ones, for what may wait. */
  take(token: string, bytes: number, limits = this.#limits): Exhausted | undefined {
    const before = this.heldBy(token)
    const reserved = before + bytes
    if (reserved > limits.perTokenBytes) return 'token'
    const counted = countedOf(reserved) - countedOf(before)
    if (counted > 0 && reserved > limits.totalBytes - this.#total - counted) return 'total'
    this.#reserved.set(token, reserved)
    this.#total += counted
    return undefined
  }

  /** Gives back what was taken. */
  give(token: string, bytes: number): void {
    const before = this.heldBy(token)
    const reserved = before - bytes
    if (reserved > 0) this.#reserved.set(token, reserved)
    else this.#reserved.delete(token)
    this.#total -= countedOf(before) - countedOf(reserved)
  }
}

/** What of the bytes of one token counts for all. */
function countedOf(bytes: number): number {
  return Math.max(0, bytes - FREE_BYTES)
}
