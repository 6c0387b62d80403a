import type { Loc } from '../../errors.js'
import { parseExact, withBigInts } from '../../schema/exact-json.js'
import { isJsonObject } from '../../schema/vocabulary.js'
import {
  type CheckOptions,
  checkDefinition,
  checkForTarget,
  completeDefinition,
  definitionLimitsOf,
  type Edit,
  functionsFor,
  TARGETS,
  type Target,
  toFunctions,
} from '../../tool/definition/index.js'
import { type Impact, impactOf } from '../../tool/impact.js'
import { counted, countedAll } from '../counts.js'
import { deleteTool, planToolDeletion } from '../deletion.js'
import { editedText } from '../edited-text.js'
import { type FileFinding, githubLines, sarifOf } from '../finding-formats.js'
import { placeText, Refusal } from '../refusal.js'
import { definitionUse, listTools, resourceId, showTool, toolName } from '../resources.js'
import { parseSource, readSource, readText, type Source, writeText } from '../source.js'
import { showRecord } from './agents.js'
import { deleteAsked } from './asking.js'
import {
  asOfOption,
  type Call,
  type Command,
  DELETE_OPTIONS,
  EXIT,
  JSON_OPTION,
  type OptionSpec,
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
  plan: { type: 'boolean', description: 'Only show what would change. Exit status 2 where something would.' },
} as const satisfies Record<string, OptionSpec>

const SECRETS =
  'Header values are secrets and never taken from the arguments, which other users of the machine can read.'

const TARGET_OPTION = { type: 'string', value: 'TARGET', choices: TARGETS } as const

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
      target: {
        ...TARGET_OPTION,
        description:
          'With --as-functions: names that this provider takes, and the way back to those of the definition.',
      },
      ...SHOW_OPTIONS,
    },
    details: 'TOOL is an id, or a name that only one tool has.',
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
      ...JSON_OPTION,
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
      ...JSON_OPTION,
    },
    details: `TOOL is an id, or a name that only one tool has. Headers that are given replace all of its headers.\n${SECRETS}`,
    run: updateCommand,
  },
  {
    name: 'tool delete',
    summary: 'Deletes a tool with its secrets, and takes it out of every agent.',
    positionals: ['TOOL'],
    options: DELETE_OPTIONS,
    details: 'TOOL is an id, or a name that only one tool has.',
    run: deleteCommand,
  },
  {
    name: 'validate',
    summary: 'Checks a tool definition, JSON or YAML, with the check of the service.',
    positionals: ['FILE'],
    options: {
      against: {
        type: 'string',
        value: 'TOOL',
        description: 'Say what it would change for the agents that use this tool.',
      },
      target: {
        ...TARGET_OPTION,
        description: 'Say what this provider refuses or loses, and how many tokens it costs.',
      },
      complete: { type: 'boolean', description: 'Repair it with the fewest edits, and say which they are.' },
      server: {
        type: 'string',
        value: 'URL',
        description: 'With --complete: the address where the definition names none that can be used.',
      },
      drop: {
        type: 'string',
        value: 'unsupported',
        choices: ['unsupported'],
        description: 'With --complete: leave out operations whose body is not JSON.',
      },
      output: {
        type: 'string',
        short: 'o',
        value: 'FILE',
        description:
          'With --complete: write the completed definition here, JSON or YAML as it came; - is standard output.',
      },
      sarif: { type: 'boolean', description: 'Print the findings as SARIF, for code scanning.' },
      github: { type: 'boolean', description: 'Print the findings as annotations of GitHub Actions.' },
      ...JSON_OPTION,
    },
    details:
      'FILE may be - for standard input. Needs no database unless --against is given. Exit status 1 when there are faults. ' +
      'With --complete the findings are those of the completed definition, at the lines of the text that -o writes.',
    run: validateCommand,
  },
]

