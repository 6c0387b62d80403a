/** Above this number of keys, keys with a count of zero are dropped. */
const KEYS_MAX = 10_000

/** Counts requests or bytes in work, in total and for each key. Nothing waits: an amount beyond a limit is refused. */
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

  /** Takes an amount, or returns the limit that it would exceed and takes nothing. Give back what you take. */
  take(key: string, amount: number): 'all' | 'key' | undefined {
    const ofKey = (this.#ofKey.get(key) ?? 0) + amount
    if (ofKey > this.maxPerKey && ofKey > amount) return 'key' // a single amount is always allowed
    if (this.#total + amount > this.max && this.#total > 0) return 'all'
    return this.add(key, amount)
  }

  /** Takes an amount regardless of the limits. Give back what you take. */
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
