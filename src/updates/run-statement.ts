import type { Database } from '../db/database.js'
import type { RowQuery } from '../db/statements/row-statement.js'
import { inTransaction } from '../db/transaction.js'
import type { ReadRequest } from './resource.js'

/** An answer with more bytes of stored definitions gets its own statement, outside a batch. */
export const BATCHED_BYTES_MAX = 128 * 1024
/** The number of concurrent requests that read more than this is limited. */
const EXPENSIVE_BYTES = 1024 * 1024

/**
 * Runs a statement whose answer has `bytes` of stored definitions: in a batch if it is small and `isBatchable`. A dry run is rolled back.
 * Calls `onSend` just before the statement is sent.
 */
export async function runStatement<Row>(
  database: Database,
  query: RowQuery<Row>,
  request: Pick<ReadRequest, 'caller' | 'bounds'>,
  asked: { bytes: number; isBatchable: boolean; isDryRun?: boolean; onSend?: (() => void) | undefined },
): Promise<Row | undefined> {
  const { bytes, isBatchable, isDryRun = false, onSend } = asked
  if (isBatchable && !isDryRun && bytes <= BATCHED_BYTES_MAX) return await query.batched(database, onSend)
  return await bounded(request, bytes, async () => {
    onSend?.()
    if (isDryRun) return await inTransaction(database, { rollback: true }, trx => query.single(trx))
    return await query.single(database.db)
  })
}

/** Runs work that reads `bytes`; many bytes wait for a place among the expensive requests. */
export async function bounded<Result>(
  { caller, bounds }: Pick<ReadRequest, 'caller' | 'bounds'>,
  bytes: number,
  work: () => Promise<Result>,
): Promise<Result> {
  return bytes > EXPENSIVE_BYTES ? await bounds.expensive(String(caller.token.id), work) : await work()
}
