import { createHmac, randomBytes } from 'node:crypto'
import { RateLimited } from '../errors.js'
import { looksLikeMask } from '../secrets/mask.js'

/** Over so long the sets of one user for one tool are counted. In ms. */
const WINDOW_MS = 3_600_000
/** Pairs of user and tool that are counted at once; beyond it the one that began first is forgotten. */
const PAIRS_MAX = 10_000

/** The different sets of one user for one tool, as HMACs, until the window ends. */
interface Trials {
  endsAt: number
  sets: Set<string>
}

/**
 * Counts the different sets of header values in clear text that requests of one user bring for one tool, whether they are stored or only
 * tried: the answer tells whether a value is the stored one (by its mask, by what changes, by what a stale `If-Match` says),
 * so each is a guess at a secret. A set that was sent before is not a new guess. Of each user, so that nobody uses up what another
 * needs to replace a secret. Per process, like every rate limit.
 */
export class HeaderTrials {
  readonly #key = randomBytes(32)
  readonly #setsMax: number
  readonly #pairs = new Map<string, Trials>()

  /** At most `setsMax` different sets of one user for one tool an hour; 0 is off. */
  constructor(setsMax: number) {
    this.#setsMax = setsMax
  }

  /** Counts what a request brings, and answers how many different sets the user sent for the tool; 0 for masks only. Throws `RateLimited`. */
  count(user: string, tool: number, headers: readonly { key: string; value: string }[]): number {
    const clear = headers.filter(({ value }) => !looksLikeMask(value))
    if (clear.length === 0 || this.#setsMax === 0) return 0
    const now = performance.now()
    const { sets, endsAt } = this.#trialsOf(`${user} ${tool}`, now)
    const pairs = clear.map(({ key, value }) => [key.toLowerCase(), value])
    const set = createHmac('sha256', this.#key).update(JSON.stringify(pairs)).digest('base64')
    if (!sets.has(set) && sets.size >= this.#setsMax) {
      throw new RateLimited({
        limit: 'header-values',
        quota: this.#setsMax,
        windowS: WINDOW_MS / 1000,
        remaining: 0,
        resetS: Math.max(1, Math.ceil((endsAt - now) / 1000)),
      })
    }
    sets.add(set)
    return sets.size
  }

  #trialsOf(pair: string, now: number): Trials {
    const existing = this.#pairs.get(pair)
    if (existing !== undefined && existing.endsAt > now) return existing
    this.#pairs.delete(pair)
    if (this.#pairs.size >= PAIRS_MAX) for (const first of this.#pairs.keys()) return this.#begin(pair, now, first)
    return this.#begin(pair, now)
  }

  #begin(pair: string, now: number, forgotten?: string): Trials {
    if (forgotten !== undefined) this.#pairs.delete(forgotten)
    const trials = { endsAt: now + WINDOW_MS, sets: new Set<string>() }
    this.#pairs.set(pair, trials)
    return trials
  }
}
