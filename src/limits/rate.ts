import { LRUCache } from 'lru-cache'

/** How many keys are counted at once; beyond it the one used longest ago is forgotten. */
const KEYS_MAX = 10_000

/** Counts events of each key in windows, each of which begins with the first event of its key. */
export class Rate {
  readonly #windows = new LRUCache<string, { count: number; endsAt: number }>({ max: KEYS_MAX })

  constructor(readonly windowMs: number) {}

  /** Counts one more event of a key; answers how many it has in its window, and the seconds until that ends. */
  count(key: string): { count: number; resetS: number } {
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.endsAt <= now) {
      window = { count: 0, endsAt: now + this.windowMs }
      this.#windows.set(key, window)
    }
    window.count++
    return { count: window.count, resetS: Math.ceil((window.endsAt - now) / 1000) }
  }
}
