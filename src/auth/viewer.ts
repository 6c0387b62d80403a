import { type Expression, type SqlBool, sql } from 'kysely'
import { anyOf, lit, on } from '../db/statements/queries.js'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import { type Caller, isAdmin, managesActions } from './caller.js'

/* Viewers of agents and tools. The SQL expressions for the rights of viewers (DECISIONS section 6) call functions of migration 0016. */

/** A viewer as the parameters of a statement. `user` is null for the operator. */
export interface ViewerParameters {
  user: string | null
  manages_all: boolean
  is_admin: boolean
  managed_groups: number[]
  /** The tools that the viewer's token can see; null for all. */
  tools: number[] | null
  /** The agents that the viewer's token can see; null for all. */
  agents: number[] | null
  /** The id of the viewer's token; null for the operator. */
  token: number | null
  /** The rights that the token had when the caller was read; null for the operator. */
  grants: string | null
}

export const VIEWER_TYPES: SqlTypes<ViewerParameters> = {
  user: 'uuid',
  manages_all: 'boolean',
  is_admin: 'boolean',
  managed_groups: 'integer[]',
  tools: 'integer[]',
  agents: 'integer[]',
  token: 'integer',
  grants: 'text',
}

/** The operator at the command line, who has all rights. */
export const OPERATOR: ViewerParameters = {
  user: null,
  manages_all: true,
  is_admin: true,
  managed_groups: [],
  tools: null,
  agents: null,
  token: null,
  grants: null,
}

export function viewerParameters(caller: Caller): ViewerParameters {
  return {
    user: caller.userId,
    manages_all: managesActions(caller),
    is_admin: isAdmin(caller),
    managed_groups: caller.managedGroupIds,
    tools: caller.token.bound?.tool ?? null,
    agents: caller.token.bound?.persona ?? null,
    token: caller.token.id,
    grants: caller.grants,
  }
}

/** SQL: the viewer from the parameters of a statement. */
export function viewerOf(param: Param<ViewerParameters>): Viewer {
  const [user, managesAll, managedGroups] = [param('user'), param('manages_all'), param('managed_groups')]
  return { user, managesAll, managedGroups, isAdmin: param('is_admin'), tools: param('tools'), agents: param('agents') }
}

/** SQL: the viewer with the values of `parameters`. `grantsStand`: true if the viewer's token still has the same rights. */
export function viewerWithValues(parameters: ViewerParameters): Viewer & { grantsStand: Expression<SqlBool> } {
  const { cast, val } = on()
  const value: Param<ViewerParameters> = name => cast(val(parameters[name]), sql.raw(VIEWER_TYPES[name]))
  return { ...viewerOf(value), grantsStand: grantsStand(value) }
}

/** SQL: true if the viewer's token still has the rights that the decision was based on. Always true for the operator. */
export function grantsStand(param: Param<ViewerParameters>): Expression<SqlBool> {
  return sql<SqlBool>`exists (select from ${tokenWith(param)})`
}

/** SQL: one row if `grantsStand` is true; otherwise none. */
export function tokenWith(param: Param<ViewerParameters>) {
  return sql`token_with(${param('token')}, ${param('grants')})`
}

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

/** SQL: the right with which the viewer manages the tool `t`; null without such a right. `t` is a row of `tool` or `shown_tool`. */
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
