import { readFileSync } from 'node:fs'
import type { ShareLevel } from '../../db/tables.js'
import type { Loc } from '../../errors.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import { checkDefinition, definitionLimitsOf, toFunctions } from '../../tool/definition/index.js'
import { type Impact, impactOf } from '../../tool/impact.js'
import { InvalidDocument, placeText, Refusal } from '../refusal.js'
import { createTool, listAgents, listTools, readToolUse, shareAgent, showAgent, showTool } from '../resources.js'
import { readSource } from '../source.js'
import { type Call, type Command, coloured, EXIT, JSON_OPTION, table, UsageError, wholeNumber } from './command.js'
import { printFaults } from './organisation.js'

const SHARE_OPTIONS = {
  user: { type: 'string', multiple: true, value: 'EMAIL', description: 'A user; may be repeated.' },
  group: { type: 'string', multiple: true, value: 'GROUP', description: 'A group by name or id; may be repeated.' },
} as const

export const resourceCommands: Command[] = [
  {
    name: 'agent list',
    summary: 'Lists the agents.',
    positionals: [],
    options: { deleted: { type: 'boolean', description: 'Deleted ones as well.' }, ...JSON_OPTION },
    run: async call => {
      const agents = await listAgents((await call.database()).db, call.flag('deleted'))
      if (call.json) call.printJson(agents)
      else {
        const rows = agents.map(agent => [
          agent.id,
          agent.name,
          agent.owner,
          agent.is_public ? 'public' : 'private',
          `version ${agent.version}`,
          agent.deleted ? 'deleted' : agent.builtin_persona ? 'built in' : '',
        ])
        call.print(table([['ID', 'NAME', 'OWNER', 'ACCESS', 'VERSION', ''], ...rows]))
      }
      return undefined
    },
  },
  {
    name: 'agent show',
    summary: 'Shows one agent.',
    positionals: ['ID'],
    options: JSON_OPTION,
    run: async call => {
      showRecord(call, await showAgent((await call.database()).db, call.id(0)))
      return undefined
    },
  },
  {
    name: 'agent share',
    summary: 'Shares an agent with users and groups.',
    positionals: ['ID'],
    options: {
      ...SHARE_OPTIONS,
      level: { type: 'string', value: 'LEVEL', description: 'viewer (default) or editor.' },
    },
    run: async call => {
      const level = call.text('level') ?? 'viewer'
      if (level !== 'viewer' && level !== 'editor') throw new UsageError(`--level is viewer or editor, not ${level}`)
      return await share(call, level)
    },
  },
  {
    name: 'agent unshare',
    summary: 'Takes shares of an agent away.',
    positionals: ['ID'],
    options: SHARE_OPTIONS,
    run: call => share(call, null),
  },
  {
    name: 'tool list',
    summary: 'Lists the tools.',
    positionals: [],
    options: JSON_OPTION,
    run: async call => {
      const tools = await listTools((await call.database()).db)
      if (call.json) call.printJson(tools)
      else {
        const rows = tools.map(tool => [
          tool.id,
          tool.name,
          tool.kind,
          tool.owner,
          tool.enabled ? 'enabled' : 'disabled',
          tool.headers,
          tool.agents,
          tool.version,
        ])
        call.print(table([['ID', 'NAME', 'KIND', 'OWNER', 'STATE', 'HEADERS', 'AGENTS', 'VERSION'], ...rows]))
      }
      return undefined
    },
  },
  {
    name: 'tool show',
    summary: 'Shows one tool with its definition; secrets as masks.',
    positionals: ['ID'],
    options: {
      'as-functions': { type: 'boolean', description: 'Show, as JSON, the functions that a model is given.' },
      ...JSON_OPTION,
    },
    run: showToolCommand,
  },
  {
    name: 'tool create',
    summary: 'Makes a custom tool from an OpenAPI 3 document.',
    positionals: [],
    options: {
      definition: { type: 'string', value: 'FILE', description: 'The definition, JSON or YAML. Required.' },
      name: { type: 'string', description: 'Default: the title of the definition.' },
      'display-name': { type: 'string', description: 'The name for people; default: the name.' },
      description: { type: 'string', description: 'What the tool does.' },
      owner: { type: 'string', value: 'EMAIL', description: 'The user who owns it.' },
      'header-file': {
        type: 'string',
        value: 'FILE',
        description: 'Headers with their secrets, one "Name: value" a line.',
      },
      'headers-stdin': { type: 'boolean', description: 'The same from standard input.' },
      'passthrough-auth': { type: 'boolean', description: "Pass the person's own authentication on." },
      ...JSON_OPTION,
    },
    details: 'Header values are secrets and never taken from the arguments, which other users of the machine can read.',
    run: createToolCommand,
  },
  {
    name: 'validate',
    summary: 'Checks a tool definition, JSON or YAML, with the check of the service.',
    positionals: ['FILE'],
    options: {
      against: {
        type: 'string',
        value: 'tool:ID',
        description: 'Say what it would change for the agents that use this tool.',
      },
      ...JSON_OPTION,
    },
    details:
      'FILE may be - for standard input. Needs no database unless --against is given. Exit status 1 when there are faults.',
    run: validateCommand,
  },
]

