import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { classifyDatabaseError, SQLSTATE } from './database-error.js'

const RETRIES_MAX = 2
const FIRST_PAUSE_MS = 20

/** Work that failed later than this is not tried again: the client has waited long enough. */
const RETRY_WITHIN_MS = 2_000

/**
 * Runs work on the database, and again, at most twice and after a short random pause, when it failed in a way that passes by itself
 * and nothing was committed for certain. A reference that somebody deleted at the same moment is tried again once.
 */
export async function withRetries<T>(work: () => Promise<T>): Promise<T> {
  const latest = performance.now() + RETRY_WITHIN_MS
  for (let retries = 0; ; retries++) {
    try {
      return await work()
    } catch (error) {
      if (retries >= retriesAllowed(error) || performance.now() > latest) throw error
    }
    await sleep(FIRST_PAUSE_MS * 2 ** retries * (0.5 + Math.random()))
  }
}

function retriesAllowed(error: unknown): number {
  if (error instanceof pg.DatabaseError && error.code === SQLSTATE.foreignKeyViolation) return 1
  return classifyDatabaseError(error).transient ? RETRIES_MAX : 0
}
