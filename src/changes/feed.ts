import { type Kysely, sql } from 'kysely'
import { managedAs, personaAccess } from '../auth/access.js'
import { grantsStand, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { instant } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { limitStatements } from '../db/transaction.js'
import { AUTHOR } from '../updates/audit.js'
import { ACTION, type HistoryRow } from '../updates/history.js'

/*
 * The feed of changes: audit rows in the order of their transactions, and within one in the order of their numbers. Rows of transactions that
 * began after the oldest open one wait for its end, so what a reader has passed can never appear. A cursor is the feed's id and the last place.
 */

/** The most rows that are looked at for one page. */
export const ROWS_MAX = 1_000

type PageParameters = ViewerParameters & {
  personas: number[] | null
  kind: ResourceKind | null
  rows: number
  transaction: string
  place: string
}

/** A change that the viewer may learn of. `is_seen` is false if they do not see the record now. */
export interface FeedRow extends Omit<HistoryRow, 'version_before' | 'request_id' | 'difference'> {
  cursor: string
  kind: ResourceKind
  id: number
  is_seen: boolean
  may_edit: boolean
}

interface FeedPage {
  feed: string
  /** True if rows after the given place were pruned. */
  is_pruned: boolean
  /** False if the viewer's rights have changed. */
  stands: boolean
  rows: FeedRow[] | null
  looked_at: number
  /** The last place that was looked at; null without a row. */
  last: string | null
}

const END = sql`a.transaction_id < pg_snapshot_xmin(pg_current_snapshot())`

/** Reads the changes after a place. Tools are seen by everybody whose token is not bound to others. */
export const readFeed = statement<PageParameters, FeedPage>(
  'change_feed',
  {
    ...VIEWER_TYPES,
    ...{ personas: 'integer[]', kind: 'text', rows: 'integer', transaction: 'xid8', place: 'bigint' },
  },
  param => {
    const after = sql`(${param('transaction')}, ${param('place')})`
    const viewer = viewerOf(param)
    return sql<FeedPage>`
      with looked_at as materialized (
        select a.* from audit a where ${END} and (a.transaction_id, a.place) > ${after}
        order by a.transaction_id, a.place limit ${sql.lit(ROWS_MAX)}
      ), shown as (
        select a.transaction_id, a.place, concat(f.id, '.', a.transaction_id, '.', a.place) as cursor,
          a.resource_kind as kind, a.resource_id as id, a.version_after as version, ${ACTION} as action, a.fields, a.command,
          a.actor_id, ${AUTHOR} as author, ${instant(sql.ref('a.at'))} as at, is_seen,
          coalesce(managed is not null or (${viewer.isAdmin} or access in ('owner', 'editor')) and p.id is not null, false) as may_edit
        from looked_at a
        cross join change_feed f
        left join persona p on a.resource_kind = 'persona' and p.id = a.resource_id
        left join tool t on a.resource_kind = 'tool' and t.id = a.resource_id
        cross join lateral (select ${personaAccess(viewer.user)} as access,
          case when a.resource_kind = 'tool' then ${managedAs(viewer)} end as managed) r
        cross join lateral (
          select a.resource_kind = 'tool' or not p.deleted and (${viewer.isAdmin} or access <> 'none') as is_seen) s
        where coalesce(${param('kind')} = a.resource_kind, true)
          and coalesce(a.resource_id = any (case a.resource_kind when 'tool' then ${viewer.tools} else ${param('personas')} end), true)
          and (is_seen or (a.taken_from ->> 'is_public')::boolean or a.taken_from -> 'users' ? ${viewer.user}::text
            or ${viewer.isAdmin} and a.taken_from is not null and a.fields @> '{deleted}'
            or exists (select from user_group_member m
              where m.user_id = ${viewer.user} and a.taken_from -> 'groups' @> to_jsonb(m.user_group_id)))
        order by a.transaction_id, a.place limit ${param('rows')}
      )
      select f.id as feed, ${after} < (f.pruned_transaction_id, f.pruned_place) as is_pruned, ${grantsStand(param)} as stands,
        (select json_agg(shown order by transaction_id, place) from shown) as rows,
        (select count(*)::integer from looked_at) as looked_at,
        (select concat(f.id, '.', transaction_id, '.', place) from looked_at order by transaction_id desc, place desc limit 1) as last
      from change_feed f`
  },
)

/** Returns the cursor of now: of the newest change that all readers may have seen. */
export async function readHead(db: Kysely<Tables>): Promise<string> {
  const { rows } = await sql<{ head: string }>`
    select concat(f.id, '.', h.transaction_id, '.', h.place) as head
    from change_feed f cross join lateral (
      (select a.transaction_id, a.place from audit a where ${END} order by 1 desc, 2 desc limit 1)
      union all select f.pruned_transaction_id, f.pruned_place
      order by 1 desc, 2 desc limit 1) h`.execute(db)
  return rows[0]?.head ?? ''
}

/** Returns for how many seconds the oldest stored change has waited for transactions that are still open. */
export async function readLag(db: Kysely<Tables>): Promise<number> {
  const { rows } = await sql<{ lag: number }>`
    select coalesce(extract(epoch from clock_timestamp() - min(at)), 0)::float8 as lag
    from audit where transaction_id >= pg_snapshot_xmin(pg_current_snapshot())`.execute(db)
  return rows[0]?.lag ?? 0
}

const SERVER = sql`
  (select s.system_identifier, d.oid from pg_control_system() s, pg_database d where d.datname = current_database())`

/** Ends all cursors if the feed's transactions are those of another server or database, as after a dump was restored here. */
export async function adoptFeed(db: Kysely<Tables>): Promise<void> {
  const isForeign = sql<boolean>`(system_identifier, database_oid) <> ${SERVER}`
  const { rows } = await sql`select from change_feed where ${isForeign}`.execute(db)
  if (rows.length > 0) await resetFeed(db, isForeign)
}

/** Ends all cursors. Changes of before leave the feed. `condition` holds for a feed that no other process has reset meanwhile. */
export async function resetFeed(db: Kysely<Tables>, condition = sql<boolean>`true`): Promise<void> {
  await db.transaction().execute(async trx => {
    await limitStatements(trx, 0)
    await sql`update audit set transaction_id = null, place = null where transaction_id is not null`.execute(trx)
    await sql`
      update change_feed set (system_identifier, database_oid) = ${SERVER}, id = gen_random_uuid(),
        pruned_transaction_id = '0', pruned_place = 0 where ${condition}`.execute(trx)
  })
}
