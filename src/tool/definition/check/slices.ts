import { setImmediate } from 'node:timers/promises'

export { inOneGo } from '../../../schema/steps.js'

/** How long work may hold the event loop before it gives way, in milliseconds. */
const DEFAULT_SLICE_MS = 2

let look: () => void = () => undefined

/** Has work in slices look before each slice whether it may go on: what `next` throws ends it. A thread has one such look. */
export function lookBeforeSlices(next: () => void): void {
  look = next
}

/** The time that work may take where it is begun: beyond it, it is given up. */
export class WorkBudget {
  #leftMs: number

  constructor(ms: number) {
    this.#leftMs = ms
  }

  /** Whether something is left behind so much. */
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

/** Takes the steps with the same result, letting others in between slices of them. Throws `BudgetSpent`. */
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
    look()
    started = performance.now()
  }
}
