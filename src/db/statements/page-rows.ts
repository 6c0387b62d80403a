import { type Expression, type RawBuilder, sql } from 'kysely'

/**
 * A page ends where the descriptions before take more than this: to read and to hold a page costs little, whatever others wrote.
 * JSON makes six times as much of them at most.
 */
const PAGE_BYTES = 256 * 1024

/**
 * SQL: the rows of a page, in the order of their ids: the first of `found`, a query of whole rows of a table. `record` is made of each, which
 * it calls `row`; it is null after the end of the page.
 */
export function pageRows(
  found: Expression<{ id: number; description: string }>,
  row: string,
  record: Expression<string>,
  rows: Expression<number>,
): RawBuilder<{ id: number; record: string | null }> {
  const one = sql.ref(row)
  return sql`
    select ${one}.id, case when ${one}.bytes_before <= ${sql.lit(PAGE_BYTES)} then ${record} end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from ${found} page limit ${rows}
    ) ${one} order by ${one}.id`
}
