import { type RawBuilder, sql } from 'kysely'

/*
 * Who may do what with one agent or tool, as SQL (DECISIONS section 6). Each rule is written once: the first look at a
 * resource and the check under its lock are the same expression.
 */

/** The most that a caller may do with an agent by ownership and shares; `none` means that they cannot see it. */
export type PersonaAccess = 'owner' | 'editor' | 'viewer' | 'none'

/**
 * SQL: what the user may do with the agent `p`, by ownership and by shares to them or their groups.
 * Read in one place, so that the first look and the check under the lock cannot differ.
 */
export function personaAccess(user: RawBuilder<unknown>): RawBuilder<PersonaAccess> {
  return sql`(case
    when p.owner_id = ${user} then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = ${user}
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = ${user}
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end)`
}

/** SQL expressions of who is looking: the user, whether they manage every custom tool, the groups they manage. */
export interface Viewer {
  user: RawBuilder<unknown>
  managesAll: RawBuilder<unknown>
  managedGroups: RawBuilder<unknown>
}

/** A tool that more agents use is beyond group managers: what a look at each of them costs, others would wait for. */
export const MANAGED_TOOL_AGENTS_MAX = 1_000

/**
 * SQL: whether the viewer may manage the tool `t` (DECISIONS section 6). A group manager may when they own it, or when
 * somebody else attached it to at least one agent shared with a group they manage and it is on none outside their groups.
 * Built-in tools and tools of an MCP server are not custom tools: nobody manages them here.
 *
 * The three questions about its agents are asked in this order, each stops at the first agent that answers it, and none
 * reads more than `MANAGED_TOOL_AGENTS_MAX` of them: is one outside, are there more, was it attached to one by somebody else.
 */
export function managesTool(viewer: Viewer): RawBuilder<boolean> {
  const most = sql.lit(MANAGED_TOOL_AGENTS_MAX)
  const used = usedBy(MANAGED_TOOL_AGENTS_MAX)
  return sql`(t.in_code_tool_id is null and t.mcp_server_id is null and (${viewer.managesAll} or (
    cardinality(${viewer.managedGroups}) > 0 and (t.user_id = ${viewer.user} or (
      not exists (select from ${used} where not ${isInside(viewer)})
      and not exists (select from persona_tool where tool_id = t.id offset ${most})
      and exists (select from ${used} where not ${isAttachedBy(viewer)}))))))`
}

/** SQL: the agents `a` that have the tool `t`, at most so many, with the link `used`. */
export function usedBy(most: number): RawBuilder<unknown> {
  return sql`(select persona_id, attached_by from persona_tool where tool_id = t.id limit ${sql.lit(most)}) used
      join persona a on a.id = used.persona_id and not a.deleted`
}

/** SQL: whether the agent `a` is shared with a group that the viewer manages. */
export function isInside({ managedGroups }: Viewer): RawBuilder<boolean> {
  return sql`exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any(${managedGroups}))`
}

/** SQL: whether the viewer made the link `used` of the agent `a` themselves; one without a name is its owner's. */
export function isAttachedBy({ user }: Viewer): RawBuilder<boolean> {
  return sql`(coalesce(used.attached_by, a.owner_id) is not distinct from ${user})`
}
