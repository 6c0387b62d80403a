import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { classifyDatabaseError, SQLSTATE } from './database-error.js'

const RETRIES_MAX = 2
const FIRST_PAUSE_MS = 20

/** Work that fails after this time is not retried, because the client has waited long enough. */
const RETRY_WITHIN_MS = 2_000

/**
 * Runs database work. After a transient error, retries the work at most twice, with short random pauses. Also retries after a foreign key violation,
 * because a concurrent request may have deleted the referenced row.
 */
export async function withRetries<T>(work: () => Promise<T>, withinMs = RETRY_WITHIN_MS): Promise<T> {
  const latest = performance.now() + withinMs
  for (let retries = 0; ; retries++) {
    try {
      return await work()
    } catch (error) {
      const isForeignKey = error instanceof pg.DatabaseError && error.code === SQLSTATE.foreignKeyViolation
      const isTransient = isForeignKey || classifyDatabaseError(error).transient
      if (!isTransient || retries === RETRIES_MAX || performance.now() > latest) throw error
    }
    await sleep(FIRST_PAUSE_MS * 2 ** retries * (0.5 + Math.random()))
  }
}
