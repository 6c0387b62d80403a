import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { contentOf } from '../persona/rules.js'
import type { Vault } from '../secrets/vault.js'
import { type AccessChange, recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { changePersona } from './apply/personas.js'
import { removeRow } from './apply/pruning.js'
import { changeTool, decideAsOperator } from './apply/tools.js'
import { operatorActor } from './operator.js'
import { lockUser, takingAccess, userId } from './people.js'
import { Refusal } from './refusal.js'

/** What deleting an agent takes with it. */
export interface AgentDeletion {
  id: number
  name: string
  tools: number
  users: number
  groups: number
}

/** What would go with an agent. Throws `Refusal` when there is none to delete. */
export async function planAgentDeletion(db: Kysely<Database>, id: number): Promise<AgentDeletion> {
  const { rows } = await sql<AgentDeletion & { deleted: boolean; builtin_persona: boolean }>`
    select id, name, deleted, builtin_persona,
      (select count(*)::integer from persona_tool where persona_id = p.id) as tools,
      (select count(*)::integer from persona_user where persona_id = p.id) as users,
      (select count(*)::integer from persona_group where persona_id = p.id) as groups
    from persona p where id = ${id}::integer`.execute(db)
  const [row] = rows
  if (row === undefined || row.deleted) throw new Refusal(`there is no agent ${id}`)
  if (row.builtin_persona) throw new Refusal(`agent ${id} is built in`)
  const { deleted: _, builtin_persona: __, ...plan } = row
  return plan
}

/** Deletes an agent as the service does: marked, and out of every relation, as one new version. Throws `Refusal`. */
export async function deleteAgent(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  actor: Actor = operatorActor(),
): Promise<AgentDeletion> {
  return await inTransaction(database, { rollback: false }, async trx => {
    const plan = await planAgentDeletion(trx, id)
    await removeRow(trx, 'agents', { id }, actor)
    return plan
  })
}

/** What deleting a tool takes with it. */
export interface ToolDeletion {
  id: number
  name: string
  headers: number
  /** The agents that lose it, each with a new version. */
  agents: number[]
}

/** What would go with a tool. Throws `Refusal` when there is none to delete. */
export async function planToolDeletion(db: Kysely<Database>, id: number): Promise<ToolDeletion> {
  const { rows } = await sql<ToolDeletion & { in_code_tool_id: string | null }>`
    select id, name, in_code_tool_id,
      (select count(*)::integer from tool_header where tool_id = t.id) as headers,
      array(select persona_id from persona_tool where tool_id = t.id order by 1) as agents
    from tool t where id = ${id}::integer`.execute(db)
  const [row] = rows
  if (row === undefined) throw new Refusal(`there is no tool ${id}`)
  if (row.in_code_tool_id !== null) throw new Refusal(`tool ${id} is built in`)
  const { in_code_tool_id: _, ...plan } = row
  return plan
}

/** Deletes a tool, its secrets and its place in every agent. Its audit trail stays. Throws `Refusal`. */
export async function deleteTool(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  actor: Actor = operatorActor(),
): Promise<ToolDeletion> {
  return await inTransaction(database, { rollback: false }, async trx => {
    const plan = await planToolDeletion(trx, id)
    for (const agent of plan.agents) {
      const without = (ids: readonly number[]) => ids.filter(tool => tool !== id)
      await changePersona(trx, agent, state => ({ ...contentOf(state), tool_ids: without(state.tool_ids) }), actor)
    }
    await removeRow(trx, 'tools', { id }, actor)
    return plan
  })
}

/** What deleting a user takes with it, and who gets what they own. */
export interface UserDeletion {
  id: string
  email: string
  heir: string | null
  tokens: number
  /** Groups that they leave. */
  groups: number
  /** Agents that are no longer shared with them. */
  shares: number[]
  owned: { agents: number[]; tools: number[]; oauth_configs: number[]; mcp_servers: number[]; user_files: string[] }
}

/** What would go with a user, named by email or id. Throws `Refusal`, also when they own something and nobody gets it. */
export async function planUserDeletion(db: Kysely<Database>, user: string, heir?: string): Promise<UserDeletion> {
  const id = await userId(db, user)
  const heirId = heir === undefined ? null : await userId(db, heir)
  if (heirId === id) throw new Refusal(`${heir} is the user who would be deleted`)
  const { rows } = await sql<UserDeletion>`
    select u.id, u.email, (select email from user_account where id = ${heirId}::uuid) as heir,
      (select count(*)::integer from token where user_id = u.id) as tokens,
      (select count(*)::integer from user_group_member where user_id = u.id) as groups,
      array(select persona_id from persona_user where user_id = u.id order by 1) as shares,
      json_build_object(
        'agents', array(select id from persona where owner_id = u.id order by 1),
        'tools', array(select id from tool where user_id = u.id order by 1),
        'oauth_configs', array(select id from oauth_config where owner_id = u.id order by 1),
        'mcp_servers', array(select id from mcp_server where owner_id = u.id order by 1),
        'user_files', array(select id from user_file where owner_id = u.id order by id collate "C")) as owned
    from user_account u where u.id = ${id}::uuid`.execute(db)
  const [plan] = rows
  if (plan === undefined) throw new Refusal(`there is no user ${user}`)
  const owned = Object.entries(plan.owned).filter(([, ids]) => ids.length > 0)
  if (owned.length > 0 && heirId === null) {
    const what = owned.map(([kind, ids]) => `${kind.replace('_', ' ')} ${ids.slice(0, 10).join(', ')}`).join('; ')
    throw new Refusal(`${plan.email} owns ${what}: say who gets it with --give-to EMAIL, or agentctl user deactivate`)
  }
  return plan
}

/** Deletes a user; what they own goes to the heir, each agent and tool with a new version. Throws `Refusal`. */
export async function deleteUser(
  database: Pick<ServiceDatabase, 'db'>,
  vault: Vault,
  user: string,
  heir?: string,
  actor: Actor = operatorActor(),
): Promise<UserDeletion> {
  return await takingAccess(database.db, async trx => {
    const { id } = await lockUser(trx, user)
    const plan = await planUserDeletion(trx, id, heir)
    const heirId = heir === undefined ? null : await userId(trx, heir)
    const agents = [...new Set([...plan.owned.agents, ...plan.shares])].sort((a, b) => a - b)
    for (const agent of agents) {
      const decide = (state: Parameters<typeof contentOf>[0]) => {
        const content = contentOf(state)
        const owner_id = content.owner_id === plan.id ? heirId : content.owner_id
        const users = content.users.filter(share => share.id !== plan.id && share.id !== owner_id)
        return { ...content, owner_id, users }
      }
      await changePersona(trx, agent, decide, actor)
    }
    for (const tool of plan.owned.tools) {
      const given = { fields: {}, columns: { user_id: heirId }, definitionFaults: [] }
      await changeTool(trx, tool, state => decideAsOperator(state, given, vault), actor)
    }
    const touched = await accessOf(trx, plan)
    if (heirId !== null) {
      await trx.updateTable('oauth_config').set({ owner_id: heirId }).where('owner_id', '=', plan.id).execute()
      await trx.updateTable('mcp_server').set({ owner_id: heirId }).where('owner_id', '=', plan.id).execute()
      await trx.updateTable('user_file').set({ owner_id: heirId }).where('owner_id', '=', plan.id).execute()
    }
    for (const table of ['token', 'user_group_member', 'document_set_user'] as const) {
      await sql`delete from ${sql.table(table)} where user_id = ${plan.id}::uuid`.execute(trx)
    }
    await trx.deleteFrom('user_account').where('id', '=', plan.id).execute()
    await recordAccess(trx, actor, touched)
    return plan
  })
}

/** The events of a user's deletion: their own, and those of what they own, belong to and hold. */
async function accessOf(trx: Transaction<Database>, { id, email, owned }: UserDeletion): Promise<AccessChange[]> {
  const { rows } = await sql<Pick<AccessChange, 'kind' | 'subject'>>`
    select 'token' as kind, id::text as subject from token where user_id = ${id}::uuid
    union all select 'group', user_group_id::text from user_group_member where user_id = ${id}::uuid
    union all select 'document_set', document_set_id::text from document_set_user where user_id = ${id}::uuid`.execute(
    trx,
  )
  const actions: Partial<Record<AccessChange['kind'], string>> = { token: 'deleted', group: 'member removed' }
  return [
    { kind: 'user', subject: id, action: 'deleted', person: email },
    ...rows.map(row => ({ ...row, action: actions[row.kind] ?? 'changed', person: email })),
    ...owned.oauth_configs.map(id => ({ kind: 'oauth_config' as const, subject: String(id), action: 'changed' })),
    ...owned.mcp_servers.map(server => ({ kind: 'mcp_server' as const, subject: String(server), action: 'changed' })),
    ...owned.user_files.map(file => ({ kind: 'user_file' as const, subject: file, action: 'changed' })),
  ]
}
