import type { Command } from 'commander'
import { parseBigInts, stringifyExact } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { toFunctions } from '../../tool/definition/index.js'
import { Refusal } from '../refusal.js'
import { definitionUse, listAgents, listTools, resourceId, showAgent, showTool } from '../resources.js'
import { readGivenSource, readGivenText } from '../source.js'
import { asOfOption, type Call, type CommandLine, collected, UsageError } from './command.js'
import { applyEntry, shortened } from './organisation.js'

const AT = 'as it was in this version, or at this time (RFC 3339, UTC without an offset)'
const PLAN = 'only show what would change; exit status 2 where something would'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change them.')
  const list = { effect: 'reads', summary: 'Lists the agents.', example: 'agentctl agent list --json' } as const
  line
    .add(agent, 'list', list, async call => {
      call.list(await listAgents((await call.database()).db, call.flag('deleted')), {
        ID: one => one.id,
        NAME: one => one.name,
        OWNER: one => one.owner,
        ACCESS: one => (one.is_public ? 'public' : 'private'),
        VERSION: one => one.version,
        STATE: one => (one.deleted ? 'deleted' : one.builtin_persona ? 'built in' : ''),
      })
      return undefined
    })
    .option('--deleted', 'deleted ones as well')
    .option('--json', 'print JSON')
  const show = {
    effect: 'reads',
    summary: 'Shows one agent.\nAGENT is an id, or a name that only one agent has.',
    example: 'agentctl agent show 12 --at 2026-01-31',
  } as const
  line
    .add(agent, 'show <AGENT>', show, async call => {
      const asOf = asOfOption(call)
      const database = await call.database()
      showRecord(call, await showAgent(database, await resourceId(database.db, 'persona', call.argument(0)), asOf))
      return undefined
    })
    .option('--at <VERSION|DATE>', AT)
    .option('--json', 'print JSON')
  const create = {
    effect: 'writes',
    summary: 'Makes an agent.\nIts other fields, and shares, are the business of apply.',
    example: 'agentctl agent create Support --owner bob@example.com --tool Weather',
  } as const
  line
    .add(agent, 'create <NAME>', create, createAgent)
    .option('--owner <EMAIL>', 'the user who owns it')
    .option('--description <TEXT>', 'what it is for')
    .option('--system-prompt <TEXT>', 'the instructions it starts with')
    .option('--tool <TOOL>', 'a tool by id or name; may be repeated', collected)
    .option('--public', 'everybody may use it, not only its owner and those it is shared with')
    .option('--plan', PLAN)
    .option('--json', 'print JSON')
}

export function addToolCommands(program: Command, line: CommandLine): void {
  const tool = program.command('tool').description('Tools: apply and the HTTP operations change them.')
  const list = { effect: 'reads', summary: 'Lists the tools.', example: 'agentctl tool list' } as const
  line
    .add(tool, 'list', list, async call => {
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
      return undefined
    })
    .option('--json', 'print JSON')
  const show = {
    effect: 'reads',
    summary: 'Shows one tool with its definition; secrets as masks.\nTOOL is an id, or a name that only one tool has.',
    example: 'agentctl tool show Weather --as-functions',
  } as const
  line
    .add(tool, 'show <TOOL>', show, showToolCommand)
    .option('--as-functions', 'show, as JSON, the functions that a model is given')
    .option('--at <VERSION|DATE>', AT)
    .option('--json', 'print JSON')
  const create = {
    effect: 'writes',
    summary: [
      'Makes a custom tool from an OpenAPI 3 document.',
      'Header values are secrets: they come from a file or standard input, never from the arguments.',
    ].join('\n'),
    example: 'agentctl tool create --definition weather.yaml --header-file -',
  } as const
  line
    .add(tool, 'create', create, createTool)
    .requiredOption('--definition <FILE>', 'the definition, JSON or YAML; - is standard input')
    .option('--name <NAME>', 'default: the title of the definition')
    .option('--display-name <NAME>', 'the name for people')
    .option('--description <TEXT>', 'what the tool does')
    .option('--owner <EMAIL>', 'the user who owns it')
    .option('--header-file <FILE>', 'headers, one "Name: value" a line; - is standard input')
    .option('--passthrough-auth', "pass the person's own authentication on")
    .option('--plan', PLAN)
    .option('--json', 'print JSON')
}

