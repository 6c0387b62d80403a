import type { Expression, SqlBool } from 'kysely'
import { ago, anyOf, instant, listOf, lit, NOW, noItems, on, queries } from '../db/statements/queries.js'
import type { Scope } from '../db/tables.js'

/* The rights of a token, as SQL. They are read with each request, and checked again by the statement that stores, because rights may end in between. */

/** The aliases of the rows in `callersWhere`. */
const rows = on<{
  t: 'token'
  u: 'user_account'
  held: { permission: number; managed: number[] }
  granted: { permission: number; managed_groups: number[] }
}>()
const { case: choose, cast, fn, ref } = rows

/**
 * SQL: each token `t` that matches `which`, with its user and the combined rights of user, groups and scopes (DECISIONS sections 6, 7).
 * `grants` has these rights as one text. `offset 0` makes the planner look up the user by key instead of reading all users.
 */
export function callersWhere(which: Expression<SqlBool>) {
  const user = queries().selectFrom('user_account').selectAll().where('user_account.id', '=', ref('t.user_id'))
  const held = queries()
    .selectFrom('user_group_member as m')
    .innerJoin('user_group as g', 'g.id', 'm.user_group_id')
    .where('m.user_id', '=', ref('u.id'))
    .select(eb => {
      const managed = eb.fn.agg<number[]>('array_agg', ['m.user_group_id']).orderBy('m.user_group_id')
      return [
        fn.coalesce(eb.fn.max(rank(eb.ref('g.permissions'))), lit(1)).as('permission'),
        fn.coalesce(managed.filterWhere(eb.ref('m.is_manager')), noItems<number>()).as('managed'),
      ]
    })
  const scope = choose()
    .when(rows.or([rows('t.scopes', 'is', null), rows(scopes, '=', listOf(READ))]))
    .then(lit(3))
    .else(rank(ref('t.scopes').$notNull()))
    .end()
  const own = fn<number>('greatest', [rank(ref('u.permissions')), 'held.permission'])
  const granted = queries().selectNoFrom(eb => [
    fn<number>('least', [own, scope]).as('permission'),
    eb.case().when(scope, '>=', lit(2)).then(ref('held.managed')).else(noItems<number>()).end().as('managed_groups'),
  ])
  return queries()
    .selectFrom('token as t')
    .crossJoinLateral(user.offset(lit(0)).as('u'))
    .crossJoinLateral(held.as('held'))
    .crossJoinLateral(granted.as('granted'))
    .select(({ eb }) => [
      't.id as token_id',
      'u.id as user_id',
      ...(['u.email', 'u.kind', 'u.active', 't.persona_ids', 't.tool_ids', 't.requires_if_match'] as const),
      ...(['granted.permission', 'granted.managed_groups'] as const),
      instant(ref('t.expires_at'), 'SS').as('expires_at'),
      fn.coalesce(eb('t.expires_at', '<=', NOW), lit(false)).as('expired'),
      eb('t.revoked_at', 'is not', null).as('revoked'),
      isReadOnly.as('read_only'),
      useIsStale.as('use_is_stale'),
      cast<string>(fn('row', GRANTED), 'text').as('grants'),
    ])
    .where(which)
    .offset(lit(0))
}

const READ = lit('read' as Scope)
const scopes: Expression<Scope[]> = ref('t.scopes').$notNull()

/** SQL: true if the token `t` is read-only. */
const isReadOnly = fn.coalesce(rows(scopes, '@>', listOf(READ)), lit(false))

const GRANTED = [
  ...(['granted.permission', 'granted.managed_groups'] as const),
  ...(['t.persona_ids', 't.tool_ids', 't.requires_if_match'] as const),
  isReadOnly,
]

/** SQL: true if the last use of the token `t` was not written within the last minute. */
export const useIsStale = fn.coalesce(rows('t.last_used_at', '<', ago('1 minute')), lit(true))

/** SQL: true if a token still has the rights `grants`. A null token is the operator, who needs none. */
export function grantsAsBefore(token: Expression<number>, grants: Expression<string>): Expression<SqlBool> {
  const same = queries()
    .selectFrom(callersWhere(rows('t.id', '=', token)).as('caller'))
    .where(({ and, eb, not, ref }) =>
      and([ref('active'), not(ref('revoked')), not(ref('expired')), eb('caller.grants', '=', grants)]),
    )
  return rows.or([rows(token, 'is', null), rows.exists(same)])
}

/** SQL: the rank of the highest of these permissions in `PERMISSIONS`, from 1. */
function rank(permissions: Expression<Scope[]>): Expression<number> {
  const holds = (permission: Scope) => rows(lit(permission), '=', anyOf(permissions))
  return choose().when(holds('admin')).then(lit(3)).when(holds('manage:actions')).then(lit(2)).else(lit(1)).end()
}
