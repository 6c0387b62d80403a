import { setImmediate } from 'node:timers/promises'

/** How long work may hold the event loop before it gives way, in milliseconds. */
const DEFAULT_SLICE_MS = 2

let look: () => void = () => undefined

/** Has work in slices look before each slice whether it may go on: what `next` throws ends it. A thread has one such look. */
export function lookBeforeSlices(next: () => void): void {
  look = next
}

/** Takes every step of a piece of work at once. */
export function inOneGo<Result>(steps: Generator<void, Result>): Result {
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
  }
}

/** Takes the steps with the same result, letting others in whenever `sliceMs` milliseconds have passed. */
export async function inSlices<Result>(
  steps: Generator<void, Result>,
  sliceMs: number = DEFAULT_SLICE_MS,
): Promise<Result> {
  let started = performance.now()
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
    if (performance.now() - started >= sliceMs) {
      await setImmediate()
      look()
      started = performance.now()
    }
  }
}
