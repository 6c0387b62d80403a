import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { PersonaSnapshot } from '../persona/schema.js'

/* The additional members of agent records in the newer API. */

type Shown = Pick<PersonaSnapshot, 'id' | 'is_public' | 'is_visible' | 'is_default_persona' | 'users' | 'groups'>

/**
 * The additional members of records. A share that is not stored yet gets the level `added`, which the real request would store. The levels of an
 * earlier version are unknown. Without `added`, such a share is only in `users` and `groups`.
 */
export async function newerMembers(
  db: Kysely<Tables>,
  agents: readonly Shown[],
  added?: 'viewer',
): Promise<Record<string, unknown>[]> {
  const ids = [0, ...agents.map(({ id }) => id)]
  const groupIds = [0, ...agents.flatMap(({ groups }) => groups)]
  const toUsers = db.selectFrom('persona_user').select(['persona_id', 'user_id as to', 'level'])
  const toGroups = db.selectFrom('persona_group').select(['persona_id', 'user_group_id as to', 'level'])
  const shares = [
    ...(await toUsers.where('persona_id', 'in', ids).execute()),
    ...(await toGroups.where('persona_id', 'in', ids).execute()),
  ]
  const levels = new Map(shares.map(({ persona_id, to, level }) => [`${persona_id} ${to}`, level]))
  const named = await db.selectFrom('user_group').select(['id', 'name']).where('id', 'in', groupIds).execute()
  const names = new Map(named.map(({ id, name }) => [id, name]))
  return agents.map(({ id, users, groups, is_public, is_visible, is_default_persona }) => {
    const shared = (to: string | number, more: object) => {
      const level = levels.get(`${id} ${to}`) ?? added
      return level === undefined ? [] : [{ ...more, permission: level.toUpperCase() }]
    }
    const isShared = users.length + groups.length > 0
    return {
      ...{ is_listed: is_visible, is_featured: is_default_persona, owner_group: null },
      user_shares: users.flatMap(user => shared(user.id, { user })),
      group_shares: groups.flatMap(group => shared(group, { group_id: group, group_name: names.get(group) })),
      ...{ public_permission: 'VIEWER', sharing_status: is_public ? 'PUBLIC' : isShared ? 'SHARED' : 'PRIVATE' },
      ...{ default_model_configuration_id: null, hierarchy_nodes: [], attached_documents: [], skill_ids: [] },
      ...{ hierarchy_node_count: 0, attached_document_count: 0, knowledge_sources: [] },
    }
  })
}

/** Appends members to the JSON text of a record. The rest is unchanged, so that numbers in definitions keep their form. */
export function withMembers(record: string, members: object = {}): string {
  return `${record.slice(0, -1)},${JSON.stringify(members).slice(1)}`
}
