import type { Command } from 'commander'
import { parseBigInts, stringifyExact } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { toFunctions } from '../../tool/definition/index.js'
import type { Header } from '../../tool/headers.js'
import { Refusal } from '../refusal.js'
import { listAgents, listTools, resourceId, showAgent, showTool } from '../resources.js'
import type { Call, CommandLine } from './command.js'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change them.')
  line
    .add(agent, 'list', '--json', listAgentsCommand)
    .description('Lists the agents.')
    .option('--deleted', 'deleted ones as well')
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

async function listAgentsCommand(call: Call, { deleted = false }: { deleted?: boolean }): Promise<undefined> {
  call.list(await listAgents((await call.database()).db, deleted), {
    ID: one => one.id,
    NAME: one => one.name,
    OWNER: one => one.owner,
    ACCESS: one => (one.is_public ? 'public' : 'private'),
    VERSION: one => one.version,
    STATE: one => (one.deleted ? 'deleted' : one.builtin_persona ? 'built in' : ''),
  })
}

async function showAgentCommand(call: Call, _: object, name: string): Promise<undefined> {
  const { db } = await call.database()
  showRecord(call, await showAgent(db, await resourceId(db, 'persona', name)))
}

async function listToolsCommand(call: Call): Promise<undefined> {
  call.list(await listTools((await call.database()).db), {
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
  const { db } = await call.database()
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
        call.printIndented(text)
      } else call.print(`${field}: ${text}`)
    }
  })
}
