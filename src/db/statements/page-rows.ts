import { type Expression, type RawBuilder, sql } from 'kysely'

/** A page ends once its descriptions have this many bytes, to limit the cost of reading it. JSON can make them six times as long. */
const PAGE_BYTES = 256 * 1024

/**
 * SQL: the first `rows` rows of `found`, sorted by id. `found` selects whole table rows; `record` builds the JSON of each from the alias
 * `row`, and is null after the end of the page.
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
