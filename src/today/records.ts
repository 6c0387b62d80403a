import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { PersonaSnapshot } from '../persona/schema.js'

/* What records of agents have in addition for today's clients. */

type Shown = Pick<PersonaSnapshot, 'id' | 'is_public' | 'is_visible' | 'is_default_persona' | 'users' | 'groups'>

/** The stored levels of shares, by agent and user or group, and the names of groups. */
interface Shares {
  levels: Map<string, string>
  names: Map<number, string>
}

/** Reads the shares of these agents. */
export async function readShares(db: Kysely<Tables>, agents: readonly Shown[]): Promise<Shares> {
  const ids = agents.filter(({ users, groups }) => users.length + groups.length > 0).map(({ id }) => id)
  if (ids.length === 0) return { levels: new Map(), names: new Map() }
  const users = await db.selectFrom('persona_user').selectAll().where('persona_id', 'in', ids).execute()
  const groups = await db.selectFrom('persona_group').selectAll().where('persona_id', 'in', ids).execute()
  const each = [0, ...agents.flatMap(agent => agent.groups)]
  const named = await db.selectFrom('user_group').select(['id', 'name']).where('id', 'in', each).execute()
  return {
    levels: new Map([
      ...users.map(({ persona_id, user_id, level }) => [`${persona_id} ${user_id}`, level] as const),
      ...groups.map(({ persona_id, user_group_id, level }) => [`${persona_id} ${user_group_id}`, level] as const),
    ]),
    names: new Map(named.map(({ id, name }) => [id, name])),
  }
}

/**
 * The members that a record has in addition. A share that is not stored has the level `added`: a dry run would store it so. Without it, as
 * in an earlier version, whose levels are not known, it is only in `users` and `groups`.
 */
export function newerMembers(agent: Shown, { levels, names }: Shares, added?: 'viewer'): object {
  const { id, users, groups, is_public } = agent
  const shared = (to: string | number, more: object) => {
    const level = levels.get(`${id} ${to}`) ?? added
    return level === undefined ? [] : [{ ...more, permission: level.toUpperCase() }]
  }
  const isShared = users.length + groups.length > 0
  return {
    ...{ is_listed: agent.is_visible, is_featured: agent.is_default_persona, owner_group: null },
    user_shares: users.flatMap(user => shared(user.id, { user })),
    group_shares: groups.flatMap(group => shared(group, { group_id: group, group_name: names.get(group) })),
    ...{ public_permission: 'VIEWER', sharing_status: is_public ? 'PUBLIC' : isShared ? 'SHARED' : 'PRIVATE' },
    ...{ default_model_configuration_id: null, hierarchy_nodes: [], attached_documents: [], skill_ids: [] },
    ...{ hierarchy_node_count: 0, attached_document_count: 0, knowledge_sources: [] },
  }
}

/** The JSON text of a record with more members at its end. Its bytes stay: definitions keep their numbers. */
export function withMembers(record: string, members: object): string {
  return `${record.slice(0, -1)},${JSON.stringify(members).slice(1)}`
}
