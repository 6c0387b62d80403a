import { type Kysely, sql, type Transaction } from 'kysely'
import { OPERATOR } from '../auth/viewer.js'
import type { Database, ResourceKind } from '../db/tables.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { InvalidRequest, VersionGone, VersionNotFound } from '../errors.js'
import type { PersonaContent } from '../persona/fields.js'
import { pastContent } from '../persona/past.js'
import { personaResource } from '../persona/resource.js'
import { contentOf } from '../persona/rules.js'
import { parseExact } from '../schema/exact-json.js'
import { COLUMNS as TOOL_COLUMNS } from '../tool/fields.js'
import { toolResource } from '../tool/resource.js'
import { shownHeaders } from '../tool/rules.js'
import type { ToolState } from '../tool/snapshot.js'
import { type AsOf, readPastOf } from '../updates/past.js'
import { inOneSnapshot } from '../updates/read.js'
import { definitionTexts } from './history.js'
import { Refusal } from './refusal.js'

export interface ListedAgent {
  id: number
  name: string
  owner: string | null
  is_public: boolean
  deleted: boolean
  builtin_persona: boolean
  version: number
}

/** The agents by id; deleted ones only when asked for. */
export async function listAgents(db: Kysely<Database>, withDeleted: boolean): Promise<ListedAgent[]> {
  const { rows } = await sql<ListedAgent>`
    select p.id, p.name, u.email as owner, p.is_public, p.deleted, p.builtin_persona, p.version
    from persona p left join user_account u on u.id = p.owner_id
    where ${withDeleted} or not p.deleted order by id`.execute(db)
  return rows
}

/** The id of an agent or tool that is named by its id, or by its name where only one has it. Throws `Refusal`. */
export async function resourceId(db: Kysely<Database>, kind: ResourceKind, text: string): Promise<number> {
  const noun = kind === 'persona' ? 'agent' : 'tool'
  if (/^[1-9]\d{0,9}$/.test(text) && Number(text) <= 2_147_483_647) return Number(text)
  const alive = kind === 'persona' ? sql`not deleted` : sql`true`
  const { rows } = await sql<{ id: number }>`
    select id from ${sql.table(kind)} where name = ${text} and ${alive} order by id limit 11`.execute(db)
  const [row, ...others] = rows
  if (row === undefined) throw new Refusal(`there is no ${noun} ${text}`)
  if (others.length > 0) {
    throw new Refusal(`several ${noun}s have the name ${text}: say which id, ${rows.map(({ id }) => id).join(', ')}`)
  }
  return row.id
}

/**
 * One agent with everything the operator can change, people by their emails: as it is, or as it was, with its tools as they
 * were then. Throws `Refusal`, also where that is not known.
 */
