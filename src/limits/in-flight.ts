/** Key counts that stay at zero are dropped when there are more keys than this. */
const KEYS_MAX = 10_000

/** Counts what is in hand at once, requests or bytes, in all and of each key. Nothing waits: what goes beyond a bound is refused. */
export class InFlight {
  readonly max: number
  readonly maxPerKey: number
  #total = 0
  readonly #ofKey = new Map<string, number>()

  constructor(max: number, maxPerKey: number) {
    this.max = max
    this.maxPerKey = maxPerKey
  }

  get total(): number {
    return this.#total
  }

  /** Takes an amount, or answers which bound it would exceed; then nothing is taken. What is taken is given back. */
  take(key: string, amount: number): 'all' | 'key' | undefined {
    const ofKey = (this.#ofKey.get(key) ?? 0) + amount
    if (ofKey > this.maxPerKey && ofKey > amount) return 'key' // one alone is always let in
    if (this.#total + amount > this.max && this.#total > 0) return 'all'
    return this.add(key, amount)
  }

  /** Takes an amount whatever is taken already. What is taken is given back. */
  add(key: string, amount: number): undefined {
    if (this.#ofKey.size > KEYS_MAX) for (const [name, count] of this.#ofKey) if (count === 0) this.#ofKey.delete(name)
    this.#ofKey.set(key, (this.#ofKey.get(key) ?? 0) + amount)
    this.#total += amount
  }

  give(key: string, amount: number): void {
    this.#ofKey.set(key, (this.#ofKey.get(key) ?? amount) - amount)
    this.#total -= amount
  }
}
