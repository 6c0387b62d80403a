import { materialized, NOW, queries } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
import { useIsStale } from './grants.js'

/** Writes the last use of tokens, at most once a minute each. It skips locked rows: the next use will be written. */
export const recordLastUse = statement<{ id: number }, object>(
  'token_use',
  { id: 'integer' },
  param =>
    queries()
      .with(materialized('unlocked'), db =>
        db
          .selectFrom('token as t')
          .select('t.id')
          .where('t.id', '=', param('id'))
          .where(useIsStale)
          .forNoKeyUpdate()
          .skipLocked(),
      )
      .updateTable('token as t')
      .from('unlocked')
      .set({ last_used_at: NOW })
      .whereRef('t.id', '=', 'unlocked.id'),
  true,
)
