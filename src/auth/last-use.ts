import { materialized, NOW } from '../db/statements/queries.js'
import { rowStatement } from '../db/statements/row-statement.js'
import { useIsStale } from './grants.js'

/** Writes the last use of tokens, at most once a minute each. It skips locked rows: the next use will be written. */
export const recordLastUse = rowStatement<{ id: number }, object>(
  'token_use',
  { id: 'integer' },
  (param, db) =>
    db
      .with(materialized('unlocked'), db =>
        db
          .selectFrom('input')
          .innerJoin('token as t', join => join.on('t.id', '=', param('id')))
          .select(['t.id', 'input.position'])
          .where(useIsStale)
          .forNoKeyUpdate('t')
          .skipLocked(),
      )
      .updateTable('token as t')
      .from('unlocked')
      .set({ last_used_at: NOW })
      .whereRef('t.id', '=', 'unlocked.id')
      .returning('unlocked.position'),
  'id',
)
