import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Config } from '../config.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
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

const KINDS = ['persona', 'tool'] as const satisfies readonly ResourceKind[]
const RESOURCES_AT_ONCE = 500
const ROWS_AT_ONCE = 500
const DEFINITIONS_AT_ONCE = 100
/** Removing a large text takes its time, in which writers of definitions wait. */
const DEFINITION_BYTES_AT_ONCE = 8 * 2 ** 20

/** Nobody waits for pruning as for a request: a page has its own time, whatever a request may take. */
const STATEMENT_TIMEOUT_MS = 60_000

/** A writer of a definition is done in milliseconds. */
const LOCK_TRIES = 20
const LOCK_PAUSE_MS = 25

/**
 * Removes what is beyond the retention (DECISIONS section 10): audit rows by age, old contents by number and size of a
 * resource, then definitions that nothing refers to. A page of resources at a time, by the key of the audit trail, in small
 * transactions, each of which leaves a chain that verifies; it may run while the service writes, in several processes at once, and
 * be interrupted anywhere. It waits for no lock: what somebody holds is left to the next run, and what it holds itself it holds
 * for one short transaction. `progress` hears how many resources were gone through.
 */
export async function pruneHistory(
  db: Kysely<Database>,
  retention: Retention,
  progress: (resources: number) => void = () => undefined,
): Promise<Pruned> {
  const pruned: Pruned = { auditRows: 0, differences: 0, definitions: 0 }
  let resources = 0
  for (const kind of KINDS) {
    for await (const ids of pagesOf(db, kind)) {
      pruned.auditRows += await pruneRows(db, kind, ids, retention.auditRetentionDays)
      pruned.differences += await pruneDifferences(db, kind, ids, retention)
      resources += ids.length
      progress(resources)
    }
  }
  pruned.definitions = await pruneDefinitions(db)
  return pruned
}

/** Runs one statement with the time of pruning. */
async function patiently<Row>(db: Kysely<Database>, query: RawBuilder<Row>): Promise<Row[]> {
  return await db.transaction().execute(async trx => {
    await beLong(trx)
    return (await query.execute(trx)).rows
  })
}

async function beLong(trx: Transaction<Database>): Promise<void> {
  await sql`select set_config('statement_timeout', ${String(STATEMENT_TIMEOUT_MS)}, true)`.execute(trx)
}

/** The resources that have audit rows, in pages: from one to the next by the index, without reading the rows between. */
async function* pagesOf(db: Kysely<Database>, kind: ResourceKind): AsyncGenerator<number[]> {
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

async function pruneRows(
  db: Kysely<Database>,
  kind: ResourceKind,
  ids: readonly number[],
  days: number,
): Promise<number> {
  const rows = await patiently(
    db,
    sql<{ resource_id: number }>`
      select distinct resource_id from audit
      where resource_kind = ${kind} and resource_id = any(${ids}::integer[])
        and at < clock_timestamp() - make_interval(days => ${days}::integer)
      order by 1`,
  )
  let removed = 0
  for (const { resource_id } of rows) {
    for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; removed += count) {
      count = await db.transaction().execute(trx => pruneChain(trx, kind, resource_id, days))
    }
  }
  return removed
}

/** Removes the oldest rows of one chain, up to the first within the retention, and moves the anchor behind them. */
async function pruneChain(trx: Transaction<Database>, kind: ResourceKind, id: number, days: number): Promise<number> {
  await beLong(trx)
  // The row's lock keeps writers of this resource out, so that head, count and anchor move together.
  const found = await trx.selectFrom(kind).select('id').where('id', '=', id).executeTakeFirst()
  const locked = await trx
    .selectFrom(kind)
    .select('id')
    .where('id', '=', id)
    .forNoKeyUpdate()
    .skipLocked()
    .executeTakeFirst()
  if (found !== undefined && locked === undefined) return 0 // somebody writes it: the next run finds it again
  const { rows } = await sql<{ version_after: number; hash: Buffer; at: string }>`
    with old as (
      select version_after, hash, at from audit
      where resource_kind = ${kind} and resource_id = ${id}
        and version_after < coalesce((
          select min(version_after) from audit
          where resource_kind = ${kind} and resource_id = ${id}
            and at >= clock_timestamp() - make_interval(days => ${days}::integer)), 2147483647)
      order by version_after limit ${ROWS_AT_ONCE}::integer
    ), removed as (
      delete from audit a using old
      where a.resource_kind = ${kind} and a.resource_id = ${id} and a.version_after = old.version_after
    )
    select version_after, hash, at from old order by version_after desc`.execute(trx)
  const [last] = rows
  if (last === undefined) return 0
  await trx
    .updateTable(kind)
    .set({ audit_anchor: last.hash, audit_anchor_version: last.version_after, audit_anchor_at: last.at })
    .where('id', '=', id)
    .execute()
  return rows.length
}

