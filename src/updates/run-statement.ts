import type { Database } from '../db/database.js'
import type { Ask } from '../db/statements/statement.js'
import { inTransaction } from '../db/transaction.js'
import type { ReadRequest } from './resource.js'

/** The number of concurrent requests that read more than this is limited. */
const EXPENSIVE_BYTES = 1024 * 1024

/** Runs a statement whose answer has `bytes` of stored definitions. A dry run is rolled back. Calls `onSend` just before it is sent. */
export async function runStatement<Row>(
  database: Database,
  query: Ask<Row>,
  request: Pick<ReadRequest, 'caller' | 'bounds'>,
  { bytes, isDryRun = false, onSend }: { bytes: number; isDryRun?: boolean; onSend?: (() => void) | undefined },
): Promise<Row | undefined> {
  return await bounded(request, bytes, async () => {
    onSend?.()
    if (isDryRun) return await inTransaction(database, { rollback: true }, query)
    return await query(database.db)
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
