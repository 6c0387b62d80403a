import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { rowStatement } from '../db/statements/row-statement.js'
import type { Scope } from '../db/tables.js'

/** Reads a token's scopes (null: all rights of its user), and the names of these groups, sorted by id. */
export const readTokenRecord = rowStatement<
  { token: number; groups: readonly number[] },
  { scopes: Scope[] | null; managed_groups: { id: number; name: string }[] }
>('token_record', { token: 'integer', groups: 'integer[]' }, (param, db) =>
  db
    .selectFrom('input')
    .innerJoin('token as t', join => join.on('t.id', '=', param('token')))
    .select(({ fn, selectFrom }) => {
      const groups = selectFrom('user_group as g')
        .select(['g.id', 'g.name'])
        .where('g.id', '=', fn.any(param('groups')))
      return ['input.position', 't.scopes', jsonArrayFrom(groups.orderBy('g.id')).as('managed_groups')]
    }),
)
