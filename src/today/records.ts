import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { PersonaSnapshot } from '../persona/schema.js'

/* What records of agents have in addition for today's clients. */

type Shown = Pick<PersonaSnapshot, 'id' | 'is_public' | 'is_visible' | 'is_default_persona' | 'user_file_ids'> &
  Pick<PersonaSnapshot, 'users' | 'groups' | 'document_sets'>

/** The stored shares of agents: a level by agent and user, a level and a name by agent and group. */
interface Shares {
  users: Map<string, string>
  groups: Map<string, { level: string; name: string }>
}

/** Reads the shares of these agents. */
export async function readShares(db: Kysely<Tables>, agents: readonly Shown[]): Promise<Shares> {
  const ids = agents.filter(({ users, groups }) => users.length + groups.length > 0).map(({ id }) => id)
  if (ids.length === 0) return { users: new Map(), groups: new Map() }
  const users = db.selectFrom('persona_user').select(['persona_id', 'user_id', 'level'])
  const groups = db
    .selectFrom('persona_group as s')
    .innerJoin('user_group as g', 'g.id', 's.user_group_id')
    .select(['s.persona_id', 's.user_group_id', 's.level', 'g.name'])
  const [byUser, byGroup] = [
    await users.where('persona_id', 'in', ids).execute(),
    await groups.where('s.persona_id', 'in', ids).execute(),
  ]
  return {
    users: new Map(byUser.map(({ persona_id, user_id, level }) => [`${persona_id} ${user_id}`, level])),
    groups: new Map(
      byGroup.map(({ persona_id, user_group_id, ...share }) => [`${persona_id} ${user_group_id}`, share]),
    ),
  }
}

/** The members that a record has in addition. A share that a dry run would add is a viewer's, as it would be stored. */
export function newerMembers(agent: Shown, shares: Shares): object {
  const { id, users, groups, is_public } = agent
  const groupOf = (group: number) => shares.groups.get(`${id} ${group}`) ?? { level: 'viewer', name: '' }
  const isShared = users.length + groups.length > 0
  return {
    ...{ is_listed: agent.is_visible, is_featured: agent.is_default_persona, owner_group: null },
    user_shares: users.map(user => ({
      user,
      permission: (shares.users.get(`${id} ${user.id}`) ?? 'viewer').toUpperCase(),
    })),
    group_shares: groups.map(group => {
      const { level, name } = groupOf(group)
      return { group_id: group, group_name: name, permission: level.toUpperCase() }
    }),
    ...{ public_permission: 'VIEWER', sharing_status: is_public ? 'PUBLIC' : isShared ? 'SHARED' : 'PRIVATE' },
    ...{ default_model_configuration_id: null, hierarchy_nodes: [], attached_documents: [], skill_ids: [] },
    ...{ hierarchy_node_count: 0, attached_document_count: 0, knowledge_sources: sourcesOf(agent) },
  }
}

function sourcesOf({ document_sets, user_file_ids }: Shown): string[] {
  const sources = document_sets.flatMap(({ cc_pair_summaries, federated_connector_summaries }) => [
    ...cc_pair_summaries.map(({ source }) => source),
    ...(federated_connector_summaries ?? []).map(({ source }) => source.replace(/^federated_/, '')),
  ])
  return [...new Set(user_file_ids.length > 0 ? [...sources, 'user_file'] : sources)]
}
