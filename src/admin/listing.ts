import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Database } from '../db/tables.js'

/** Which rows of a list are wanted. */
export interface Selection {
  /** At most so many. */
  limit?: number
}

/** The rows of a query in an order, as many as a selection wants. */
export async function selectRows<Row>(
  db: Kysely<Database>,
  query: RawBuilder<Row>,
  order: RawBuilder<unknown>,
  { limit }: Selection,
): Promise<Row[]> {
  const { rows } = await sql<Row>`
    select * from (${query}) listed order by ${order} limit ${limit ?? null}::bigint`.execute(db)
  return rows
}
