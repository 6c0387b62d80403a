import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { queries } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
import type { Scope } from '../db/tables.js'

/** Reads a token's scopes (null: all rights of its user), and the names of these groups, sorted by id. */
export const readTokenRecord = statement<
  { token: number; groups: readonly number[] },
  { scopes: Scope[] | null; managed_groups: { id: number; name: string }[] }
>('token_record', { token: 'integer', groups: 'integer[]' }, param =>
  queries()
    .selectFrom('token as t')
    .select(({ fn, selectFrom }) => {
      const groups = selectFrom('user_group as g')
        .select(['g.id', 'g.name'])
        .where('g.id', '=', fn.any(param('groups')))
      return ['t.scopes', jsonArrayFrom(groups.orderBy('g.id')).as('managed_groups')]
    })
    .where('t.id', '=', param('token')),
)
