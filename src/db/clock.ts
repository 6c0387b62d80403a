/**
 * The database's current time in milliseconds since 1970, without a query: the time at which the state was read, plus the time since. All
 * instances share this clock.
 */
export function databaseTimeMs(state: { read_at_ms: number; received_ms: number }): number {
  return state.read_at_ms + (performance.now() - state.received_ms)
}

/** Formats microseconds since 1970 as RFC 3339 in UTC, the format of audit rows and `at`. */
export function instantText(us: number): string {
  return `${new Date(Math.floor(us / 1_000)).toISOString().slice(0, -1)}${String(us % 1_000).padStart(3, '0')}Z`
}

/** Parses the result of `instantText` to microseconds since 1970. */
export function instantUs(text: string): number {
  return Date.parse(`${text.slice(0, 23)}Z`) * 1_000 + Number(text.slice(23, 26))
}

/** Adds the time of arrival to a state that was just read. Changes the object, because copying its many fields is slow. */
export function markReceived<State extends object>(state: State): State & { received_ms: number } {
  return Object.assign(state, { received_ms: performance.now() })
}
