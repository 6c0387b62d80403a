import { LRUCache } from 'lru-cache'

/** How many keys are counted at once; beyond it the one used longest ago is forgotten. */
export const KEYS_MAX = 10_000

/** Counts events of each key in windows, each of which begins with the first event of its key. */
export class Rate {
  readonly #windows = new LRUCache<string, { count: number; endsAt: number }>({ max: KEYS_MAX })

  constructor(readonly windowMs: number) {}

  /** Counts one more event of a key; answers how many it has in its window, and the whole seconds until that ends. */
  count(key: string): { count: number; resetS: number } {
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.endsAt <= now) {
      window = { count: 0, endsAt: now + this.windowMs }
      this.#windows.set(key, window)
    }
    window.count++
    // The difference can be larger than the window by a rounding of the clock.
    const leftMs = Math.min(this.windowMs, window.endsAt - now)
    return { count: window.count, resetS: Math.ceil(leftMs / 1000) }
  }

  /** How many events of a key its window has. */
  countOf(key: string): number {
    const window = this.#windows.get(key)
    return window === undefined || window.endsAt <= performance.now() ? 0 : window.count
  }
}
