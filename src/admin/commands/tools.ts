import { bigIntSteps } from '../../schema/exact-json.js'
import { inOneGo } from '../../schema/steps.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { toFunctions } from '../../tool/definition/index.js'
import { counted, countedAll } from '../counts.js'
import { deleteTool, planToolDeletion } from '../deletion.js'
import { Refusal } from '../refusal.js'
import { definitionUse, listTools, resourceId, showTool, toolName } from '../resources.js'
import { readGivenSource, readGivenText, type Source } from '../source.js'
import { showRecord } from './agents.js'
import { deleteAsked } from './asking.js'
import {
  asOfOption,
  type Call,
  type Command,
  DELETE_OPTIONS,
  type OptionSpec,
  PLAN_OPTIONS,
  SHOW_OPTIONS,
  UsageError,
} from './command.js'
import { listCommand } from './list.js'
import { applyEntry } from './organisation.js'

const CONTENT_OPTIONS = {
  'display-name': { type: 'string', description: 'The name for people.' },
  description: { type: 'string', description: 'What the tool does.' },
  owner: { type: 'string', value: 'EMAIL', description: 'The user who owns it.' },
  'header-file': {
    type: 'string',
    value: 'FILE',
    description: 'Headers with their secrets, one "Name: value" a line.',
  },
  'headers-stdin': { type: 'boolean', description: 'The same from standard input.' },
  ...PLAN_OPTIONS,
} as const satisfies Record<string, OptionSpec>

const SECRETS =
  'Header values are secrets and never taken from the arguments, which other users of the machine can read.'

export const toolCommands: Command[] = [
  listCommand({
    name: 'tool list',
    summary: 'Lists the tools.',
    columns: [
      { field: 'id', title: 'ID', whole: true },
      { field: 'name', title: 'NAME' },
      { field: 'kind', title: 'KIND' },
      { field: 'owner', title: 'OWNER' },
      { field: 'enabled', title: 'STATE', show: tool => (tool.enabled ? 'enabled' : 'disabled') },
      { field: 'headers', title: 'HEADERS' },
      { field: 'agents', title: 'AGENTS' },
      { field: 'version', title: 'VERSION' },
    ],
    rows: async (call, selection) => await listTools((await call.database()).db, selection),
  }),
  {
    name: 'tool show',
    summary: 'Shows one tool with its definition; secrets as masks.',
    positionals: ['TOOL'],
    options: {
      'as-functions': { type: 'boolean', description: 'Show, as JSON, the functions that a model is given.' },
      ...SHOW_OPTIONS,
    },
    run: showCommand,
  },
  {
    name: 'tool create',
    summary: 'Makes a custom tool from an OpenAPI 3 document.',
    positionals: [],
    options: {
      definition: { type: 'string', value: 'FILE', required: true, description: 'The definition, JSON or YAML.' },
      name: { type: 'string', description: 'Default: the title of the definition.' },
      ...CONTENT_OPTIONS,
      'passthrough-auth': { type: 'boolean', description: "Pass the person's own authentication on." },
    },
    details: SECRETS,
    run: createCommand,
  },
  {
    name: 'tool update',
    summary: 'Changes what is named of a custom tool; the rest stays.',
    positionals: ['TOOL'],
    options: {
      definition: { type: 'string', value: 'FILE', description: 'The definition, JSON or YAML.' },
      name: { type: 'string', description: 'A new name.' },
      ...CONTENT_OPTIONS,
      'passthrough-auth': {
        type: 'string',
        value: 'on|off',
        choices: ['on', 'off'],
        description: "Pass the person's own authentication on.",
      },
      enabled: { type: 'string', value: 'on|off', choices: ['on', 'off'], description: 'Whether agents may use it.' },
    },
    details: `Headers that are given replace all of its headers.\n${SECRETS}`,
    run: updateCommand,
  },
  {
    name: 'tool delete',
    summary: 'Deletes a tool with its secrets, and takes it out of every agent.',
    positionals: ['TOOL'],
    options: DELETE_OPTIONS,
    run: deleteCommand,
  },
]

