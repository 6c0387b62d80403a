/**
 * The database's time now, in milliseconds since 1970: what it said when the state was read, plus what has passed here
 * since. One clock for all instances, without a statement of its own.
 */
export function databaseTimeMs(state: { read_at_ms: number; received_ms: number }): number {
  return state.read_at_ms + (performance.now() - state.received_ms)
}
