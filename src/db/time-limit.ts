import { CompiledQuery } from 'kysely'
import type { Query } from './connection/session.js'
import type { Executor } from './statements/statement.js'

/**
 * Limits the time of each statement of a transaction, or of a connection until it is set again (undefined: as at its start). 0 is no limit.
 * The program waits for an answer as long.
 */
export async function limitStatements(
  executor: Executor,
  timeoutMs: number | undefined,
  of: 'transaction' | 'connection',
): Promise<void> {
  const isLocal = of === 'transaction'
  const text =
    timeoutMs === undefined
      ? 'reset statement_timeout'
      : `set ${isLocal ? 'local ' : ''}statement_timeout = ${timeoutMs}`
  const query: Query = { ...CompiledQuery.raw(text), sets: { timeoutMs, isLocal } }
  await executor.executeQuery(query)
}
