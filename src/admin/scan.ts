import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'

/** Reads the rows of a query with a cursor, `rowsAtOnce` per round trip. `query` must not have parameters, because a cursor takes none. */
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
