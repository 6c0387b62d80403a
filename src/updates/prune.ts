import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Config } from '../config.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { limitStatements } from '../db/transaction.js'

type Retention = Config['history']

const BYTES_MAX = 64 * 2 ** 20
const ROWS_AT_ONCE = 1_000
/** Longer than the statement timeout of requests, because no client waits for pruning. */
const STATEMENT_TIMEOUT_MS = 60_000

/**
 * Removes audit rows, request keys, records of header reads and ended proposals that are older than the retention period. Also removes old
 * differences and unused definitions (DECISIONS section 10). Works in small steps that do not wait for writers and keep the audit chains valid, so it
 * can be interrupted and can run in several processes. Returns how many audit rows, differences and definitions it removed.
 */
export async function pruneHistory(
  db: Kysely<Tables>,
  retention: Retention,
): Promise<{ auditRows: number; differences: number; definitions: number }> {
  const old = sql`(now() - make_interval(days => ${retention.auditRetentionDays}::integer))`
  const chains = await step(
    db,
    sql<{ kind: ResourceKind; id: number }>`
      select distinct resource_kind as kind, resource_id as id from audit where at < ${old}`,
  )
  let auditRows = 0
  for (const { kind, id } of chains) auditRows += await steps(db, oldRows(kind, id, old))
  const differences = await pruneContents(db, retention)
  const some = sql`at < ${old} limit ${ROWS_AT_ONCE}::integer) returning true`
  await steps(db, sql`delete from request_key where key in (select key from request_key where ${some}`)
  await steps(
    db,
    sql`delete from access_event where id in (select id from access_event where kind = 'headers' and ${some}`,
  )
  await steps(
    db,
    sql`
      with gone as (
        delete from proposal
        where id in (select id from proposal where closed_at < ${old} limit ${ROWS_AT_ONCE}::integer)
        returning closed_transaction_id as transaction_id, closed_place as place),
      passed as (${PASSED})
      select from gone`,
  )
  return { auditRows, differences, definitions: await steps(db, UNUSED_DEFINITIONS) }
}

/**
 * Keeps the differences of each resource's newest `versionsMax` versions, up to 64 MiB, and removes older ones. Always keeps the newest difference,
 * so the last change can be shown and reverted. Examines only resources changed in the last `minutes` minutes, if given. Returns the number removed.
 */
export async function pruneContents(db: Kysely<Tables>, { versionsMax }: Retention, minutes?: number): Promise<number> {
  const when = minutes === undefined ? sql`true` : sql`at > now() - make_interval(mins => ${minutes}::integer)`
  return await steps(
    db,
    sql`
      with changed as materialized (select distinct resource_kind, resource_id from audit where ${when})
      update audit set difference = null, definition_before = null
      where (resource_kind, resource_id, version_after) in (
        select resource_kind, resource_id, version_after from changed cross join lateral (
          select a.version_after, count(*) over newest as place,
            sum(a.difference_bytes::bigint + coalesce(d.size_bytes, 0)) over newest as bytes
          from audit a left join tool_definition d on d.hash = a.definition_before
          where a.resource_kind = changed.resource_kind and a.resource_id = changed.resource_id and a.difference is not null
          window newest as (order by a.version_after desc)) kept
        where place > 1 and (place > ${versionsMax}::integer or bytes > ${sql.lit(BYTES_MAX)})
        limit ${ROWS_AT_ONCE}::integer) returning true`,
  )
}

/** SQL: stores in `change_feed` the highest feed position of the removed rows (`gone`), so that cursors before this position are refused. */
const PASSED = sql`
  update change_feed set (pruned_transaction_id, pruned_place) = (last.transaction_id, last.place)
  from (select transaction_id, place from gone where transaction_id is not null order by 1 desc, 2 desc limit 1) last
  where (last.transaction_id, last.place) > (pruned_transaction_id, pruned_place)`

/** SQL: removes old audit rows of a resource and stores the hash of the newest one as `audit_anchor`. Does nothing if the resource is locked. */
function oldRows(kind: ResourceKind, id: number, old: RawBuilder<unknown>) {
  const [resource, chain] = [sql.table(kind), sql`resource_kind = ${kind} and resource_id = ${id}::integer`]
  return sql`
    with held as (select id from ${resource} where id = ${id}::integer for no key update skip locked),
    gone as (
      delete from audit where ${chain} and version_after in (
        select version_after from audit where ${chain}
          and version_after < coalesce((select min(version_after) from audit where ${chain} and at >= ${old}), 2147483647)
          and (exists (select from held) or not exists (select from ${resource} where id = ${id}::integer))
        order by version_after limit ${ROWS_AT_ONCE}::integer)
      returning version_after, hash, transaction_id, place),
    passed as (${PASSED}),
    anchored as (
      update ${resource} set audit_anchor = newest.hash
      from (select hash from gone order by version_after desc limit 1) newest
      where id = ${id}::integer and newest.hash is not null)
    select from gone`
}

/** SQL: removes unused definitions. If another transaction starts to use such a definition, the foreign key prevents its removal. */
const UNUSED_DEFINITIONS = sql`
  delete from tool_definition where hash in (
    select hash from tool_definition d
    where not exists (select from tool t where t.definition_hash = d.hash)
      and not exists (select from audit a where a.definition_before = d.hash)
      and not exists (select from proposal p where p.definition_hash = d.hash)
    limit ${sql.lit(ROWS_AT_ONCE)} for update skip locked) returning true`

async function steps(db: Kysely<Tables>, query: RawBuilder<unknown>): Promise<number> {
  let rows = 0
  for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; rows += count) count = (await step(db, query)).length
  return rows
}

async function step<Row>(db: Kysely<Tables>, query: RawBuilder<Row>): Promise<Row[]> {
  return await db.transaction().execute(async trx => {
    await limitStatements(trx, STATEMENT_TIMEOUT_MS)
    await sql`set local enable_seqscan = on; set local enable_bitmapscan = on`.execute(trx) // connections turn these off, but BRIN indexes need them
    return (await query.execute(trx)).rows
  })
}
