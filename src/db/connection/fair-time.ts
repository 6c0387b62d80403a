/**
 * Who is served next, by the time that each used: as in start-time fair queueing (Goyal, Vin and Cheng, 1996), with a credit for
 * who comes back, as schedulers of operating systems give it. Of callers who always wait each has the same time, and who asks for
 * less than that is served first. All times are in ms and mean nothing by themselves: they are compared with each other.
 */
export class FairTime {
  readonly #creditMs: number
  readonly #debtMs: number
  /** What the caller who was served last had used, and what was forgiven since. It does not fall. */
  #servedMs = 0

  /**
   * Whoever used less than those who are served counts as at most `creditMs` behind them, whoever used more as at most `debtMs`
   * ahead: nobody saves up for later, and nobody waits long for what they had while nobody else asked.
   */
  constructor(creditMs: number, debtMs: number) {
    this.#creditMs = creditMs
    this.#debtMs = debtMs
  }

  /** What counts as used by somebody who had nothing to wait for. */
  returning(usedMs: number): number {
    return Math.max(usedMs, this.#servedMs - this.#creditMs)
  }

  /** So much of what each of them used counts no more. */
  forgive(ms: number): void {
    this.#servedMs += ms
  }

  /** Somebody is served who used so much. */
  serve(usedMs: number): void {
    this.#servedMs = Math.max(this.#servedMs, usedMs)
  }

  /** What counts as used by them when it took so long. */
  after(usedMs: number, tookMs: number): number {
    return Math.min(usedMs + tookMs, this.#servedMs + this.#debtMs)
  }

  /** Whether this is no more than what the one had who was served last. */
  isBehind(usedMs: number): boolean {
    return usedMs <= this.#servedMs
  }
}
