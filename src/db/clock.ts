/**
 * The database's time now, in milliseconds since 1970: what it said when the state was read, plus what has passed here
 * since. One clock for all instances, without a statement of its own.
 */
export function databaseTimeMs(state: { read_at_ms: number; received_ms: number }): number {
  return state.read_at_ms + (performance.now() - state.received_ms)
}

/** An instant as audit rows and `at` have it, RFC 3339 in UTC with microseconds, of whole microseconds since 1970. */
export function instantText(us: number): string {
  return `${new Date(Math.floor(us / 1_000)).toISOString().slice(0, -1)}${String(us % 1_000).padStart(3, '0')}Z`
}

/** The whole microseconds since 1970 of what `instantText` wrote. */
export function instantUs(text: string): number {
  return Date.parse(`${text.slice(0, 23)}Z`) * 1_000 + Number(text.slice(23, 26))
}

/** Marks a state that was just read with the time of its arrival. Answers the same object: copying its many fields costs time. */
export function markReceived<State extends object>(state: State): State & { received_ms: number } {
  return Object.assign(state, { received_ms: performance.now() })
}
