import type { Positioned, RowQuery } from '../db/statements/row-statement.js'
import type { ServiceDatabase } from '../db/transaction.js'

/** A larger answer runs in a statement of its own, and takes memory: see `takeRoom` of a request. */
export const BATCHED_BYTES_MAX = 256 * 1024

/** Of an answer that is larger still, each caller gets one at a time. */
const LARGE_BYTES = 1024 * 1024

/** Where a statement takes its turn whose answer has about so many bytes. */
export function turnsFor(database: ServiceDatabase, answerBytes: number) {
  return answerBytes > LARGE_BYTES ? database.largeTurns : database.singleTurns
}

/** Runs a statement in a batch where its answer is small and it may, else by itself when its caller's turn comes. */
export async function runSized<Row>(
  database: ServiceDatabase,
  query: RowQuery<Row>,
  asked: { callerKey: string; answerBytes: number; isBatchable: boolean },
): Promise<Positioned<Row> | undefined> {
  const { callerKey, answerBytes, isBatchable } = asked
  if (isBatchable && answerBytes <= BATCHED_BYTES_MAX) return await query.batched(database)
  return await turnsFor(database, answerBytes).run(callerKey, () => query.single(database.db))
}
