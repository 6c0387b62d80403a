import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import type { Tables } from '../src/db/tables.js'

/** Waits until `holds` answers true. Throws after `timeoutMs`, which only a machine that hangs needs. */
export async function eventually(holds: () => boolean | Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${holds}`)
    await sleep(10)
  }
}

/** Waits until `count` sessions of the database wait for a lock. */
export async function untilWaiting(db: Kysely<Tables>, count = 1): Promise<void> {
  const waiting = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await eventually(async () => (await waiting.execute(db)).rows.length >= count)
}
