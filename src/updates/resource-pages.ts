import { type Expression, type Kysely, type NotNull, sql, type Transaction } from 'kysely'
import { on, queries } from '../db/statements/queries.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { limitStatements } from '../db/time-limit.js'

/** No client waits for a page, so it has its own statement timeout. */
const STATEMENT_TIMEOUT_MS = 60_000
const RESOURCES_AT_ONCE = 500

export const RESOURCE_KINDS = ['persona', 'tool'] as const satisfies readonly ResourceKind[]

/** Sets the timeout of a page for this transaction, and allows sequential and bitmap scans, which suit its many keys. */
export async function beLong(trx: Transaction<Tables>): Promise<void> {
  await limitStatements(trx, STATEMENT_TIMEOUT_MS, 'transaction')
  await sql`set local enable_seqscan = on; set local enable_bitmapscan = on`.execute(trx)
}

/** Runs work in a transaction with the statement timeout of a page. */
export async function patiently<Result>(
  db: Kysely<Tables>,
  work: (trx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().execute(async trx => {
    await beLong(trx)
    return await work(trx)
  })
}

/** Pages of ids that have audit rows. It jumps from id to id in the index, without reading the rows between. */
export async function* resourcePages(db: Kysely<Tables>, kind: ResourceKind): AsyncGenerator<number[]> {
  for (let after = 0; ; ) {
    const next = (than: Expression<number>) =>
      queries<{ ids: { id: number | null } }>()
        .selectFrom('audit as a')
        .select('a.resource_id as id')
        .where('a.resource_kind', '=', kind)
        .where('a.resource_id', '>', than)
        .orderBy('a.resource_id')
        .limit(1)
    const rows = await patiently(db, trx =>
      trx
        .withRecursive('ids(id)', db => {
          const following = db.selectFrom('ids').select(({ ref }) => next(ref('ids.id')).as('id'))
          const first = db
            .selectFrom(next(on().cast<number>(on().val(after), 'integer')).as('first'))
            .select('first.id')
            .$castTo<{ id: number | null }>()
          return first.unionAll(following.where('ids.id', 'is not', null))
        })
        .selectFrom('ids')
        .select('ids.id')
        .where('ids.id', 'is not', null)
        .limit(RESOURCES_AT_ONCE)
        .$narrowType<{ id: NotNull }>()
        .execute(),
    )
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map(row => row.id)
    after = last.id
  }
}
