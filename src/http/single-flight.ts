/**
 * Everybody who asks while an answer is on its way gets that answer. Readiness asks the database for anyone who calls, so a
 * flood of probes must not become a flood of statements; a page of metrics takes milliseconds.
 */
export function singleFlight<Answer>(ask: () => Promise<Answer>): () => Promise<Answer> {
  let underWay: Promise<Answer> | undefined
  return () => {
    underWay ??= ask().finally(() => {
      underWay = undefined
    })
    return underWay
  }
}
