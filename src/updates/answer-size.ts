import type { WorkQueue } from '../db/connection/work-queue.js'
import type { RowQuery } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'

/** A larger answer runs in a statement of its own, and takes memory: see `reserveMemory` of a request. */
export const BATCHED_BYTES_MAX = 256 * 1024

/** Of an answer that is larger still, each caller gets one at a time. */
const LARGE_BYTES = 1024 * 1024

/** What JSON makes of one byte at most: `\u0001`. */
export const ESCAPED_BYTES_MAX = 6

/**
 * Takes memory for one answer, of which more and more is known: in all the most that was asked for. A small answer takes none.
 * `reserveMemory` is that of the request.
 */
export function memoryFor({ reserveMemory }: { reserveMemory(bytes: number): void }): (bytes: number) => void {
  let reservedBytes = 0
  return bytes => {
    if (bytes <= BATCHED_BYTES_MAX || bytes <= reservedBytes) return
    reserveMemory(bytes - reservedBytes)
    reservedBytes = bytes
  }
}

/** The queue for a statement that answers so many bytes by itself. */
export function queueFor(database: ServiceDatabase, bytes: number): WorkQueue {
  return bytes > LARGE_BYTES ? database.largeAnswerQueue : database.singleStatementQueue
}

/** Runs a statement in a batch where its answer is small and it may, else by itself, through the queue of its size. */
export async function runSized<Row>(
  database: ServiceDatabase,
  query: RowQuery<Row>,
  asked: { callerKey: string; answerBytes: number; isBatchable: boolean; executor: Executor },
): Promise<Row | undefined> {
  const { callerKey, answerBytes, isBatchable, executor } = asked
  if (isBatchable && answerBytes <= BATCHED_BYTES_MAX) return await query.batched(database, executor)
  return await queueFor(database, answerBytes).run(callerKey, () => query.single(executor))
}
