import type { CompiledQuery, Kysely, Transaction } from 'kysely'
import type { Database } from './tables.js'

class Rollback<T> extends Error {
  constructor(readonly result: T) {
    super('rolled back as asked')
  }
}

/**
 * Runs `work` in one transaction at READ COMMITTED and answers what it answers. With `rollback` the transaction is
 * rolled back after the work succeeded: a dry run takes the same steps as the real one.
 */
export async function inTransaction<T>(
  db: Kysely<Database>,
  { rollback }: { rollback: boolean },
  work: (trx: Transaction<Database>) => Promise<T>,
): Promise<T> {
  try {
    return await db.transaction().execute(async trx => {
      const result = await work(trx)
      if (rollback) throw new Rollback(result)
      return result
    })
  } catch (error) {
    if (error instanceof Rollback) return error.result as T
    throw error
  }
}

/** Runs one writing statement and rolls it back: what it answers is what the real one would. */
export async function inDryRun<R>(db: Kysely<Database>, query: CompiledQuery<R>): Promise<R[]> {
  return await inTransaction(db, { rollback: true }, async trx => (await trx.executeQuery(query)).rows)
}
