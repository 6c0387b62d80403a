import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { limitStatements } from '../db/time-limit.js'

/** Nobody waits for work in pages as for a request: a page has its own time, whatever a request may take. */
const STATEMENT_TIMEOUT_MS = 60_000
const RESOURCES_AT_ONCE = 500

export const RESOURCE_KINDS = ['persona', 'tool'] as const satisfies readonly ResourceKind[]

/** Gives the statements of a transaction the time of a page, and every way to read it: a page is more than a few keys. */
export async function beLong(trx: Transaction<Tables>): Promise<void> {
  await limitStatements(trx, STATEMENT_TIMEOUT_MS, 'transaction')
  await sql`set local enable_seqscan = on; set local enable_bitmapscan = on`.execute(trx)
}

/** Runs one statement with the time of a page. */
export async function patiently<Row>(db: Kysely<Tables>, query: RawBuilder<Row>): Promise<Row[]> {
  return await db.transaction().execute(async trx => {
    await beLong(trx)
    return (await query.execute(trx)).rows
  })
}

/** The resources that have audit rows, in pages: from one to the next by the index, without reading the rows between. */
export async function* resourcePages(db: Kysely<Tables>, kind: ResourceKind): AsyncGenerator<number[]> {
  for (let after = 0; ; ) {
    const next = (than: RawBuilder<unknown>) => sql`
      select a.resource_id from audit a where a.resource_kind = ${kind} and a.resource_id > ${than}
      order by a.resource_id limit 1`
    const rows = await patiently(
      db,
      sql<{ resource_id: number }>`
        with recursive ids (resource_id) as (
          (${next(sql`${after}::integer`)})
          union all
          select (${next(sql`ids.resource_id`)}) from ids where ids.resource_id is not null
        )
        select resource_id from ids where resource_id is not null limit ${RESOURCES_AT_ONCE}::integer`,
    )
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map(row => row.resource_id)
    after = last.resource_id
  }
}
