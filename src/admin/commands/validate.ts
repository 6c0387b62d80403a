import type { Fault, Loc } from '../../errors.js'
import {
  type CheckOptions,
  checkDefinition,
  completeDefinition,
  definitionLimitsOf,
  type Edit,
  GivenPlaces,
  unusableServer,
} from '../../tool/definition/index.js'
import { type Impact, impactOf } from '../../tool/impact.js'
import { counted } from '../counts.js'
import { editedText } from '../edited-text.js'
import { type FileFinding, githubLines, sarifOf } from '../finding-formats.js'
import { placeText, Refusal } from '../refusal.js'
import { definitionUse, resourceId } from '../resources.js'
import { parseSource, readGivenSource, type Source, UnreadableText, writeText } from '../source.js'
import { type Call, type Command, EXIT, JSON_OPTION, UsageError } from './command.js'

export const validateCommand: Command = {
  name: 'validate',
  summary: 'Checks a tool definition, JSON or YAML, with the check of the service.',
  positionals: ['FILE'],
  options: {
    against: {
      type: 'string',
      value: 'TOOL',
      description: 'Say what it would change for the agents that use this tool.',
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
    'With --complete the findings are those of the completed definition, at the lines of the text that -o writes, else of FILE.',
  run: validate,
}

async function validate(call: Call): Promise<number | undefined> {
  requireTogether(call)
  const against = call.text('against')
  const use = against === undefined ? undefined : await useOf(call, against)
  const given = await readAnnotated(call)
  const options = {
    at: ['definition'],
    limits: definitionLimitsOf(call.config.limits),
    ...(use && { headerNames: use.header_names }),
  }
  const completion = call.flag('complete') ? completed(call, given, options) : undefined
  const source = completion?.source ?? given
  const check = completion && !completion.check.ok ? completion.check : checkDefinition(source.value, options)
  const written = completion && writeCompleted(call, source.text ?? '', check.ok)
  // What is found stands in a text that the reader has: the one that was written, else the one that was given.
  const shown = written === undefined ? given : source
  const places = completion && written === undefined ? new GivenPlaces(given.value, completion.edits) : undefined
  const located = <Found extends { loc: Loc }>(found: Found) => {
    const place = found.loc.slice(1)
    const loc = places?.nearestTo(place) ?? place
    return { line: shown.lineOf(loc), ...found, loc }
  }
  const file = written ?? call.argument(0)
  const faults = check.ok ? [] : check.faults.map(fault => located(withRemedy(call, fault)))
  const warnings = check.warnings.map(located)
  const impact = use && check.ok ? await impactOf(use, use.definition, source.value) : undefined
  const findings: FileFinding[] = [
    ...faults.map(({ line, msg, type }) => ({ level: 'error' as const, line, msg, type })),
    ...warnings.map(({ line, msg, type }) => ({ level: 'warning' as const, line, msg, type })),
  ]
  const status = check.ok ? EXIT.ok : EXIT.refused
  // What was written to standard output is the definition: nothing else may stand there.
  if (call.text('output') === '-') {
    for (const { op, path, msg, type } of completion?.edits ?? [])
      call.remark(`${op} ${placeText(path)}: ${msg} (${type})`)
    for (const { level, line, msg, type } of findings) call.remark(`line ${line}: ${level}: ${msg} (${type})`)
  } else if (isAnnotated(call)) {
    printAnnotations(call, file, findings)
  } else if (call.json) {
    call.printJson({
      ok: check.ok,
      ...(check.ok && { methods: check.methods }),
      faults,
      warnings,
      ...(completion && { edits: completion.edits.map(shownEdit), dropped: completion.dropped }),
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
    if (impact) printImpact(call, impact)
  }
  return status
}

/** Reads the file. Where code hosts are to be told, a finding says what keeps it from being read, before `Refusal` is thrown. */
async function readAnnotated(call: Call): Promise<Source> {
  try {
    return await readGivenSource(call.argument(0))
  } catch (error) {
    if (error instanceof Refusal && isAnnotated(call)) {
      const faults = error instanceof UnreadableText ? error.faults : [{ line: undefined, msg: error.message }]
      printAnnotations(
        call,
        call.argument(0),
        faults.map(({ line = 1, msg }) => ({ level: 'error', line, type: 'text_unreadable', msg })),
      )
    }
    throw error
  }
}

function isAnnotated(call: Call): boolean {
  return call.flag('sarif') || call.flag('github')
}

/** The findings as code hosts read them. */
function printAnnotations(call: Call, file: string, findings: readonly FileFinding[]): void {
  if (call.flag('sarif')) call.printJson(sarifOf(file, findings))
  // These are meant as commands, so that they pass by what makes a line harmless; what they quote is harmless.
  else for (const line of githubLines(file, findings)) call.output.print(line)
}

/** What would be without effect is a mistake. */
function requireTogether(call: Call): void {
  const alone = ['server', 'drop', 'output'].find(name => call.text(name) !== undefined)
  if (alone !== undefined && !call.flag('complete')) throw new UsageError(`--${alone} goes together with --complete`)
  const forms = ['json', 'sarif', 'github'].filter(name => call.flag(name))
  if (call.text('output') === '-' && forms[0] !== undefined)
    throw new UsageError(`--${forms[0]} excludes --output -, as both go to standard output`)
  if (forms.length > 1) throw new UsageError(`--${forms[0]} excludes --${forms[1]}`)
  const server = call.text('server')
  if (server === undefined) return
  if (!(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
  const reason = unusableServer(server)
  if (reason !== undefined) throw new UsageError(`the address of --server ${reason}`)
}

function completed(call: Call, given: Source, options: CheckOptions) {
  const server = call.text('server')
  const { definition, edits, dropped, check } = completeDefinition(given.value, {
    ...options,
    ...(server !== undefined && { server }),
    dropsUnsupported: call.text('drop') === 'unsupported',
  })
  const source = check.ok ? parseSource(editedText(given.text ?? '', edits, definition)) : given
  return { source, edits, dropped, check }
}

/** Writes what is accepted; without `-o` it is only judged. Answers the file that was written. */
function writeCompleted(call: Call, text: string, isAccepted: boolean): string | undefined {
  const file = call.text('output')
  if (file === undefined) return undefined
  if (!isAccepted) {
    call.remark(`${file} was not written: what is left to mend stands at the lines of ${call.argument(0)}`)
    return undefined
  }
  if (file === '-') {
    call.printExact(text.trimEnd())
  } else {
    writeText(file, text)
    call.remark(`wrote ${file}`)
  }
  return file
}

function withRemedy(call: Call, fault: Fault): Fault {
  const canBeDropped = fault.type === 'request_body_media_type_unsupported' && call.text('drop') === undefined
  if (!call.flag('complete') || !canBeDropped) return fault
  return { ...fault, msg: `${fault.msg}; --drop unsupported leaves the operation out` }
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
