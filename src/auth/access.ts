import { type Expression, type SqlBool, sql } from 'kysely'
import { anyOf, lit, on } from '../db/statements/queries.js'

/* SQL expressions for rights on one agent or tool (DECISIONS section 6, migration 0016). Reads and write checks use the same ones. */

/** The access of a caller to an agent by ownership and shares. With `none`, the caller cannot see it. */
export type PersonaAccess = 'owner' | 'editor' | 'viewer' | 'none'

export type ManagedAs = 'all' | 'owner' | 'group'

/** SQL: the user's access to the agent `p`. */
export function personaAccess(user: Expression<string>): Expression<PersonaAccess> {
  return sql`(select access from persona_access(p.id, p.owner_id, p.is_public, ${user}))`
}

/**
 * The viewer as SQL expressions: the user's id, whether they are an administrator, whether they manage all custom tools, the groups that they
 * manage, and the tools and agents that their token can see (null: all).
 */
export interface Viewer {
  user: Expression<string>
  isAdmin: Expression<SqlBool>
  managesAll: Expression<SqlBool>
  managedGroups: Expression<number[]>
  tools: Expression<number[]>
  agents: Expression<number[]>
}

/** SQL: true if the agent `p` is not deleted and the viewer and their token can see it. */
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

/** SQL: the right by which the viewer manages the tool `t`, or null if they do not manage it. */
export function managedAs({ user, managesAll, managedGroups, tools }: Viewer): Expression<ManagedAs | null> {
  return sql`(select managed_as from managed_tool(t, ${user}, ${managesAll}, ${managedGroups}, ${tools}))`
}

/** The value of `attached_by` for a restored link without a known author. Such a link gives group managers no rights on its tool. */
export const UNKNOWN_ATTACHER = '00000000-0000-0000-0000-000000000000'
