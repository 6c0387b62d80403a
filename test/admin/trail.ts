import type { Kysely, Transaction } from 'kysely'
import type { Tables } from '../../src/db/tables.js'

/** Works in a transaction that is rolled back. */
export async function inVain<T>(db: Kysely<Tables>, work: (trx: Transaction<Tables>) => Promise<T>): Promise<T> {
  const trx = await db.startTransaction().execute()
  try {
    return await work(trx)
  } finally {
    await trx.rollback().execute()
  }
}
