import { sql } from 'kysely'
import { rowStatement } from '../db/statements/row-statement.js'

/** A token, and when it was used: UTC text. */
interface Use {
  id: number
  at: string
}

/**
 * Writes when tokens were last used, at most once a minute each. It never waits for a token's row: where somebody else has
 * it, the next use is early enough.
 */
export const recordLastUse = rowStatement<Use, object>(
  'token_use',
  { id: 'integer', at: 'timestamptz' },
  param => ({
    parts: [
      sql`unlocked as materialized (
        select t.id, input.position, ${param('at')} as used_at
        from input join token t on t.id = ${param('id')}
        where coalesce(t.last_used_at < ${param('at')} - interval '1 minute', true)
        for no key update of t skip locked
      )`,
    ],
    query: sql`update token t set last_used_at = used_at from unlocked where t.id = unlocked.id returning unlocked.position`,
  }),
  'id',
)