async function pruneDifferences(
  db: Kysely<Database>,
  kind: ResourceKind,
  ids: readonly number[],
  { versionsMax, bytesMax }: Retention,
): Promise<number> {
  // The newest difference stays whatever its size: without it the last change could not be told or taken back.
  const rows = await patiently(
    db,
    sql<{ resource_id: number; version_after: number }>`
      select resource_id, version_after from (
        select a.resource_id, a.version_after, row_number() over newest as place,
          sum(a.difference_bytes::bigint + coalesce(d.size_bytes, 0)) over newest as bytes
        from audit a left join tool_definition d on d.hash = a.definition_before
        where a.resource_kind = ${kind} and a.resource_id = any(${ids}::integer[]) and a.difference is not null
        window newest as (partition by a.resource_id order by a.version_after desc)
      ) kept
      where place > greatest(1, ${versionsMax}::integer) or (place > 1 and bytes > ${bytesMax}::bigint)
      order by 1, 2`,
  )
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) {
    const some = JSON.stringify(rows.slice(from, from + ROWS_AT_ONCE))
    await patiently(
      db,
      sql`
        update audit a set difference = null, definition_before = null
        from jsonb_to_recordset(${some}::jsonb) gone (resource_id integer, version_after integer)
        where a.resource_kind = ${kind} and a.resource_id = gone.resource_id and a.version_after = gone.version_after`,
    )
  }
  return rows.length
}

const NO_HASH = Buffer.alloc(0)

/** Looks for definitions without a lock, and removes a few at a time under one, after looking at those few again. */
async function pruneDefinitions(db: Kysely<Database>): Promise<number> {
  let removed = 0
  for (let after: Buffer = NO_HASH; ; ) {
    const candidates = await patiently(
      db,
      sql<{ hash: Buffer; size_bytes: number }>`
        select d.hash, d.size_bytes from tool_definition d
        where d.hash > ${after}::bytea and ${UNUSED} order by d.hash limit ${DEFINITIONS_AT_ONCE}::integer`,
    )
    const [first] = candidates
    if (first === undefined) return removed
    const some = [first.hash]
    let bytes = first.size_bytes
    for (const { hash, size_bytes } of candidates.slice(1)) {
      bytes += size_bytes
      if (bytes > DEFINITION_BYTES_AT_ONCE) break
      some.push(hash)
    }
    removed += await removeDefinitions(db, some)
    after = some.at(-1) ?? NO_HASH
  }
}

const UNUSED = sql<boolean>`not exists (select from tool t where t.definition_hash = d.hash)
  and not exists (select from audit a where a.definition_before = d.hash)`

/**
 * A writer that finds its definition stored refers to it without writing it. The lock is taken when no such writer is in work,
 * without standing in line for it, as everybody who comes later would wait behind; the next writer waits, a few milliseconds,
 * until what it looks for is there or not.
 */
async function removeDefinitions(db: Kysely<Database>, hashes: readonly Buffer[]): Promise<number> {
  for (let tries = 0; tries < LOCK_TRIES; tries++) {
    try {
      return await db.transaction().execute(async trx => {
        await sql`lock table tool_definition in share row exclusive mode nowait`.execute(trx)
        const { numAffectedRows } = await sql`
          delete from tool_definition d where d.hash = any(${hashes}::bytea[]) and ${UNUSED}`.execute(trx)
        return Number(numAffectedRows ?? 0)
      })
    } catch (error) {
      if (classifyDatabaseError(error).kind !== 'lock_timeout') throw error
      await sleep(LOCK_PAUSE_MS)
    }
  }
  return 0 // the next run finds them again
}