async function showCommand(call: Call): Promise<undefined> {
  const asOf = asOfOption(call)
  if (asOf !== undefined && call.flag('as-functions')) throw new UsageError('--as-functions excludes --at')
  const database = await call.database()
  const id = await resourceId(database.db, 'tool', call.argument(0))
  if (!call.flag('as-functions')) return showRecord(call, await showTool(database, id, asOf))
  const { definition, header_names } = await definitionUse(database.db, id)
  if (definition === null) throw new Refusal('this tool has no definition')
  call.printJson(toFunctions(inOneGo(bigIntSteps(definition)), { headerNames: header_names }))
}

async function createCommand(call: Call): Promise<number | undefined> {
  const source = await readDefinition(call, call.text('definition') ?? '')
  const name = call.text('name') ?? titleOf(source.value)
  if (name === undefined || name.length < 1 || name.length > 255)
    throw new UsageError('--name must have 1 to 255 characters')
  const headers = await givenHeaders(call)
  const entry = {
    name,
    ...givenTexts(call),
    definition: source.value,
    ...(headers.length > 0 && { custom_headers: headers }),
    passthrough_auth: call.flag('passthrough-auth'),
  }
  return await applyEntry(call, 'tools', entry, ([field, ...loc]) =>
    field === 'definition' ? source.lineOf(loc) : undefined,
  )
}

async function updateCommand(call: Call): Promise<number | undefined> {
  const file = call.text('definition')
  const source = file === undefined ? undefined : await readDefinition(call, file)
  const { db } = await call.database()
  const id = await resourceId(db, 'tool', call.argument(0))
  const givesHeaders = call.flag('headers-stdin') || call.text('header-file') !== undefined
  const switches = { passthrough_auth: call.text('passthrough-auth'), enabled: call.text('enabled') }
  const entry = {
    id,
    name: call.text('name') ?? (await toolName(db, id)),
    ...givenTexts(call),
    ...(source && { definition: source.value }),
    ...(givesHeaders && { custom_headers: await givenHeaders(call) }),
    ...Object.fromEntries(
      Object.entries(switches).flatMap(([field, value]) => (value === undefined ? [] : [[field, value === 'on']])),
    ),
  }
  return await applyEntry(call, 'tools', entry, ([field, ...loc]) =>
    field === 'definition' ? source?.lineOf(loc) : undefined,
  )
}

async function readDefinition(call: Call, file: string): Promise<Source> {
  if (call.flag('headers-stdin') && (file === '-' || call.text('header-file') !== undefined)) {
    throw new UsageError('--headers-stdin excludes --header-file and a definition from standard input')
  }
  return await readGivenSource(file)
}

function givenTexts(call: Call): Record<string, string> {
  const texts = {
    display_name: call.text('display-name'),
    description: call.text('description'),
    owner: call.text('owner'),
  }
  return Object.fromEntries(Object.entries(texts).filter((entry): entry is [string, string] => entry[1] !== undefined))
}

function titleOf(definition: unknown): string | undefined {
  const info = isJsonObject(definition) ? definition.info : undefined
  const title = isJsonObject(info) ? info.title : undefined
  return typeof title === 'string' ? title.slice(0, 255) : undefined
}

async function givenHeaders(call: Call): Promise<{ key: string; value: string }[]> {
  const file = call.flag('headers-stdin') ? '-' : call.text('header-file')
  const text = file === undefined ? '' : await readGivenText(file)
  return text.split(/\r?\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.startsWith('#')) return []
    const colon = line.indexOf(':')
    // The line itself may be a secret: it is not repeated.
    if (colon < 1) throw new Refusal(`line ${index + 1} of the headers has not the form "Name: value"`)
    return { key: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() }
  })
}

async function deleteCommand(call: Call): Promise<number | undefined> {
  const database = await call.database()
  const goes = await planToolDeletion(database.db, await resourceId(database.db, 'tool', call.argument(0)))
  const what = `tool ${goes.id} ${goes.name}`
  const lines = [`${what} would be deleted${countedAll(', with ', { header: goes.headers })}`]
  if (goes.agents.length > 0) {
    lines.push(
      `${counted(goes.agents.length, 'agent')} would lose it, each with a new version: ${goes.agents.join(', ')}`,
    )
  }
  return await deleteAsked(call, what, { goes, lines }, async () => await deleteTool(database, goes.id, call.actor))
}