async function share(call: Call, level: ShareLevel | null): Promise<undefined> {
  const shares = { users: call.texts('user'), groups: call.texts('group') }
  if (shares.users.length + shares.groups.length === 0)
    throw new UsageError('name somebody: --user EMAIL or --group GROUP')
  const { version, changed } = await shareAgent(await call.database(), call.id(0), shares, level)
  call.print(changed ? `agent ${call.id(0)} is now version ${version}` : `nothing to change, version ${version}`)
  return undefined
}

/** A record for people: one field a line, texts of several lines below their name. */
function showRecord(call: Call, record: Record<string, unknown>): void {
  if (call.json) {
    call.printJson(record)
    return
  }
  for (const [field, value] of Object.entries(record)) {
    const text =
      typeof value === 'string' ? value : isJsonObject(value) ? JSON.stringify(value, null, 2) : JSON.stringify(value)
    call.print(text.includes('\n') ? `${field}:\n${text.replace(/^/gm, '    ')}` : `${field}: ${text}`)
  }
}

async function showToolCommand(call: Call): Promise<undefined> {
  const { db } = await call.database()
  if (!call.flag('as-functions')) {
    showRecord(call, await showTool(db, call.id(0)))
    return undefined
  }
  const { definition, header_names } = await readToolUse(db, call.id(0))
  if (definition === null) throw new Refusal('this tool has no definition')
  call.printJson(toFunctions(JSON.parse(definition), { headerNames: header_names }))
  return undefined
}

async function createToolCommand(call: Call): Promise<number | undefined> {
  const file = call.text('definition')
  if (file === undefined) throw new UsageError('--definition FILE is missing')
  if (call.flag('headers-stdin') && (file === '-' || call.text('header-file') !== undefined)) {
    throw new UsageError('--headers-stdin excludes --header-file and a definition from standard input')
  }
  const source = readSource(file)
  const name = call.text('name') ?? titleOf(source.value)
  if (name === undefined || name.length < 1 || name.length > 255)
    throw new UsageError('--name must have 1 to 255 characters')
  const optional = {
    display_name: call.text('display-name'),
    description: call.text('description'),
    owner: call.text('owner'),
  }
  const tool = {
    name,
    ...Object.fromEntries(Object.entries(optional).filter(([, text]) => text !== undefined)),
    definition: source.value,
    headers: givenHeaders(call),
    passthrough_auth: call.flag('passthrough-auth'),
  }
  try {
    const id = await createTool(await call.database(), await call.vault(), tool, definitionLimitsOf(call.config.limits))
    if (call.json) call.printJson({ id, name })
    else call.print(`created tool ${id} ${name}`)
    return undefined
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    printFaults(call, error, { value: source.value, lineOf: loc => source.lineOf(inDefinition(loc)) })
    return EXIT.refused
  }
}

