import { type Kysely, sql } from 'kysely'
import type { Database } from '../db/tables.js'
import { COLUMNS, type PersonaContent, RELATIONS } from '../persona/fields.js'
import { personaState } from '../persona/state.js'
import { parseExact } from '../schema/exact-json.js'
import { inOneSnapshot } from '../updates/read.js'
import { headerVariables, placeholder } from './apply/placeholders.js'
import { readSection } from './apply/records.js'
import { inWords, readReferences } from './apply/words.js'

/**
 * The organisation as a document that `apply` takes back with an empty plan: every row with its id, references by
 * name or email, a variable in the place of each secret. Tokens, history and versions are not part of it.
 */
export async function exportOrganisation(db: Kysely<Database>): Promise<Record<string, unknown>> {
  // One snapshot for all lists: without it, what changes meanwhile could leave references to rows that are not there.
  return await inOneSnapshot({ db }, async trx => ({
    version: 1,
    users: await readSection(trx, 'users'),
    groups: await groups(trx),
    labels: await readSection(trx, 'labels'),
    oauth_configs: await readSection(trx, 'oauth_configs'),
    mcp_servers: await readSection(trx, 'mcp_servers'),
    cc_pairs: await readSection(trx, 'cc_pairs'),
    federated_connectors: await readSection(trx, 'federated_connectors'),
    document_sets: await documentSets(trx),
    user_files: await readSection(trx, 'user_files'),
    tools: await exportTools(trx),
    agents: await exportAgents(trx),
  }))
}

async function groups(db: Kysely<Database>) {
  const people = (isManager: boolean) => sql`array(
    select u.email from user_group_member m join user_account u on u.id = m.user_id
    where m.user_group_id = g.id and m.is_manager = ${isManager} order by 1)`
  const { rows } = await sql<Record<string, unknown>>`
    select g.id, g.name, g.permissions, ${people(false)} as members, ${people(true)} as managers
    from user_group g order by id`.execute(db)
  return rows
}

async function documentSets(db: Kysely<Database>) {
  const { rows } = await sql<Record<string, unknown>>`
    select s.id, s.name, s.description, s.is_public, s.is_up_to_date,
      array(select u.email from document_set_user m join user_account u on u.id = m.user_id
            where m.document_set_id = s.id order by 1) as users,
      array(select g.name from document_set_group m join user_group g on g.id = m.user_group_id
            where m.document_set_id = s.id order by 1) as groups,
      coalesce((select json_agg(coalesce(to_json(c.name), json_build_object('id', c.id)) order by c.id)
                from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id
                where m.document_set_id = s.id), '[]') as cc_pairs,
      coalesce((select json_agg(json_build_object('connector', f.name, 'entities', m.entities) order by f.id)
                from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
                where m.document_set_id = s.id), '[]') as federated_connectors
    from document_set s order by s.id`.execute(db)
  return rows
}

interface ToolRow extends Record<string, unknown> {
  id: number
  definition: string | null
  headers: string[]
}

/** The entries of all tools, or of one. */
export async function exportTools(db: Kysely<Database>, id: number | null = null) {
  const { rows } = await sql<ToolRow>`
    select t.id, t.name, t.display_name, t.description, t.in_code_tool_id,
      (select email from user_account where id = t.user_id) as owner, t.passthrough_auth,
      (select name from mcp_server where id = t.mcp_server_id) as mcp_server,
      (select name from oauth_config where id = t.oauth_config_id) as oauth_config, t.enabled, t.chat_selectable,
      t.agent_creation_selectable, t.default_enabled, d.content::text as definition,
      array(select name from tool_header where tool_id = t.id order by position) as headers
    from tool t left join tool_definition d on d.hash = t.definition_hash
    where ${id}::integer is null or t.id = ${id}::integer order by t.id`.execute(db)
  return rows.map(({ definition, headers, ...columns }) => {
    const variables = headerVariables(columns.id, headers)
    const custom_headers = headers.map((key, index) => ({ key, value: placeholder(variables[index] ?? '') }))
    return { ...columns, ...(definition !== null && { definition: parseExact(definition) }), custom_headers }
  })
}

/** The entries of all agents, or of one. */
export async function exportAgents(db: Kysely<Database>, id: number | null = null) {
  const refer = await readReferences(db)
  const { rows } = await sql<{ state: PersonaContent & { id: number } }>`
    select ${personaState(sql`null::uuid`)} as state from persona p
    where ${id}::integer is null or p.id = ${id}::integer order by p.id`.execute(db)
  const fields = [...COLUMNS, ...RELATIONS].map(([name]) => name)
  return rows.map(({ state }) => ({
    id: state.id,
    ...Object.fromEntries(fields.map(name => inWords(name, state[name], refer))),
  }))
}
