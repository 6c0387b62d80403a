import { type RawBuilder, sql } from 'kysely'

/* What a token permits, as SQL: read when a request comes, and again by the statement that stores, because rights may end meanwhile. */

/**
 * SQL: each token `t` for which `which` holds, with its user and what user, groups and scopes permit together (DECISIONS sections 6, 7).
 * `standing` is what decisions rest on, as one text. `offset 0` has the user looked up by key: the planner may read all users else.
 */
export function callersWhere(which: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(${rank(sql`g.permissions`)}), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(${rank(sql`u.permissions`)}, held.permission), case when t.scopes is null then 3 else ${rank(sql`t.scopes`)} end) as permission,
          case when t.scopes is null or ${rank(sql`t.scopes`)} >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where ${which}
      offset 0`
}

/** SQL: whether a token still stands as it did when the caller was established; null is the operator, who needs none. */
export function standsAsBefore(token: RawBuilder<unknown>, standing: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`(${token} is null or exists (select from (${callersWhere(sql`t.id = ${token}`)}
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = ${standing}))`
}

function rank(permissions: RawBuilder<unknown>): RawBuilder<number> {
  return sql`case when 'admin' = any(${permissions}) then 3 when 'manage:actions' = any(${permissions}) then 2 else 1 end`
}