async function showCommand(call: Call): Promise<undefined> {
  if (call.text('target') !== undefined && !call.flag('as-functions'))
    throw new UsageError('--target goes together with --as-functions')
  const asOf = asOfOption(call)
  if (asOf !== undefined && call.flag('as-functions')) throw new UsageError('--as-functions excludes --at')
  const database = await call.database()
  const id = await resourceId(database.db, 'tool', call.argument(0))
  if (!call.flag('as-functions')) return showRecord(call, await showTool(database, id, asOf))
  const { definition, header_names } = await definitionUse(database.db, id)
  if (definition === null) throw new Refusal('this tool has no definition')
  const functions = toFunctions(withBigInts(parseExact(definition)), { headerNames: header_names })
  const target = targetOf(call)
  call.printJson(target === undefined ? functions : functionsFor(functions, target))
}

async function createCommand(call: Call): Promise<number | undefined> {
  const source = readDefinition(call, call.text('definition') ?? '')
  const name = call.text('name') ?? titleOf(source.value)
  if (name === undefined || name.length < 1 || name.length > 255)
    throw new UsageError('--name must have 1 to 255 characters')
  const headers = givenHeaders(call)
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
  const source = file === undefined ? undefined : readDefinition(call, file)
  const { db } = await call.database()
  const id = await resourceId(db, 'tool', call.argument(0))
  const givesHeaders = call.flag('headers-stdin') || call.text('header-file') !== undefined
  const switches = { passthrough_auth: call.text('passthrough-auth'), enabled: call.text('enabled') }
  const entry = {
    id,
    name: call.text('name') ?? (await toolName(db, id)),
    ...givenTexts(call),
    ...(source && { definition: source.value }),
    ...(givesHeaders && { custom_headers: givenHeaders(call) }),
    ...Object.fromEntries(
      Object.entries(switches).flatMap(([field, value]) => (value === undefined ? [] : [[field, value === 'on']])),
    ),
  }
  return await applyEntry(call, 'tools', entry, ([field, ...loc]) =>
    field === 'definition' ? source?.lineOf(loc) : undefined,
  )
}

