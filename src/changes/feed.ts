import { type Kysely, sql } from 'kysely'
import { VIEWER_TYPES, type ViewerParameters } from '../auth/viewer.js'
import { statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { limitStatements } from '../db/transaction.js'
import type { HistoryRow } from '../updates/history.js'

/*
 * The feed of changes: audit rows and proposals, ordered by `transaction_id` and `place`, which are a row's position. A row is published when no open
 * transaction can add an earlier row, so a reader never misses a row. A cursor consists of the feed's id and the position of a row.
 */

/** The maximum number of rows that one page examines. */
export const ROWS_MAX = 1_000

export const KINDS = ['persona', 'tool', 'proposal'] as const
export type ChangeKind = (typeof KINDS)[number]

/** A change that the viewer can see. `is_seen` and `may_edit` state whether the viewer can see and edit the record now. */
export interface FeedRow extends Pick<HistoryRow, 'version' | 'at' | 'author' | 'actor_id' | 'command' | 'fields'> {
  action: string
  cursor: string
  kind: ChangeKind
  id: number
  is_seen: boolean
  may_edit: boolean
}

type FeedPage = { rows: FeedRow[] | null; last: string | null }

/**
 * Reads a page of changes after a position. Returns no row if the position is not in the feed, or if a later row was pruned. `last` is the cursor
 * of the last examined row. The next page begins after `last` or, if this page is full, after its last change.
 */
export const readFeed = statement<
  ViewerParameters & { kind: ChangeKind | null; rows: number; feed: string; transaction: string; place: string },
  FeedPage
>(
  'change_feed',
  { ...VIEWER_TYPES, kind: 'text', rows: 'integer', feed: 'text', transaction: 'xid8', place: 'bigint' },
  param => sql<FeedPage>`
    with looked_at as materialized (
      select * from stored_change where is_published and (transaction_id, place) > (${param('transaction')}, ${param('place')})
      order by transaction_id, place limit ${sql.lit(ROWS_MAX)}
    ), shown as (
      select a.transaction_id, a.place, a.cursor, a.kind, a.id, a.version, a.action, a.instant as at, a.fields, a.command, a.actor_id, a.author,
        s.*
      from looked_at a left join change_sight(a.resource_kind, a.resource_id, case a.kind when 'proposal' then '{deleted}' else a.fields end,
        a.taken_from, ${param('user')}, ${param('is_admin')}, ${param('manages_all')}, ${param('managed_groups')}, ${param('agents')},
        ${param('tools')}) s on true
      where coalesce(a.kind = ${param('kind')}, true)
        and case when a.kind <> 'proposal' then s.is_seen is not null
          when a.proposer_id = ${param('user')} then coalesce(a.resource_id = any
            (case a.resource_kind when 'tool' then ${param('tools')} else ${param('agents')} end), true)
          else s.may_edit or a.action = 'closed' and not s.is_seen end
      order by a.transaction_id, a.place limit ${param('rows')}
    )
    select (select json_agg(shown order by transaction_id, place) from shown) as rows,
      (select cursor from looked_at order by transaction_id desc, place desc limit 1) as last
    from feed_ends where feed::text = ${param('feed')}
      and (${param('transaction')}, ${param('place')}) between (first_transaction_id, first_place) and (last_transaction_id, last_place)`,
)

/** Reads the cursors of the end of the feed (`now`) and of its start (`first`). If `back` is not 0, `first` is before the newest `back` changes. */
export async function readEnds(db: Kysely<Tables>, back = 0): Promise<{ now: string; first: string }> {
  const recent = sql`
    (select cursor from stored_change where is_published order by transaction_id desc, place desc limit 1 offset ${back})`
  const { rows } = await sql<{ now: string; first: string }>`
    select concat(feed, '.', last_transaction_id, '.', last_place) as now,
      coalesce(${back > 0 ? recent : null}, concat(feed, '.', first_transaction_id, '.', first_place)) as first
    from feed_ends`.execute(db)
  return rows[0] ?? { now: '', first: '' }
}

/** Reads the age of the oldest unpublished change, the number of open proposals, and the age of the oldest open proposal. Ages are in seconds. */
export async function readBacklog(db: Kysely<Tables>): Promise<Record<'lag_s' | 'open' | 'oldest_s', number>> {
  const since = (first: string) =>
    sql`coalesce(extract(epoch from clock_timestamp() - min(${sql.ref(first)})), 0)::float8`
  const { rows } = await sql<Record<'lag_s' | 'open' | 'oldest_s', number>>`
    select (select ${since('at')} from stored_change where not is_published) as lag_s, count(*)::integer as open, ${since('created_at')} as oldest_s
    from proposal where state = 'open'`.execute(db)
  return rows[0] ?? { lag_s: 0, open: 0, oldest_s: 0 }
}

const SERVER = sql`
  (select s.system_identifier, d.oid from pg_control_system() s, pg_database d where d.datname = current_database())`

/** True if the feed comes from another database or server, for example after a dump was restored. */
export async function isForeign(db: Kysely<Tables>): Promise<boolean> {
  const { rows } = await sql`select from change_feed where (system_identifier, database_oid) <> ${SERVER}`.execute(db)
  return rows.length > 0
}

/** Invalidates all cursors and removes all changes from the feed. */
export async function resetFeed(db: Kysely<Tables>): Promise<void> {
  await db.transaction().execute(async trx => {
    await limitStatements(trx, 0)
    await sql`
      with begun as (
        update change_feed set (system_identifier, database_oid) = ${SERVER}, id = gen_random_uuid(),
          pruned_transaction_id = '0', pruned_place = 0),
      ended as (update proposal set opened_transaction_id = null, closed_transaction_id = null)
      update audit set transaction_id = null where transaction_id is not null`.execute(trx)
  })
}
