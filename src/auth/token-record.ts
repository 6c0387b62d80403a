import { sql } from 'kysely'
import { rowStatement } from '../db/statements/row-statement.js'
import type { Permission } from '../db/tables.js'

/** Reads a token's scopes, null for all that its user may do, and the names of groups, in the order of their ids. */
export const readTokenRecord = rowStatement<
  { token: number; groups: readonly number[] },
  { scopes: Permission[] | null; managed_groups: { id: number; name: string }[] }
>('token_record', { token: 'integer', groups: 'integer[]' }, param => ({
  query: sql`
    select input.position, t.scopes, coalesce((
      select json_agg(json_build_object('id', g.id, 'name', g.name) order by g.id)
      from user_group g where g.id = any(${param('groups')})), '[]') as managed_groups
    from input join token t on t.id = ${param('token')}`,
}))