function readDefinition(call: Call, file: string): Source {
  if (call.flag('headers-stdin') && (file === '-' || call.text('header-file') !== undefined)) {
    throw new UsageError('--headers-stdin excludes --header-file and a definition from standard input')
  }
  return readSource(file)
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

function givenHeaders(call: Call): { key: string; value: string }[] {
  const file = call.flag('headers-stdin') ? '-' : call.text('header-file')
  return (file === undefined ? '' : readText(file)).split(/\r?\n/).flatMap((line, index) => {
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

async function validateCommand(call: Call): Promise<number | undefined> {
  requireTogether(call)
  const against = call.text('against')
  const use = against === undefined ? undefined : await useOf(call, against)
  const given = readSource(call.argument(0))
  const options = {
    at: ['definition'],
    limits: definitionLimitsOf(call.config.limits),
    ...(use && { headerNames: use.header_names }),
  }
  const completion = call.flag('complete') ? completed(call, given, options) : undefined
  const source = completion?.source ?? given
  const target = targetOf(call)
  const { check, report } =
    target === undefined
      ? { check: checkDefinition(source.value, options), report: undefined }
      : checkForTarget(source.value, target, options)
  if (completion && check.ok) writeCompleted(call, completion.source.text ?? '')
  const located = <Found extends { loc: Loc }>(found: Found) => ({
    line: source.lineOf(found.loc.slice(1)),
    ...found,
    loc: found.loc.slice(1),
  })
  const faults = check.ok ? [] : check.faults.map(located)
  const warnings = check.warnings.map(located)
  const impact = use && check.ok ? await impactOf(use, source.value) : undefined
  const findings: FileFinding[] = [
    ...faults.map(({ line, msg, type }) => ({ level: 'error' as const, line, msg, type })),
    ...warnings.map(({ line, msg, type }) => ({ level: 'warning' as const, line, msg, type })),
  ]
  const status = check.ok ? EXIT.ok : EXIT.refused
  // What was written to standard output is the definition: nothing else may stand there.
  if (call.text('output') === '-') {
    for (const { level, line, msg, type } of findings) call.remark(`line ${line}: ${level}: ${msg} (${type})`)
  } else if (call.flag('sarif')) {
    call.printJson(sarifOf(call.argument(0), findings))
  } else if (call.flag('github')) {
    for (const line of githubLines(call.argument(0), findings)) call.print(line)
  } else if (call.json) {
    call.printJson({
      ok: check.ok,
      ...(check.ok && { methods: check.methods }),
      faults,
      warnings,
      ...(completion && { edits: completion.edits.map(shownEdit), dropped: completion.dropped }),
      ...(report && { target: report }),
      ...(impact && { impact }),
    })
  } else {
    if (completion) printEdits(call, completion)
    const rows = [
      ...faults.map(fault => ['fault', fault] as const),
      ...warnings.map(warning => ['warning', warning] as const),
    ]
    call.printTable(
      rows.map(([kind, { line, loc, msg, type }]) => [`line ${line}`, kind, placeText(loc), msg, `(${type})`]),
      [0, 1, 2, 3],
    )
    if (check.ok) printMethods(call, check.methods)
    if (report)
      call.print(
        `about ${counted(report.tokens, 'token')} in every request (${report.target}, rules of ${report.as_of})`,
      )
    if (impact) printImpact(call, impact)
  }
  return status
}

/** What would be without effect is a mistake. */
function requireTogether(call: Call): void {
  const alone = ['server', 'drop', 'output'].find(name => call.text(name) !== undefined)
  if (alone !== undefined && !call.flag('complete')) throw new UsageError(`--${alone} goes together with --complete`)
  const forms = ['json', 'sarif', 'github'].filter(name => call.flag(name))
  if (forms.length > 1) throw new UsageError(`--${forms[0]} excludes --${forms[1]}`)
  const server = call.text('server')
  if (server !== undefined && !(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
}

function targetOf(call: Call): Target | undefined {
  return TARGETS.find(each => each === call.text('target'))
}

function completed(call: Call, given: Source, options: CheckOptions) {
  const server = call.text('server')
  const { definition, edits, dropped } = completeDefinition(given.value, {
    ...options,
    ...(server !== undefined && { server }),
    dropsUnsupported: call.text('drop') === 'unsupported',
  })
  return { source: parseSource(editedText(given.text ?? '', edits, definition)), edits, dropped }
}

/** Without `-o` the completed definition is only judged. */
function writeCompleted(call: Call, text: string): void {
  const file = call.text('output')
  if (file === undefined) return
  if (file === '-') {
    call.printExact(text.trimEnd())
    return
  }
  writeText(file, text)
  call.remark(`wrote ${file}`)
}

function shownEdit({ op, path, type, msg }: Edit) {
  return { op, loc: path, type, msg }
}

function printEdits(call: Call, { edits, dropped }: { edits: readonly Edit[]; dropped: readonly unknown[] }): void {
  call.printTable(
    edits.map(({ op, path, msg, type }) => [op, placeText(path), msg, `(${type})`]),
    [0, 1, 2],
  )
  call.print(
    counted(edits.length, 'edit') + (dropped.length === 0 ? '' : `, ${counted(dropped.length, 'operation')} left out`),
  )
}

/** `tool:7` is a tool as `audit list` names it. */
async function useOf(call: Call, tool: string) {
  const { db } = await call.database()
  return await definitionUse(db, await resourceId(db, 'tool', tool.replace(/^tool:/, '')))
}

function printMethods(
  call: Call,
  methods: readonly { name: string; method: string; path: string; summary: string }[],
): void {
  call.print(`${counted(methods.length, 'method')}:`)
  call.printTable(methods.map(({ name, method, path, summary }) => [`  ${name}`, method.toUpperCase(), path, summary]))
}

const CLASS_COLOUR = { breaking: 'red', unknown: 'yellow', safe: 'green' } as const

function printImpact(call: Call, { changes, agents }: Impact): void {
  if (changes.length === 0) call.print('No change for a model.')
  for (const change of changes) {
    const word = { text: change.class.padEnd(8), colour: CLASS_COLOUR[change.class] }
    call.print(word, `  ${change.operation}  ${change.msg}`)
  }
  call.print(`Used by ${agents.ids.length === 0 ? 'no agent' : `the agents ${agents.ids.join(', ')}`}.`)
}