function inDefinition(loc: Loc): Loc {
  return loc[0] === 'definition' ? loc.slice(1) : []
}

function titleOf(definition: unknown): string | undefined {
  const info = isJsonObject(definition) ? definition.info : undefined
  const title = isJsonObject(info) ? info.title : undefined
  return typeof title === 'string' ? title.slice(0, 255) : undefined
}

function givenHeaders(call: Call): { key: string; value: string }[] {
  const file = call.flag('headers-stdin') ? 0 : call.text('header-file')
  if (file === undefined) return []
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    throw new Refusal(`the headers cannot be read from ${file === 0 ? 'standard input' : file}`)
  }
  return text.split(/\r?\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.startsWith('#')) return []
    const colon = line.indexOf(':')
    // The line itself may be a secret: it is not repeated.
    if (colon < 1) throw new Refusal(`line ${index + 1} of the headers has not the form "Name: value"`)
    return { key: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() }
  })
}

async function validateCommand(call: Call): Promise<number | undefined> {
  const against = call.text('against')
  const use = against === undefined ? undefined : await readToolUse((await call.database()).db, toolOf(against))
  const source = readSource(call.argument(0))
  const check = checkDefinition(source.value, {
    at: ['definition'],
    limits: definitionLimitsOf(call.config.limits),
    ...(use && { headerNames: use.header_names }),
  })
  const located = <Found extends { loc: Loc }>(found: Found) => ({
    line: source.lineOf(found.loc.slice(1)),
    ...found,
    loc: found.loc.slice(1),
  })
  const faults = check.ok ? [] : check.faults.map(located)
  const warnings = check.warnings.map(located)
  const impact = use && check.ok ? await impactOf(use, source.value) : undefined
  if (call.json) {
    call.printJson({
      ok: check.ok,
      ...(check.ok && { methods: check.methods }),
      faults,
      warnings,
      ...(impact && { impact }),
    })
  } else {
    const rows = [
      ...faults.map(fault => ['fault', fault] as const),
      ...warnings.map(warning => ['warning', warning] as const),
    ]
    if (rows.length > 0) {
      call.print(
        table(rows.map(([kind, { line, loc, msg, type }]) => [`line ${line}`, kind, placeText(loc), msg, `(${type})`])),
      )
    }
    if (check.ok) printMethods(call, check.methods)
    if (impact) printImpact(call, impact)
  }
  return check.ok ? EXIT.ok : EXIT.refused
}

function toolOf(text: string): number {
  const [kind, id, ...rest] = text.split(':')
  if (kind !== 'tool' || id === undefined || rest.length > 0)
    throw new UsageError(`--against has the form tool:7, not ${text}`)
  return wholeNumber(id, '--against')
}

function printMethods(
  call: Call,
  methods: readonly { name: string; method: string; path: string; summary: string }[],
): void {
  call.print(`${methods.length} method${methods.length === 1 ? '' : 's'}:`)
  call.print(
    table(methods.map(({ name, method, path, summary }) => [`  ${name}`, method.toUpperCase(), path, summary])),
  )
}

const CLASS_COLOUR = { breaking: 'red', unknown: 'yellow', safe: 'green' } as const

function printImpact(call: Call, { changes, agents }: Impact): void {
  if (changes.length === 0) call.print('No change for a model.')
  for (const change of changes) {
    const word = coloured(call.output, CLASS_COLOUR[change.class], change.class.padEnd(8))
    call.print(`${word}  ${change.operation}  ${change.msg}`)
  }
  call.print(`Used by ${agents.ids.length === 0 ? 'no agent' : `the agents ${agents.ids.join(', ')}`}.`)
}
