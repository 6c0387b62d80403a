/**
 * The bytes that each key has used since the minute began. Per process. Whoever uses many different keys pushes out the
 * oldest ones, which begin anew; nothing else.
 */
export class ByteQuota {
  readonly #bytesMax: number
  readonly #keysMax: number
  readonly #windowMs: number
  #used = new Map<string, number>()
  #endsAt = 0

  /** At most `bytesMax` bytes of one key in `windowMs`, for at most `keysMax` keys at once. */
  constructor(bytesMax: number, keysMax: number, windowMs: number) {
    this.#bytesMax = bytesMax
    this.#keysMax = keysMax
    this.#windowMs = windowMs
  }

  /** Counts bytes that were used, whether or not they were left. */
  use(key: string, bytes: number): void {
    const used = this.#now().get(key)
    if (used === undefined && this.#used.size >= this.#keysMax) this.#forgetOldest()
    this.#used.set(key, (used ?? 0) + bytes)
  }

  /** The bytes that a key has left. */
  remaining(key: string): number {
    return Math.max(0, this.#bytesMax - (this.#now().get(key) ?? 0))
  }

  /** How long it is until each key has all its bytes again, in seconds. */
  resetS(): number {
    return Math.max(1, Math.ceil((this.#endsAt - performance.now()) / 1000))
  }

  #now(): Map<string, number> {
    const now = performance.now()
    if (now >= this.#endsAt) {
      this.#used = new Map()
      this.#endsAt = now + this.#windowMs
    }
    return this.#used
  }

  #forgetOldest(): void {
    for (const oldest of this.#used.keys()) {
      this.#used.delete(oldest)
      return
    }
  }
}
