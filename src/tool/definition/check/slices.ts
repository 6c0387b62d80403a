import { setImmediate } from 'node:timers/promises'

/** How long work may hold the event loop before it gives way, in milliseconds. */
const DEFAULT_SLICE_MS = 2

/** What bounds work in slices. */
export interface WorkBudget {
  /** Told how many milliseconds a slice took, answers whether there is something left. What it throws ends the work. */
  spend(ms: number): boolean
  /** Resolves when the next slice may begin; without it that is at once in the next turn of the event loop. */
  nextSlice?(): Promise<void>
}

/** The time that work may take where it is begun: beyond it, it is given up. */
export class TimeBudget implements WorkBudget {
  #leftMs: number

  constructor(
    ms: number,
    readonly nextSlice: () => Promise<void>,
  ) {
    this.#leftMs = ms
  }

  spend(ms: number): boolean {
    this.#leftMs -= ms
    return this.#leftMs > 0
  }
}

export class BudgetSpent extends Error {}

/** `sliceMs`: after so many milliseconds the event loop has its turn, 2 by default. */
export interface Slicing {
  sliceMs?: number
  budget?: WorkBudget | undefined
}

/** Takes the steps with the same result, letting others in between slices of them. Throws `BudgetSpent`, and what the budget throws. */
export async function inSlices<Result>(
  steps: Generator<void, Result>,
  { sliceMs = DEFAULT_SLICE_MS, budget }: Slicing = {},
): Promise<Result> {
  let started = performance.now()
  for (;;) {
    const step = steps.next()
    const tookMs = performance.now() - started
    if (!step.done && tookMs < sliceMs) continue
    const hasTime = budget?.spend(tookMs) ?? true
    if (step.done) return step.value
    if (!hasTime) throw new BudgetSpent('work takes longer than it may here')
    await setImmediate()
    await budget?.nextSlice?.()
    started = performance.now()
  }
}
