import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'

/** The rows of a query, `rowsAtOnce` in each round trip, on the snapshot of its transaction. `query` has no parameters: a cursor takes none. */
export async function* scan<Row>(
  trx: Transaction<Tables>,
  name: string,
  query: RawBuilder<Row>,
  rowsAtOnce: number,
): AsyncGenerator<Row, undefined> {
  const cursor = sql.ref(name)
  await sql`declare ${cursor} no scroll cursor for ${query}`.execute(trx)
  for (;;) {
    const { rows } = await sql<Row>`fetch ${sql.lit(rowsAtOnce)} from ${cursor}`.execute(trx)
    if (rows.length === 0) break
    yield* rows
  }
  await sql`close ${cursor}`.execute(trx)
  return undefined
}
