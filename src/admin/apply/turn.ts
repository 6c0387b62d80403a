import { setTimeout as sleep } from 'node:timers/promises'
import { sql, type Transaction } from 'kysely'
import type { Database } from '../../db/tables.js'

/** Two documents at once would each make what the other makes as well. */
const APPLY_LOCK = 7_153_002
const TURN_PAUSE_MS = 100

/**
 * Waits until no document is being applied. The lock ends with the transaction, however that ends. `onWait` hears of each attempt
 * in vain.
 */
export async function takeTurn(trx: Transaction<Database>, onWait: () => void = () => undefined): Promise<void> {
  for (;;) {
    const { rows } = await sql<{ taken: boolean }>`
      select pg_try_advisory_xact_lock(${APPLY_LOCK}::bigint) as taken`.execute(trx)
    if (rows[0]?.taken) return
    onWait()
    await sleep(TURN_PAUSE_MS)
  }
}
