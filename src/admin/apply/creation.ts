import { sql, type Transaction } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'

/**
 * Inserts agents or tools of which nothing is said yet, at version 0, for a first change to be stored like any other. An id that
 * was removed before and comes back goes on with its old chain, at the version that its rows or the pruning of them tell.
 */
export async function insertBlank(
  trx: Transaction<Database>,
  kind: ResourceKind,
  ids: readonly number[],
  columns: Readonly<Record<string, unknown>>,
): Promise<void> {
  const names = sql.join(Object.keys(columns).map(name => sql.ref(name)))
  const rows = sql`audit a where a.resource_kind = ${kind} and a.resource_id = new.id order by a.version_after`
  await sql`
    insert into ${sql.table(kind)}
      (id, version, audit_count, audit_head, audit_anchor_version, audit_anchor, ${names})
    select new.id, chain.version, chain.version, chain.head, chain.anchor_version, chain.anchor, ${names}
    from unnest(${ids}::integer[]) new (id)
    cross join json_populate_record(null::${sql.table(kind)}, ${JSON.stringify(columns)}) blank
    cross join lateral (
      (select 1, last.version_after, last.hash, first.version_before, first.previous_hash
       from (select * from ${rows} desc limit 1) last, (select * from ${rows} limit 1) first)
      union all
      (select 2, pruned.version, pruned.hash, pruned.version, pruned.hash
       from access_event e
       cross join lateral (
         select (e.detail ->> 'anchor_version')::integer as version, decode(e.detail ->> 'anchor_hash', 'hex') as hash) pruned
       where e.kind = 'prune' and e.subject = concat(${kind}::text, ':', new.id) and pruned.version > 0
       order by e.number desc limit 1)
      union all
      select 3, 0, zero, 0, zero from decode(repeat('00', 32), 'hex') zero
      order by 1 limit 1
    ) chain (rank, version, head, anchor_version, anchor)`.execute(trx)
}

/** Forgets in which version each field last changed: of what is new nothing was changed by others. */
export async function forgetFieldVersions(
  trx: Transaction<Database>,
  kind: ResourceKind,
  ids: readonly number[],
): Promise<void> {
  await sql`update ${sql.table(kind)} set field_versions = '{}' where id = any(${ids}::integer[])`.execute(trx)
}
