import { type Expression, type SqlBool, sql } from 'kysely'
import { anyOf, lit, on } from '../db/statements/queries.js'

/* SQL expressions for rights on one agent or tool (DECISIONS section 6). They call functions of migration 0016. */

/** A user's access to an agent by ownership, by shares, or because the agent is public. The rights of administrators are checked separately. */
export type PersonaAccess = 'owner' | 'editor' | 'viewer' | 'none'

export type ManagedAs = 'all' | 'owner' | 'group'

/** SQL: the user's access to the agent `p`, a row of `persona` or `shown_persona`. */
export function personaAccess(user: Expression<string>): Expression<PersonaAccess> {
  return sql`(select access from persona_access(p.id, p.owner_id, p.is_public, ${user}))`
}

/**
 * The viewer as SQL expressions. `managesAll`: the viewer manages all custom tools. `managedGroups`: the groups that the viewer manages. `tools` and
 * `agents`: the ids that the viewer's token can see; null for all.
 */
export interface Viewer {
  user: Expression<string>
  isAdmin: Expression<SqlBool>
  managesAll: Expression<SqlBool>
  managedGroups: Expression<number[]>
  tools: Expression<number[]>
  agents: Expression<number[]>
}

/** SQL: true if the agent `p` is not deleted, and both the viewer and the viewer's token can see it. */
export function seesAgent({ user, isAdmin, agents }: Viewer): Expression<SqlBool> {
  const { and, eb, not, or, ref } = on<{ p: 'persona' }>()
  const isBound = or([eb(agents, 'is', null), eb('p.id', '=', anyOf(agents))])
  return and([not(ref('p.deleted')), isBound, or([isAdmin, eb(personaAccess(user), '<>', lit('none'))])])
}

/** SQL: true if the viewer's token can see the tool `t`. */
export function seesTool({ tools }: Viewer): Expression<SqlBool> {
  const { eb, or } = on<{ t: 'tool' }>()
  return or([eb(tools, 'is', null), eb('t.id', '=', anyOf(tools))])
}

/** SQL: the right by which the viewer manages the tool `t`, a row of `tool` or `shown_tool`; null without such a right. */
export function managedAs(viewer: Viewer): Expression<ManagedAs | null> {
  return sql`(select managed_as from ${managedTool(viewer)})`
}

/** SQL: one row with `managed_as` if the viewer manages the tool `t`. */
export function managedTool({ user, managesAll, managedGroups, tools }: Viewer) {
  const isCustom = sql`num_nonnulls(t.in_code_tool_id, t.mcp_server_id) = 0`
  return sql`managed_tool(t.id, t.user_id, ${isCustom}, ${user}, ${managesAll}, ${managedGroups}, ${tools})`
}

/** The value of `attached_by` in restored links, whose author is unknown. Such a link gives group managers no right to manage the tool. */
export const UNKNOWN_ATTACHER = '00000000-0000-0000-0000-000000000000'
