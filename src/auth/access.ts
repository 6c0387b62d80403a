import { type RawBuilder, sql } from 'kysely'
import { isOnly } from '../db/statements/statement.js'

/* Rights on one agent or tool, as SQL (DECISIONS section 6). The first look and the check under the lock are one expression. */

/** The most that a caller may do with an agent by ownership and shares; `none` means that they cannot see it. */
export type PersonaAccess = 'owner' | 'editor' | 'viewer' | 'none'

/** SQL: what the user may do with the agent `p`, by ownership and by shares to them or their groups. */
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

/** SQL expressions of the viewer: the user, whether they manage every custom tool, their groups, the tools that their token may see (null: all). */
export interface Viewer {
  user: RawBuilder<unknown>
  managesAll: RawBuilder<unknown>
  managedGroups: RawBuilder<unknown>
  tools: RawBuilder<unknown>
}

/** SQL: whether the viewer's token may see the tool `t`. */
export function seesTool({ tools }: Viewer): RawBuilder<boolean> {
  return sql`(${tools} is null or t.id = any(${tools}))`
}

/** A tool that more agents use is beyond group managers: what a look at each of them costs, others would wait for. */
export const MANAGED_TOOL_AGENTS_MAX = 1_000

/**
 * SQL: whether the viewer may manage the tool `t` (DECISIONS section 6): a group manager who owns it, or where somebody else attached it to
 * agents of their groups and to no other. `ids` are all tools that the statement asks about: their agents are looked at once.
 */
export function managesTool(viewer: Viewer, ids: RawBuilder<unknown> = sql`array[t.id]`): RawBuilder<boolean> {
  return sql`(t.in_code_tool_id is null and t.mcp_server_id is null and ${seesTool(viewer)} and (${viewer.managesAll} or (
    cardinality(${viewer.managedGroups}) > 0 and (t.user_id = ${viewer.user} or t.id = any(${toolsInScope(viewer, ids)})))))`
}

/** Most tools used outside the groups appear on one of their first 20 agents, so check those first. */
const FIRST_AGENTS = 20

/** SQL: which of these tools the viewer may manage for the agents that have them. Each agent is looked up once, in hash tables. */
function toolsInScope(viewer: Viewer, ids: RawBuilder<unknown>): RawBuilder<unknown> {
  const links = linksOf(sql`t.id`)
  return sql`array(
      with asked as materialized (
        select t.id from unnest(${ids}) t (id)
        where case when exists (select from ${usedBy(FIRST_AGENTS)} where not ${isInside(viewer)}) then false
          else not exists (select from persona_tool where tool_id = t.id offset ${sql.lit(MANAGED_TOOL_AGENTS_MAX)}) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from ${links} offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or ${isInside(viewer)}
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from ${viewer.user}
      )
      select t.id from asked t
      where not exists (select from ${links} and persona_id not in (select id from inside))
        and exists (
          select from ${links} and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> ${viewer.user} and persona_id in (select id from inside where lives) end))`
}

/** SQL: the links of a tool. Its id is asked for twice, else the planner reads all links for a tool on some hundred agents. */
export function linksOf(tool: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`persona_tool where tool_id = ${tool} and ${isOnly(sql`tool_id`, tool)}`
}

/** SQL: the agents `a` that have the tool `t`, at most `most`, with the link `used`. */
export function usedBy(most: number): RawBuilder<unknown> {
  return sql`(select persona_id, attached_by from ${linksOf(sql`t.id`)} limit ${sql.lit(most)}) used
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
