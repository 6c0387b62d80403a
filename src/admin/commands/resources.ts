import type { Command } from 'commander'
import { parseBigInts, stringifyExact } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { toFunctions } from '../../tool/definition/index.js'
import type { Header } from '../../tool/headers.js'
import { Refusal } from '../refusal.js'
import { listAgents, listTools, resourceId, showAgent, showTool } from '../resources.js'
import { readGivenSource, readGivenText } from '../source.js'
import { type Call, type CommandLine, collected, UsageError } from './command.js'
import { applyEntry, PLAN } from './organisation.js'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change them.')
  line
    .add(agent, 'list', 'reads', '--json', listAgentsCommand)
    .description('Lists the agents.')
    .option('--deleted', 'deleted ones as well')
  line
    .add(agent, 'show <AGENT>', 'reads', '12', showAgentCommand)
    .description(
      'Shows one agent.\nAGENT is an id, or a name that only one agent has. history and rollback --plan tell of earlier versions.',
    )
  line
    .add(agent, 'create <NAME>', 'writes', 'Support --owner bob@example.com --tool Weather', createAgent)
    .description('Makes an agent.\nIts other fields, and shares, are the business of apply.')
    .option('--owner <EMAIL>', 'the user who owns it')
    .option('--description <TEXT>', 'what it is for')
    .option('--system-prompt <TEXT>', 'the instructions it starts with')
    .option('--tool <TOOL>', 'a tool by id or name; may be repeated', collected)
    .option('--public', 'everybody may use it, not only its owner and those it is shared with')
    .option('--plan', PLAN)
}

export function addToolCommands(program: Command, line: CommandLine): void {
  const tool = program.command('tool').description('Tools: apply and the HTTP operations change them.')
  line.add(tool, 'list', 'reads', '', listToolsCommand).description('Lists the tools.')
  line
    .add(tool, 'show <TOOL>', 'reads', 'Weather --as-functions', showToolCommand)
    .description(
      'Shows one tool with its definition; secrets as masks.\nTOOL is an id, or a name that only one tool has.',
    )
    .option('--as-functions', 'show, as JSON, the functions that a model is given')
  line
    .add(tool, 'create', 'writes', '--definition weather.yaml --header-file -', createTool)
    .description(
      'Makes a custom tool from an OpenAPI 3 document.\n' +
        'Header values are secrets: they come from a file or standard input, never from the arguments.',
    )
    .requiredOption('--definition <FILE>', 'the definition, JSON or YAML; - is standard input')
    .option('--name <NAME>', 'default: the title of the definition')
    .option('--display-name <NAME>', 'the name for people')
    .option('--description <TEXT>', 'what the tool does')
    .option('--owner <EMAIL>', 'the user who owns it')
    .option('--header-file <FILE>', 'headers, one "Name: value" a line; - is standard input')
    .option('--passthrough-auth', "pass the person's own authentication on")
    .option('--plan', PLAN)
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

interface AgentOptions {
  owner?: string
  description?: string
  systemPrompt?: string
  tool?: string[]
  public?: true
  plan?: boolean
}

async function createAgent(call: Call, options: AgentOptions, name: string): Promise<number> {
  const { owner, description, systemPrompt: system_prompt, tool, public: is_public, plan } = options
  // As documents refer to rows: a number is an id, a text a name.
  const tools = tool?.map(text => (/^\d{1,10}$/.test(text) ? Number(text) : text))
  return await applyEntry(call, 'agents', { name, owner, description, system_prompt, is_public, tools }, plan)
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

interface ToolOptions {
  definition: string
  name?: string
  displayName?: string
  description?: string
  owner?: string
  headerFile?: string
  passthroughAuth?: boolean
  plan?: boolean
}

async function createTool(call: Call, options: ToolOptions): Promise<number> {
  const { definition: file, displayName: display_name, description, owner, headerFile, plan } = options
  if (file === '-' && headerFile === '-') throw new UsageError('--definition and --header-file cannot both be -')
  const source = await readGivenSource(file)
  const name = options.name ?? titleOf(source.value)
  if (name === undefined || name.length < 1 || name.length > 255)
    throw new UsageError('--name must have 1 to 255 characters')
  const custom_headers = headerFile === undefined ? undefined : headersOf(await readGivenText(headerFile))
  const passthrough_auth = options.passthroughAuth === true
  const entry = { name, display_name, description, owner, definition: source.value, custom_headers, passthrough_auth }
  return await applyEntry(call, 'tools', entry, plan, ([field, ...loc]) =>
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
      const text = typeof value === 'string' ? value : stringifyExact(value, isJsonObject(value) ? 2 : 0)
      if (text.includes('\n')) {
        call.print(`${field}:`)
        call.printIndented(text)
      } else call.print(`${field}: ${text}`)
    }
  })
}
