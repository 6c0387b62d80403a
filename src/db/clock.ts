/**
 * The database's time now, in milliseconds since 1970: what it said when the state was read, plus what has passed here
 * since. One clock for all instances, without a statement of its own.
 */
export function databaseTimeMs(state: { read_at_ms: number; received_ms: number }): number {
  return state.read_at_ms + (performance.now() - state.received_ms)
}

/** Marks a state that was just read with the time of its arrival. Answers the same object: a copy of so many fields costs. */
export function markReceived<State extends object>(state: State): State & { received_ms: number } {
  return Object.assign(state, { received_ms: performance.now() })
}
