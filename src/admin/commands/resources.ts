import type { Command } from 'commander'
import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { parseBigInts, stringifyExact } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { toFunctions } from '../../tool/definition/index.js'
import type { Header } from '../../tool/headers.js'
import { shownHeaders } from '../../tool/rules.js'
import { readToolStates } from '../apply/tools.js'
import { exportAgents, exportTools } from '../export.js'
import { Refusal } from '../refusal.js'
import { harmlessLines } from '../terminal.js'
import type { Call, CommandLine } from './command.js'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change them.')
  line.add(agent, 'list', '--json', listAgentsCommand).description('Lists the agents that are not deleted.')
  line
    .add(agent, 'show <AGENT>', '12', showAgentCommand)
    .description(
      'Shows one agent.\nAGENT is an id, or a name that only one agent has. history and rollback --plan tell of earlier versions.',
    )
}

export function addToolCommands(program: Command, line: CommandLine): void {
  const tool = program.command('tool').description('Tools: apply and the HTTP operations change them.')
  line.add(tool, 'list', '', listToolsCommand).description('Lists the tools.')
  line
    .add(tool, 'show <TOOL>', 'Weather --as-functions', showToolCommand)
    .description(
      'Shows one tool with its definition; secrets as masks.\nTOOL is an id, or a name that only one tool has.',
    )
    .option('--as-functions', 'show, as JSON, the functions that a model is given')
}

async function listAgentsCommand(call: Call): Promise<undefined> {
  const agents = (await call.db())
    .selectFrom('persona as p')
    .leftJoin('user_account as u', 'u.id', 'p.owner_id')
    .select(['p.id', 'p.name', 'u.email as owner', 'p.is_public', 'p.builtin_persona', 'p.version'])
    .where('deleted', '=', false)
    .orderBy('p.id')
  call.list(await agents.execute(), {
    ID: one => one.id,
    NAME: one => one.name,
    OWNER: one => one.owner,
    ACCESS: one => (one.is_public ? 'public' : 'private'),
    VERSION: one => one.version,
    STATE: one => (one.builtin_persona ? 'built in' : ''),
  })
}

/** Shows the version, and the entry that a document has for the agent. */
async function showAgentCommand(call: Call, _: object, name: string): Promise<undefined> {
  const db = await call.db()
  const id = await resourceId(db, 'persona', name)
  const row = await db.selectFrom('persona').select('version').where('id', '=', id).executeTakeFirst()
  showRecord(call, { ...row, ...(await exportAgents(db, id))[0] })
}

async function listToolsCommand(call: Call): Promise<undefined> {
  const tools = (await call.db())
    .selectFrom('tool as t')
    .leftJoin('user_account as u', 'u.id', 't.user_id')
    .select(['t.id', 't.name', 'u.email as owner', 't.enabled', 't.version'])
    .select([
      sql<string>`case when in_code_tool_id is not null then 'built-in' when mcp_server_id is not null then 'mcp'
        else 'custom' end`.as('kind'),
      sql<number>`(select count(*)::integer from tool_header where tool_id = t.id)`.as('headers'),
      sql<number>`(
        select count(*)::integer from persona_tool l join persona p on p.id = l.persona_id and not p.deleted
        where l.tool_id = t.id)`.as('agents'),
    ])
    .orderBy('t.id')
  call.list(await tools.execute(), {
    ID: one => one.id,
    NAME: one => one.name,
    KIND: one => one.kind,
    OWNER: one => one.owner,
    STATE: one => (one.enabled ? 'enabled' : 'disabled'),
    HEADERS: one => one.headers,
    AGENTS: one => one.agents,
    VERSION: one => one.version,
  })
}

async function showToolCommand(
  call: Call,
  { asFunctions }: { asFunctions?: boolean },
  name: string,
): Promise<undefined> {
  const db = await call.db()
  const { definition, custom_headers, ...tool } = await showTool(db, await resourceId(db, 'tool', name))
  if (!asFunctions) return showRecord(call, { ...tool, custom_headers, definition })
  if (definition === null) throw new Refusal('this tool has no definition')
  const headerNames = (custom_headers as Header[]).map(({ key }) => key)
  call.printJson(toFunctions(parseBigInts(stringifyExact(definition)), { headerNames }))
}

/** A record for people: one field a line, texts of several lines below their name. */
function showRecord(call: Call, record: Record<string, unknown>): undefined {
  call.answer(record, () => {
    for (const [field, value] of Object.entries(record)) {
      const text = typeof value === 'string' ? value : stringifyExact(value, isJsonObject(value) ? 2 : 0)
      if (text.includes('\n')) {
        call.print(`${field}:`)
        // Indented, so that no line can pass for one of ours.
        call.output.print(harmlessLines(text).replace(/^/gm, '    '))
      } else call.print(`${field}: ${text}`)
    }
  })
}

/** The id of an agent or tool that is named by its id, or by its name where only one has it. Throws `Refusal`. */
export async function resourceId(db: Kysely<Database>, kind: ResourceKind, text: string): Promise<number> {
  const noun = kind === 'persona' ? 'agent' : 'tool'
  const alive = kind === 'persona' ? sql`not deleted` : sql`true`
  const isMeant = /^[1-9]\d{0,9}$/.test(text) ? sql`id = ${text}::bigint` : sql`name = ${text} and ${alive}`
  const { rows } = await sql<{ id: number }>`
    select id from ${sql.table(kind)} where ${isMeant} order by id limit 11`.execute(db)
  const [row, ...others] = rows
  if (row === undefined) throw new Refusal(`there is no ${noun} ${text}`)
  if (others.length > 0) {
    throw new Refusal(`several ${noun}s have the name ${text}: say which id, ${rows.map(({ id }) => id).join(', ')}`)
  }
  return row.id
}

/** One tool: its version, the entry that a document has for it with masks for secrets, and the agents that have it. Throws `Refusal`. */
export async function showTool(db: Kysely<Database>, id: number): Promise<Record<string, unknown>> {
  const state = (await readToolStates(db, [id])).get(id)
  if (state === undefined) throw new Refusal(`there is no tool ${id}`)
  const [{ definition = null, ...entry } = {}] = await exportTools(db, id)
  const custom_headers = shownHeaders(state.headers)
  return { version: state.version, ...entry, custom_headers, agents: await agentsWithTool(db, id), definition }
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
