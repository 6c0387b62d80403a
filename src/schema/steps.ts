/** Takes every step of a piece of work at once. */
export function inOneGo<Result>(steps: Generator<void, Result>): Result {
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
  }
}
