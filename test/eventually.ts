import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import type { Tables } from '../src/db/tables.js'

/** Less than the time limit of a test file. Even on a busy machine, only a hanging test waits longer. */
const LIMIT_MS = 500_000

/** Waits until `holds` returns true. Throws after the time limit. */
export async function eventually(holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + LIMIT_MS
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within ${LIMIT_MS} ms: ${holds}`)
    await sleep(10)
  }
}

/** Waits until at least `count` sessions of the database wait for a lock. */
export async function untilWaiting(db: Kysely<Tables>, count = 1): Promise<void> {
  const waiting = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await eventually(async () => (await waiting.execute(db)).rows.length >= count)
}

/** Waits until all stored changes are in the feed. Open transactions in any database of the server delay the feed. */
export async function untilPublished(db: Kysely<Tables>): Promise<void> {
  const newest = sql<{ id: string }>`select pg_snapshot_xmax(pg_current_snapshot())::text as id`
  const id = (await newest.execute(db)).rows[0]?.id
  const published = sql`select where pg_snapshot_xmin(pg_current_snapshot()) >= ${id}::xid8`
  await eventually(async () => (await published.execute(db)).rows.length > 0)
}
