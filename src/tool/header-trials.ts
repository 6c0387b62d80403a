import { createHmac, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { RateLimited } from '../errors.js'
import { looksRedacted } from '../secrets/redaction.js'

const WINDOW_MS = 3_600_000
const PAIRS_MAX = 10_000

/**
 * Counts, per process and hour, the different sets of header values that a user sends for one tool or creation key: each set is a guess at
 * a stored secret.
 */
export class HeaderTrials {
  readonly #key = randomBytes(32)
  readonly #setsMax: number
  readonly #sets = new LRUCache<string, Set<string>>({ max: PAIRS_MAX, ttl: WINDOW_MS })

  /** `setsMax`: different sets of one user for one tool in an hour; 0 turns the limit off. */
  constructor(setsMax: number) {
    this.#setsMax = setsMax
  }

  /** Counts a request and returns the user's number of sets for the tool; 0 if all values are redactions. Throws `RateLimited`. */
  count(user: string, tool: number | string, headers: readonly { key: string; value: string }[]): number {
    const clear = headers.filter(({ value }) => !looksRedacted(value))
    if (clear.length === 0 || this.#setsMax === 0) return 0
    const pair = `${user} ${tool}`
    const sets = this.#sets.get(pair) ?? new Set()
    if (sets.size === 0) this.#sets.set(pair, sets)
    const pairs = clear.map(({ key, value }) => [key.toLowerCase(), value])
    const set = createHmac('sha256', this.#key).update(JSON.stringify(pairs)).digest('base64')
    if (!sets.has(set) && sets.size >= this.#setsMax) {
      const resetS = Math.max(1, Math.ceil(this.#sets.getRemainingTTL(pair) / 1000))
      const windowS = WINDOW_MS / 1000
      const setting = 'HEADER_TRIALS_PER_HOUR'
      throw new RateLimited({ limit: 'header-values', setting, quota: this.#setsMax, windowS, remaining: 0, resetS })
    }
    return sets.add(set).size
  }
}
