import type { Command } from 'commander'
import { sql } from 'kysely'
import type { ResourceKind } from '../../db/tables.js'
import { toFunctions } from '../../definition/index.js'
import type { Header } from '../../tool/headers.js'
import { isJsonObject } from '../../validation/vocabulary.js'
import { readReferences } from '../apply/words.js'
import { exportAgents } from '../export.js'
import { listHistory, restorePersona, restoreTool } from '../history.js'
import { EXIT, Refusal } from '../refusal.js'
import { deletionOf, NOUN, REFERENCE, resourceId, showTool } from '../resources.js'
import { harmlessLines } from '../terminal.js'
import { type Call, type CommandLine, wholeNumber } from './command.js'
import { PLAN, printOutcome } from './organisation.js'

export function addResourceCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change them.')
  line.add(agent, 'list', '--json', listAgentsCommand).description('Lists the agents that are not deleted.')
  line.add(agent, 'show <AGENT>', '12', showAgentCommand).description(`Shows one agent.\nAGENT is ${REFERENCE}.`)
  addVersionCommands(agent, line, 'persona', '12')
  const tool = program.command('tool').description('Tools: apply and the HTTP operations change them.')
  line.add(tool, 'list', '', listToolsCommand).description('Lists the tools.')
  line
    .add(tool, 'show <TOOL>', '1 --as-functions', showToolCommand)
    .description(`Shows one tool with its definition; secrets as masks.\nTOOL is ${REFERENCE}.`)
    .option('--as-functions', 'show, as JSON, the functions that a model is given')
  addVersionCommands(tool, line, 'tool', '7')
}

function addVersionCommands(parent: Command, line: CommandLine, kind: ResourceKind, example: string): void {
  const noun = NOUN[kind]
  const argument = noun.toUpperCase()
  line
    .add(
      parent,
      `history <${argument}>`,
      `${example} --limit 5`,
      (call: Call, options: { limit: number }, name: string) => historyCommand(call, kind, name, options.limit),
    )
    .description(`Lists the versions of one ${noun}, newest first.\n${argument} is ${REFERENCE}.`)
    .option('--limit <COUNT>', 'the newest COUNT', wholeNumber, 100)
  line
    .add(
      parent,
      `restore <${argument}>`,
      `${example} --version 3 --plan`,
      (call: Call, options: { version: number; plan?: boolean }, name: string) =>
        restoreCommand(call, kind, name, options.version, options.plan === true),
    )
    .description(
      'Makes a new version with the content of an old one.\n' +
        `It passes the same checks as any change. ${argument} is ${REFERENCE}.` +
        (kind === 'tool' ? ' Secrets (header values) are not restored.' : ''),
    )
    .requiredOption('--version <VERSION>', 'the old version', wholeNumber)
    .option('--plan', PLAN)
}

async function historyCommand(call: Call, kind: ResourceKind, name: string, limit: number): Promise<undefined> {
  const db = await call.db()
  const id = await resourceId(db, kind, name, true)
  const { hasMore, ...history } = await listHistory(db, kind, id, limit)
  call.answer(history, () => {
    const rows = history.versions.map(({ version, at, actor, fields }) => {
      return [version, at, actor.id === null ? actor.command : actor.email, fields]
    })
    call.printTable([['VERSION', 'TIME', 'BY', 'FIELDS'], ...rows])
  })
  if (history.deleted) call.remark(`this ${NOUN[kind]} was ${history.deleted}`)
  else if (history.kept_from > 1) call.remark(`contents are kept from version ${history.kept_from} on`)
  if (hasMore) call.remark(`there are more than ${limit}: see --limit`)
}

async function restoreCommand(call: Call, kind: ResourceKind, name: string, version: number, plan: boolean) {
  const database = await call.database()
  const id = await resourceId(database.db, kind, name, true)
  const deleted = await deletionOf(database.db, kind, id)
  const options = { plan, actor: call.actor }
  const { changes, impact, left, notes, ...result } =
    kind === 'persona'
      ? await restorePersona(database, id, version, options)
      : await restoreTool(database, await call.rightRing(), id, version, options)
  const fields = changes.map(({ field }) => field)
  call.answer({ version: result.version, fields, left, ...(notes.length > 0 && { notes }) }, () => {
    const done = fields.length > 0 ? `set back ${fields.join(', ')}` : 'nothing to set back'
    if (plan && fields.length > 0) {
      const section = kind === 'tool' ? 'tools' : 'agents'
      printOutcome(call, { section, id, name: result.name, action: 'changed', fields: changes, impact })
    } else call.print(`${NOUN[kind]} ${id} is version ${result.version}: ${done}`)
    if (deleted) call.remark(`this ${NOUN[kind]} was ${deleted}`)
    if (kind === 'tool') call.remark('secrets are not restored: the header values are those of now')
    for (const note of notes) call.remark(note)
    if (left.length > 0) call.remark(`left as now: ${left.join(', ')}`)
  })
  return plan && fields.length > 0 ? EXIT.differs : EXIT.ok
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

/** Shows the version of an agent, and its entry in a document. */
async function showAgentCommand(call: Call, _: object, name: string): Promise<undefined> {
  const db = await call.db()
  const id = await resourceId(db, 'persona', name)
  const row = await db.selectFrom('persona').select('version').where('id', '=', id).executeTakeFirst()
  showRecord(call, { ...row, ...(await exportAgents(db, await readReferences(db), id))[0] })
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
  call.printJson(toFunctions(definition, { headerNames }))
}

/** Prints a record with one field per line. Texts of several lines follow below their name. */
function showRecord(call: Call, record: Record<string, unknown>): undefined {
  call.answer(record, () => {
    for (const [field, value] of Object.entries(record)) {
      const text = typeof value === 'string' ? value : JSON.stringify(value, null, isJsonObject(value) ? 2 : 0)
      if (text.includes('\n')) {
        call.print(`${field}:`)
        // Indented, so that no line can be mistaken for output of the program.
        call.output.print(harmlessLines(text).replace(/^/gm, '    '))
      } else call.print(`${field}: ${text}`)
    }
  })
}
