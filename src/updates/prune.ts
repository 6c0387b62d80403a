import { type Kysely, sql, type Transaction } from 'kysely'
import type { Config } from '../config.js'
import type { Database, ResourceKind } from '../db/tables.js'

/** How many rows were removed or emptied. */
export interface Pruned {
  /** Audit rows older than the retention, removed; an anchor on the resource says where its chain starts now. */
  auditRows: number
  /** Audit rows whose difference was dropped; the rows and their hashes stay. */
  differences: number
  /** Definitions that neither a tool nor a kept difference refers to. */
  definitions: number
}

export type Retention = Config['history']

const RESOURCES_AT_ONCE = 100
const DIFFERENCES_AT_ONCE = 500
const DEFINITIONS_AT_ONCE = 100

/**
 * Removes what is beyond the retention (DECISIONS section 10): audit rows by age, old contents by number and size of a
 * resource, then definitions that nothing refers to. In small transactions, each of which leaves a chain that verifies; it may run
 * while the service writes, in several processes at once, and be interrupted anywhere.
 */
export async function pruneHistory(db: Kysely<Database>, retention: Retention): Promise<Pruned> {
  return {
    auditRows: await pruneRows(db, retention.auditRetentionDays),
    differences: await pruneDifferences(db, retention.versionsMax, retention.bytesMax),
    definitions: await pruneDefinitions(db),
  }
}

interface Resource {
  resource_kind: ResourceKind
  resource_id: number
}

async function pruneRows(db: Kysely<Database>, days: number): Promise<number> {
  let removed = 0
  let after: Resource = { resource_kind: 'persona', resource_id: 0 }
  for (;;) {
    const { rows } = await sql<Resource>`
      select distinct resource_kind, resource_id from audit
      where at < clock_timestamp() - make_interval(days => ${days}::integer)
        and (resource_kind, resource_id) > (${after.resource_kind}::text, ${after.resource_id}::integer)
      order by 1, 2 limit ${RESOURCES_AT_ONCE}::integer`.execute(db)
    for (const resource of rows) removed += await db.transaction().execute(trx => pruneChain(trx, resource, days))
    const last = rows.at(-1)
    if (last === undefined || rows.length < RESOURCES_AT_ONCE) return removed
    after = last
  }
}

/** Removes the oldest rows of one chain up to the first that is young enough, and moves the anchor behind them. */
async function pruneChain(
  trx: Transaction<Database>,
  { resource_kind, resource_id }: Resource,
  days: number,
): Promise<number> {
  // The row's lock keeps writers of this resource out, so that head, count and anchor move together.
  await trx.selectFrom(resource_kind).select('id').where('id', '=', resource_id).forNoKeyUpdate().execute()
  const { rows } = await sql<{ version_after: number; hash: Buffer }>`
    with old as (
      select version_after, hash from audit
      where resource_kind = ${resource_kind} and resource_id = ${resource_id}
        and version_after < coalesce((
          select min(version_after) from audit
          where resource_kind = ${resource_kind} and resource_id = ${resource_id}
            and at >= clock_timestamp() - make_interval(days => ${days}::integer)), 2147483647)
    ), removed as (
      delete from audit a using old
      where a.resource_kind = ${resource_kind} and a.resource_id = ${resource_id} and a.version_after = old.version_after
    )
    select version_after, hash from old order by version_after desc`.execute(trx)
  const [last] = rows
  if (last === undefined) return 0
  await trx
    .updateTable(resource_kind)
    .set({ audit_anchor: last.hash, audit_anchor_version: last.version_after })
    .where('id', '=', resource_id)
    .execute()
  return rows.length
}

async function pruneDifferences(db: Kysely<Database>, versionsMax: number, bytesMax: number): Promise<number> {
  // The newest difference stays whatever its size: without it the last change could not be told or taken back.
  const { rows } = await sql<Resource & { version_after: number }>`
    select resource_kind, resource_id, version_after from (
      select a.resource_kind, a.resource_id, a.version_after, row_number() over newest as place,
        sum(a.difference_bytes::bigint + coalesce(d.size_bytes, 0)) over newest as bytes
      from audit a left join tool_definition d on d.hash = a.definition_before
      where a.difference is not null
      window newest as (partition by a.resource_kind, a.resource_id order by a.version_after desc)
    ) kept
    where place > greatest(1, ${versionsMax}::integer) or (place > 1 and bytes > ${bytesMax}::bigint)
    order by 1, 2, 3`.execute(db)
  for (let from = 0; from < rows.length; from += DIFFERENCES_AT_ONCE) {
    const some = JSON.stringify(rows.slice(from, from + DIFFERENCES_AT_ONCE))
    await sql`
      update audit a set difference = null, definition_before = null
      from jsonb_to_recordset(${some}::jsonb) gone (resource_kind text, resource_id integer, version_after integer)
      where a.resource_kind = gone.resource_kind and a.resource_id = gone.resource_id
        and a.version_after = gone.version_after`.execute(db)
  }
  return rows.length
}

async function pruneDefinitions(db: Kysely<Database>): Promise<number> {
  let removed = 0
  for (;;) {
    const count = await db.transaction().execute(async trx => {
      // A writer that finds its definition stored refers to it without writing it. This lock lets such a writer finish first and
      // makes the next one wait, a few milliseconds, until what it looks for is there or not.
      await sql`lock table tool_definition in share row exclusive mode`.execute(trx)
      const { rows } = await sql`
        delete from tool_definition where hash in (
          select d.hash from tool_definition d
          where not exists (select from tool t where t.definition_hash = d.hash)
            and not exists (select from audit a where a.definition_before = d.hash)
          limit ${DEFINITIONS_AT_ONCE}::integer)
        returning 1`.execute(trx)
      return rows.length
    })
    removed += count
    if (count < DEFINITIONS_AT_ONCE) return removed
  }
}
