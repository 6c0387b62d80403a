import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import type { Database } from '../db/tables.js'
import { Refusal } from './refusal.js'

const PAUSE_MS = 20
const LIMIT_MS = 60_000

/**
 * Waits until everything is stored or given up that was decided before now: a statement that found its caller active may wait
 * for a lock of somebody else, and stores only then. Afterwards nothing is stored any more by rights that were taken before the
 * call. Nobody waits for it. Inside a transaction, whose change nobody sees yet, it does nothing. Throws `Refusal` when a
 * transaction goes on for longer than `limitMs`: the change stays, and the command can be repeated.
 */
export async function earlierWritersEnded(db: Kysely<Database>, limitMs: number = LIMIT_MS): Promise<void> {
  if (db.isTransaction) return
  const giveUpMs = performance.now() + limitMs
  const earlier = await writers(db)
  for (let left = earlier; left.length > 0; ) {
    if (performance.now() > giveUpMs) {
      const ids = left.map(({ pid }) => pid ?? 'of a prepared transaction').join(', ')
      throw new Refusal(
        `the change is stored, but a transaction that began before it is still writing (database process ${ids}): ` +
          'wait for its end, or end it, then repeat this command',
      )
    }
    await sleep(PAUSE_MS)
    const now = new Set((await writers(db)).map(({ id }) => id))
    left = left.filter(({ id }) => now.has(id))
  }
}

/**
 * The transactions that write audit rows or events, others' too. Each has the table's lock from before the snapshot on which its
 * statement decides until its end.
 */
async function writers(db: Kysely<Database>): Promise<{ id: string; pid: number | null }[]> {
  const { rows } = await sql<{ id: string; pid: number | null }>`
    select distinct virtualtransaction as id, pid from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
      and database = (select oid from pg_database where datname = current_database())
      and relation in ('audit'::regclass, 'access_chain'::regclass)`.execute(db)
  return rows
}
