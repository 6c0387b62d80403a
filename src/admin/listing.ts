import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Database } from '../db/tables.js'

/** Which rows of a list are wanted. */
export interface Selection {
  /** Rows in which the field, or any field, contains the text in any case. Several are all demanded. */
  filters?: readonly { field?: string; text: string }[]
  /** At most so many. */
  limit?: number
}

/**
 * The rows of a query that a selection wants, in an order. The database selects: a list may be long.
 * The fields of the filters must be columns of the query.
 */
export async function selectRows<Row>(
  db: Kysely<Database>,
  query: RawBuilder<Row>,
  order: RawBuilder<unknown>,
  { filters = [], limit }: Selection,
): Promise<Row[]> {
  const conditions = filters.map(({ field, text }) => {
    const searched = field === undefined ? sql`row_to_json(listed)::text` : sql`${sql.ref(`listed.${field}`)}::text`
    return sql`strpos(lower(${searched}), lower(${text}::text)) > 0`
  })
  const { rows } = await sql<Row>`
    select * from (${query}) listed where ${sql.join([sql`true`, ...conditions], sql` and `)}
    order by ${order} limit ${limit ?? null}::bigint`.execute(db)
  return rows
}
