import { type RawBuilder, sql } from 'kysely'

/**
 * A page ends where the descriptions before take more than this: to read and to hold a page costs little, whatever others wrote.
 * JSON makes six times as much of them at most.
 */
const PAGE_BYTES = 256 * 1024

/**
 * SQL: the rows of a page, in the order of their ids: the first so many of `found`, which are whole rows of a table. `record` is made
 * of each, which it calls `row`, and null behind the end of the page.
 */
export function pageRows(
  found: RawBuilder<unknown>,
  row: string,
  record: RawBuilder<unknown>,
  rows: RawBuilder<unknown>,
) {
  const one = sql.ref(row)
  return sql`
    select ${one}.id, case when ${one}.bytes_before <= ${sql.lit(PAGE_BYTES)} then ${record} end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (${found}) page limit ${rows}
    ) ${one} order by ${one}.id`
}
