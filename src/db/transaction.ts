import { CompiledQuery, type Kysely, type Transaction } from 'kysely'
import type { Query } from './connection/session.js'
import type { Database } from './database.js'
import type { Executor } from './statements/statement.js'
import type { Tables } from './tables.js'

/** Runs `work` in a READ COMMITTED transaction and returns the result. With `rollback`, rolls the transaction back at the end. */
export async function inTransaction<T>(
  { db }: Pick<Database, 'db'>,
  { rollback }: { rollback: boolean },
  work: (trx: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  const trx = await db.startTransaction().execute()
  try {
    const result = await work(trx)
    await (rollback ? trx.rollback() : trx.commit()).execute()
    return result
  } catch (error) {
    if (!trx.isCommitted && !trx.isRolledBack) await trx.rollback().execute()
    throw error
  }
}

/** Runs `work` in the transaction `db`, or in a new transaction if `db` is not a transaction. */
export async function joined<T>(db: Kysely<Tables>, work: (trx: Transaction<Tables>) => Promise<T>): Promise<T> {
  return await (db.isTransaction ? work(db as Transaction<Tables>) : db.transaction().execute(work))
}

/** Limits the time of each statement in a transaction; 0 means no limit. */
export async function limitStatements(trx: Executor, timeoutMs: number): Promise<void> {
  const query: Query = { ...CompiledQuery.raw(`set local statement_timeout = ${timeoutMs}`), setsTimeoutMs: timeoutMs }
  await trx.executeQuery(query)
}
