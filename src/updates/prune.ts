import { type Kysely, sql, type Transaction } from 'kysely'
import type { Config } from '../config.js'
import { lit } from '../db/statements/queries.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { limitStatements } from '../db/time-limit.js'
import { INT4_MAX } from '../validation/vocabulary.js'

/** `bytesMax` limits the old contents of one agent or tool; 64 MiB by default. */
export type Retention = Config['history'] & { readonly bytesMax?: number }

const BYTES_MAX = 64 * 2 ** 20
const ROWS_AT_ONCE = 500
/** No client waits for a step, so it has its own statement timeout. */
const STATEMENT_TIMEOUT_MS = 60_000

/**
 * Removes history beyond the retention (DECISIONS section 10) in small transactions that wait for no writer. Each leaves valid chains, so
 * pruning may be interrupted and may run in several processes. Returns how many audit rows were removed, how many lost their difference,
 * and how many unused definitions were removed.
 */
export async function pruneHistory(
  db: Kysely<Tables>,
  retention: Retention,
): Promise<{ auditRows: number; differences: number; definitions: number }> {
  const days = retention.auditRetentionDays
  const old = await inStep(db, trx =>
    trx
      .selectFrom('audit')
      .select(['resource_kind', 'resource_id'])
      .distinct()
      .where('at', '<', ago(`${days} days`))
      .execute(),
  )
  let auditRows = 0
  for (const { resource_kind: kind, resource_id: id } of old) {
    auditRows += await inSteps(db, trx => pruneChain(trx, kind, id, days))
  }
  const differences = await pruneContents(db, retention)
  await inSteps(db, async trx => {
    const keys = trx
      .selectFrom('request_key')
      .select('key')
      .where('at', '<', ago(`${days} days`))
      .limit(ROWS_AT_ONCE)
    return await removed(trx.deleteFrom('request_key').where('key', 'in', keys))
  })
  return { auditRows, differences, definitions: await inSteps(db, removeUnusedDefinitions) }
}

/**
 * Prunes old contents of agents and tools that changed within `minutes`, or of all. The newest difference stays whatever its size: the last
 * change can always be shown and reverted. Returns the number of differences removed.
 */
export async function pruneContents(
  db: Kysely<Tables>,
  { versionsMax, bytesMax = BYTES_MAX }: Retention,
  minutes?: number,
): Promise<number> {
  const grown = await inStep(db, trx =>
    contents(trx)
      .$if(minutes !== undefined, query =>
        query.where(({ eb, refTuple, selectFrom }) => {
          const late = selectFrom('audit').where('at', '>', ago(`${minutes} minutes`))
          const named = late.select(['resource_kind', 'resource_id']).$asTuple('resource_kind', 'resource_id')
          return eb(refTuple('a.resource_kind', 'a.resource_id'), 'in', named)
        }),
      )
      .select(['a.resource_kind', 'a.resource_id'])
      .groupBy(['a.resource_kind', 'a.resource_id'])
      .having(({ eb, fn, or }) => or([eb(fn.countAll(), '>', versionsMax), eb(fn.sum(BYTES), '>', bytesMax)]))
      .execute(),
  )
  let differences = 0
  for (const { resource_kind: kind, resource_id: id } of grown) {
    differences += await inStep(db, async trx => {
      const sized = contents(trx)
        .where('a.resource_kind', '=', kind)
        .where('a.resource_id', '=', id)
        .select(({ fn }) => [
          'a.version_after',
          fn
            .countAll<number>()
            .over(newest => newest.orderBy('a.version_after', 'desc'))
            .as('place'),
          fn
            .sum<number>(BYTES)
            .over(newest => newest.orderBy('a.version_after', 'desc'))
            .as('bytes'),
        ])
      const gone = trx
        .selectFrom(sized.as('sized'))
        .select('version_after')
        .where('place', '>', 1)
        .where(({ eb, or }) => or([eb('place', '>', versionsMax), eb('bytes', '>', bytesMax)]))
      const { numUpdatedRows } = await trx
        .updateTable('audit')
        .set({ difference: null, definition_before: null })
        .where('resource_kind', '=', kind)
        .where('resource_id', '=', id)
        .where('version_after', 'in', gone)
        .executeTakeFirstOrThrow()
      return Number(numUpdatedRows)
    })
  }
  return differences
}

