import { sql } from 'kysely'
import { rowStatement } from '../db/statements/row-statement.js'

/** Writes that tokens were used, at most once a minute each. It waits for no row: the next use is early enough. */
export const recordLastUse = rowStatement<{ id: number }, object>(
  'token_use',
  { id: 'integer' },
  param => ({
    parts: [
      sql`unlocked as materialized (
        select t.id, input.position
        from input join token t on t.id = ${param('id')}
        where coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true)
        for no key update of t skip locked
      )`,
    ],
    query: sql`update token t set last_used_at = clock_timestamp() from unlocked where t.id = unlocked.id
      returning unlocked.position`,
  }),
  'id',
)
