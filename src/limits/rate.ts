import { LRUCache } from 'lru-cache'

/** The most keys counted at once. Beyond it the least recently used one is forgotten. */
export const KEYS_MAX = 10_000

/** Counts events of each key in time windows. A window begins with the first event of its key. */
export class Rate {
  readonly #windows = new LRUCache<string, { count: number; endsAt: number }>({ max: KEYS_MAX })

  constructor(readonly windowMs: number) {}

  /** Counts an event of a key. Returns the number in its window, and the whole seconds until the window ends. */
  count(key: string): { count: number; resetS: number } {
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.endsAt <= now) {
      window = { count: 0, endsAt: now + this.windowMs }
      this.#windows.set(key, window)
    }
    window.count++
    // Rounding of the clock can make the difference larger than the window.
    const leftMs = Math.min(this.windowMs, window.endsAt - now)
    return { count: window.count, resetS: Math.ceil(leftMs / 1000) }
  }

  /** Returns the number of events of a key in its window. */
  countOf(key: string): number {
    const window = this.#windows.get(key)
    return window === undefined || window.endsAt <= performance.now() ? 0 : window.count
  }
}
