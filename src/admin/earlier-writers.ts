import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import { rootCause } from '../db/connection/database-error.js'
import type { Tables } from '../db/tables.js'
import { StoredInDoubt } from './refusal.js'

/**
 * Waits until every running transaction that writes to the audit trail has ended. Afterwards nothing more is stored with the old rights.
 * Does nothing inside a transaction, whose changes are not visible yet. Throws `StoredInDoubt` after `limitMs` or if the connection is
 * lost: the change is stored, and the command can be repeated.
 */
export async function earlierWritersEnded(db: Kysely<Tables>, limitMs = 60_000): Promise<void> {
  if (db.isTransaction) return
  const giveUpMs = performance.now() + limitMs
  try {
    for (let left = await writers(db); left.length > 0; ) {
      if (performance.now() > giveUpMs) {
        const ids = left.map(({ pid }) => pid ?? 'of a prepared transaction').join(', ')
        throw new StoredInDoubt(
          `the change is stored, but a transaction that began before it is still writing (database process ${ids}): ` +
            'wait for its end, or end it, then repeat this command',
        )
      }
      await sleep(20)
      const now = new Set((await writers(db)).map(({ id }) => id))
      left = left.filter(({ id }) => now.has(id))
    }
  } catch (error) {
    if (error instanceof StoredInDoubt) throw error
    throw new StoredInDoubt(
      `the change is stored, but whether transactions that began before it have ended is not known (${rootCause(error)}): ` +
        'repeat this command',
    )
  }
}

/** Lists the writers. A writing statement takes the table's lock before its snapshot, and holds it until the transaction ends. */
async function writers(db: Kysely<Tables>): Promise<{ id: string; pid: number | null }[]> {
  const { rows } = await sql<{ id: string; pid: number | null }>`
    select distinct virtualtransaction as id, pid from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
      and database = (select oid from pg_database where datname = current_database())
      and relation in ('audit'::regclass, 'access_chain'::regclass)`.execute(db)
  return rows
}