export async function showAgent(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  asOf?: AsOf,
): Promise<Record<string, unknown>> {
  return await shown(database, async trx => {
    const state = await personaResource.read(trx, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no agent ${id}`)
    if (asOf === undefined) return { id, version: state.version, ...(await withNames(trx, state)) }
    const past = await readPastOf(trx, 'persona', id, asOf)
    const { text, notes } = await personaResource.pastSnapshot(trx, state, past, OPERATOR, () => undefined)
    const { tools } = JSON.parse(text.toBuffer().toString()) as { tools: unknown } // a PersonaSnapshot
    const { content } = await pastContent(trx, state, past)
    const { version, at } = past
    const shown = { id, version, at, ...(await withNames(trx, content)), tools }
    return notes.length === 0 ? shown : { ...shown, warnings: notes }
  })
}

/** Shows on one snapshot of the database. What is not known of the past is refused. */
async function shown(
  database: Pick<ServiceDatabase, 'db'>,
  show: (trx: Transaction<Database>) => Promise<Record<string, unknown>>,
): Promise<Record<string, unknown>> {
  return await inOneSnapshot(database, show).catch(error => {
    if (error instanceof VersionGone || error instanceof VersionNotFound) throw new Refusal(error.message)
    if (error instanceof InvalidRequest) throw new Refusal('--at is in the future')
    throw error
  })
}

async function withNames(db: Kysely<Database>, state: PersonaContent): Promise<Record<string, unknown>> {
  const emails = await emailsOf(db, [...state.users.map(share => share.id), state.owner_id])
  const groups = await db.selectFrom('user_group').select(['id', 'name']).execute()
  const names = new Map(groups.map(group => [group.id, group.name]))
  const { owner_id, ...content } = contentOf(state)
  return {
    ...content,
    owner: owner_id && emails.get(owner_id),
    users: state.users.map(share => ({ email: emails.get(share.id), level: share.level })),
    groups: state.groups.map(share => ({ id: share.id, name: names.get(share.id), level: share.level })),
  }
}

async function emailsOf(db: Kysely<Database>, ids: readonly (string | null)[]): Promise<ReadonlyMap<unknown, string>> {
  const { rows } = await sql<{ id: string; email: string }>`
    select id, email from user_account where id = any(${ids}::uuid[])`.execute(db)
  return new Map(rows.map(({ id, email }) => [id, email]))
}

export interface ListedTool {
  id: number
  name: string
  kind: 'custom' | 'built-in' | 'mcp'
  owner: string | null
  enabled: boolean
  headers: number
  agents: number
  version: number
}

/** The tools by id, with how many agents use each. */
export async function listTools(db: Kysely<Database>): Promise<ListedTool[]> {
  const { rows } = await sql<ListedTool>`
    select t.id, t.name, u.email as owner, t.enabled, t.version,
      case when t.in_code_tool_id is not null then 'built-in' when t.mcp_server_id is not null then 'mcp' else 'custom' end as kind,
      (select count(*)::integer from tool_header where tool_id = t.id) as headers,
      (select count(*)::integer from persona_tool l join persona p on p.id = l.persona_id and not p.deleted
       where l.tool_id = t.id) as agents
    from tool t left join user_account u on u.id = t.user_id order by id`.execute(db)
  return rows
}

/**
 * One tool with its definition, secrets as masks, and the agents that have it now: as it is, or as it was. Throws `Refusal`,
 * also where that is not known.
 */
export async function showTool(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  asOf?: AsOf,
): Promise<Record<string, unknown>> {
  return await shown(database, async trx => {
    const state = await toolResource.read(trx, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no tool ${id}`)
    const past = asOf && (await readPastOf(trx, 'tool', id, asOf))
    const { definition: hash = state.definition_hash, custom_headers, ...columns } = past?.values ?? {}
    const { user_id: owner }: Pick<ToolState, 'user_id'> = { ...state, ...columns }
    const text = (await definitionTexts(trx, [hash])).get(String(hash))
    if (hash !== null && text === undefined) throw new Refusal('the definition of that version is no longer kept')
    return {
      id,
      version: past?.version ?? state.version,
      ...(past && { at: past.at }),
      ...Object.fromEntries(TOOL_COLUMNS.map(([name]) => [name, state[name]])),
      ...columns,
      custom_headers: custom_headers ?? shownHeaders(state.headers),
      owner: owner && (await emailsOf(trx, [owner])).get(owner),
      agents: await agentsWithTool(trx, id),
      definition: text === undefined ? null : parseExact(text),
    }
  })
}

/** The agents that have a tool, with what decides on its group managers: whose they are, who attached it, and their groups. */
async function agentsWithTool(db: Kysely<Database>, id: number): Promise<object[]> {
  const { rows } = await sql<object>`
    select p.id, p.name, o.email as owner, coalesce(u.email, l.attached_by::text) as attached_by, p.is_public,
      array(select g.name from persona_group s join user_group g on g.id = s.user_group_id
            where s.persona_id = p.id order by g.name) as groups
    from persona_tool l join persona p on p.id = l.persona_id and not p.deleted
    left join user_account o on o.id = p.owner_id
    left join user_account u on u.id = l.attached_by
    where l.tool_id = ${id}::integer order by p.id`.execute(db)
  return rows
}

/** The definition of a tool as text, the names of its headers, and the agents that use it. Throws `Refusal`. */
export async function definitionUse(db: Kysely<Database>, id: number) {
  const { rows } = await sql<{ definition: string | null; header_names: string[]; ids: number[]; others: number }>`
    select d.content::text as definition, array(select name from tool_header where tool_id = t.id order by position) as header_names,
      array(select p.id from persona_tool l join persona p on p.id = l.persona_id and not p.deleted
            where l.tool_id = t.id order by p.id) as ids, 0 as others
    from tool t left join tool_definition d on d.hash = t.definition_hash where t.id = ${id}::integer`.execute(db)
  const [row] = rows
  if (row === undefined) throw new Refusal(`there is no tool ${id}`)
  return row
}