/** SQL: the audit rows `a` that have their difference, with the definitions `d` that they keep. */
function contents(trx: Transaction<Tables>) {
  return trx
    .selectFrom('audit as a')
    .leftJoin('tool_definition as d', 'd.hash', 'a.definition_before')
    .where('a.difference', 'is not', null)
}

const BYTES = sql<number>`a.difference_bytes::bigint + coalesce(d.size_bytes, 0)`

/** Removes the rows of one chain that are older than the retention. The newest removed hash stays with the resource. */
async function pruneChain(trx: Transaction<Tables>, kind: ResourceKind, id: number, days: number): Promise<number> {
  const resource = trx.selectFrom(kind).select('id').where('id', '=', id)
  const isFree = (await resource.forNoKeyUpdate().skipLocked().execute()).length > 0
  if (!isFree && (await resource.execute()).length > 0) return 0 // a writer holds the row: the next run will prune it
  const chain = trx.selectFrom('audit').where('resource_kind', '=', kind).where('resource_id', '=', id)
  const kept = chain.where('at', '>=', ago(`${days} days`)).select(({ fn }) => fn.min('version_after').as('version'))
  const old = chain
    .select('version_after')
    .where(({ eb, fn }) => eb('version_after', '<', fn.coalesce(kept, lit(INT4_MAX))))
    .orderBy('version_after')
    .limit(ROWS_AT_ONCE)
  const rows = await trx
    .deleteFrom('audit')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', 'in', old)
    .returning(['version_after', 'hash'])
    .execute()
  const newest = rows.reduce((a, b) => (a.version_after > b.version_after ? a : b), { version_after: 0, hash: null })
  if (newest.hash !== null)
    await trx.updateTable(kind).set({ audit_anchor: newest.hash }).where('id', '=', id).execute()
  return rows.length
}

/** Foreign keys refuse the removal of a definition that a writer refers to meanwhile. */
async function removeUnusedDefinitions(trx: Transaction<Tables>): Promise<number> {
  const unused = trx
    .selectFrom('tool_definition as d')
    .select('d.hash')
    .where(({ exists, not, selectFrom }) =>
      not(exists(selectFrom('tool as t').whereRef('t.definition_hash', '=', 'd.hash'))),
    )
    .where(({ exists, not, selectFrom }) =>
      not(exists(selectFrom('audit as a').whereRef('a.definition_before', '=', 'd.hash'))),
    )
    .limit(ROWS_AT_ONCE)
    .forUpdate('d')
    .skipLocked()
  return await removed(trx.deleteFrom('tool_definition').where('hash', 'in', unused))
}

/** Runs a step of at most `ROWS_AT_ONCE` rows until nothing is left. Returns the number of rows. */
async function inSteps(db: Kysely<Tables>, step: (trx: Transaction<Tables>) => Promise<number>): Promise<number> {
  let rows = 0
  for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; rows += count) count = await inStep(db, step)
  return rows
}

async function inStep<Result>(
  db: Kysely<Tables>,
  work: (trx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().execute(async trx => {
    await limitStatements(trx, STATEMENT_TIMEOUT_MS, 'transaction')
    await sql`set local enable_seqscan = on; set local enable_bitmapscan = on`.execute(trx) // steps read by time
    return await work(trx)
  })
}

async function removed(query: { executeTakeFirstOrThrow(): Promise<{ numDeletedRows: bigint }> }): Promise<number> {
  return Number((await query.executeTakeFirstOrThrow()).numDeletedRows)
}

function ago(time: string) {
  return sql<string>`clock_timestamp() - ${time}::interval`
}