/** The options that were given, under the names that documents have. */
function givenTexts(call: Call, fields: Readonly<Record<string, string>>): Record<string, string> {
  const given = Object.entries(fields).map(([field, option]) => [field, call.text(option)] as const)
  return Object.fromEntries(given.filter((entry): entry is [string, string] => entry[1] !== undefined))
}

async function createAgent(call: Call): Promise<number | undefined> {
  // As documents refer to rows: a number is an id, a text a name.
  const tools = call.texts('tool').map(text => (/^\d{1,10}$/.test(text) ? Number(text) : text))
  const entry = {
    name: call.argument(0),
    ...givenTexts(call, { owner: 'owner', description: 'description', system_prompt: 'system-prompt' }),
    ...(call.flag('public') && { is_public: true }),
    ...(tools.length > 0 && { tools }),
  }
  return await applyEntry(call, 'agents', entry, () => undefined)
}

async function showToolCommand(call: Call): Promise<undefined> {
  const asOf = asOfOption(call)
  const asFunctions = call.flag('as-functions')
  if (asOf !== undefined && asFunctions) throw new UsageError('--as-functions excludes --at')
  const database = await call.database()
  const id = await resourceId(database.db, 'tool', call.argument(0))
  if (!asFunctions) return showRecord(call, await showTool(database, id, asOf))
  const { definition, header_names } = await definitionUse(database.db, id)
  if (definition === null) throw new Refusal('this tool has no definition')
  call.printJson(toFunctions(parseBigInts(definition), { headerNames: header_names }))
}

async function createTool(call: Call): Promise<number | undefined> {
  const file = call.text('definition') ?? ''
  const headerFile = call.text('header-file')
  if (file === '-' && headerFile === '-') throw new UsageError('--definition and --header-file cannot both be -')
  const source = await readGivenSource(file)
  const name = call.text('name') ?? titleOf(source.value)
  if (name === undefined || name.length < 1 || name.length > 255)
    throw new UsageError('--name must have 1 to 255 characters')
  const headers = headerFile === undefined ? [] : headersOf(await readGivenText(headerFile))
  const entry = {
    name,
    ...givenTexts(call, { display_name: 'display-name', description: 'description', owner: 'owner' }),
    definition: source.value,
    ...(headers.length > 0 && { custom_headers: headers }),
    passthrough_auth: call.flag('passthrough-auth'),
  }
  return await applyEntry(call, 'tools', entry, ([field, ...loc]) =>
    field === 'definition' ? source.lineOf(loc) : undefined,
  )
}

function titleOf(definition: unknown): string | undefined {
  const info = isJsonObject(definition) ? definition.info : undefined
  const title = isJsonObject(info) ? info.title : undefined
  return typeof title === 'string' ? title.slice(0, 255) : undefined
}

function headersOf(text: string): { key: string; value: string }[] {
  return text.split(/\r?\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.startsWith('#')) return []
    const colon = line.indexOf(':')
    // The line itself may be a secret: it is not repeated.
    if (colon < 1) throw new Refusal(`line ${index + 1} of the headers has not the form "Name: value"`)
    return { key: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() }
  })
}

/** A record for people: one field a line, texts of several lines below their name. */
function showRecord(call: Call, record: Record<string, unknown>): undefined {
  call.answer(record, () => {
    for (const [field, value] of Object.entries(record)) {
      const text =
        typeof value === 'string'
          ? value
          : isJsonObject(value)
            ? stringifyExact(value, 2)
            : shortened(value, Number.POSITIVE_INFINITY)
      if (text.includes('\n')) {
        call.print(`${field}:`)
        call.printIndented(text)
      } else call.print(`${field}: ${text}`)
    }
  })
}
