import type { Command } from 'commander'
import { stringify } from 'yaml'
import type { Fault, Loc } from '../../errors.js'
import { numberReplacer, numberTexts, stringifyExact, withoutMarks } from '../../schema/exact-json.js'
import {
  type CheckOptions,
  checkDefinition,
  completeDefinition,
  GivenPlaces,
  unusableServer,
} from '../../tool/definition/index.js'
import { type Impact, impactOf } from '../../tool/worker/tasks.js'
import { counted, placeText } from '../refusal.js'
import { definitionUse, resourceId } from '../resources.js'
import { parseSource, readGivenSource, type Source, writeText } from '../source.js'
import { tableLines } from '../terminal.js'
import { type Call, type CommandLine, EXIT, UsageError } from './command.js'

export function addValidateCommand(program: Command, line: CommandLine): void {
  line
    .add(program, 'validate <FILE>', 'reads', 'weather.yaml --complete -o weather-completed.yaml', validateCommand)
    .description(
      'Checks a tool definition as the service does.\n' +
        'FILE is JSON or YAML; - is standard input. Needs no database without --against. Exit status 3 when there are faults.',
    )
    .option('--against <TOOL>', 'say what it would change for the agents that use this tool')
    .option('--complete', 'repair it with the fewest edits, and say which they are')
    .option('--server <URL>', 'with --complete: the address where the definition names none that can be used')
    .option('--drop-unsupported', 'with --complete: leave out operations whose body is not JSON')
    .option('-o, --output <FILE>', 'with --complete: write the completed definition here; - is standard output')
}

interface ValidateOptions {
  against?: string
  complete?: boolean
  server?: string
  dropUnsupported?: boolean
  output?: string
}

async function validateCommand(call: Call, options: ValidateOptions, file: string): Promise<number> {
  requireTogether(call, options)
  const use = options.against === undefined ? undefined : await useOf(call, options.against)
  const given = await readGivenSource(file)
  const checkOptions: CheckOptions = {
    at: ['definition'],
    ...(use && { headerNames: use.header_names }),
  }
  const completion = options.complete
    ? completeDefinition(given.value, {
        ...checkOptions,
        ...(options.server !== undefined && { server: options.server }),
        dropsUnsupported: options.dropUnsupported === true,
        numbers: numberTexts,
      })
    : undefined
  const check = completion?.check ?? checkDefinition(given.value, checkOptions)
  const written =
    completion && check.ok ? writeCompleted(call, options.output, completion.definition, given) : undefined
  // The lines are those of the text that was written, else of the text that was given.
  const shown = written === undefined ? given : parseSource(written)
  const places = completion && written === undefined ? new GivenPlaces(given.value, completion.edits) : undefined
  const located = <Found extends { loc: Loc }>(found: Found) => {
    const loc = places?.nearestTo(found.loc.slice(1)) ?? found.loc.slice(1)
    return { line: shown.lineOf(loc), ...found, loc }
  }
  const faults = check.ok ? [] : check.faults.map(fault => located(withRemedy(fault, options)))
  const warnings = check.warnings.map(located)
  const impact =
    use && check.ok ? await impactOf(use, use.definition, completion?.definition ?? given.value) : undefined
  const edits = (completion?.edits ?? []).map(({ op, path, type, msg }) => ({ op, loc: path, type, msg }))
  const answer = {
    ok: check.ok,
    ...(check.ok && { methods: check.methods }),
    faults,
    warnings,
    ...(completion && { edits, dropped: completion.dropped }),
    ...(impact && { impact }),
  }
  // Where standard output is the definition, nothing else may stand there.
  const print = (text: string) => (options.output === '-' ? call.remark(text) : call.print(text))
  call.answer(answer, () => {
    for (const text of shownLines(answer)) print(text)
  })
  return check.ok ? EXIT.ok : EXIT.findings
}

type Finding = Fault & { line: number }

interface Answer {
  methods?: readonly { name: string; method: string; path: string; summary: string }[]
  faults: readonly Finding[]
  warnings: readonly Finding[]
  edits?: readonly { op: string; loc: Loc; type: string; msg: string }[]
  dropped?: readonly unknown[]
  impact?: Impact
}

/** What people are shown: edits, faults and warnings, methods, what changes for agents. */
function shownLines({ methods, faults, warnings, edits, dropped = [], impact }: Answer): string[] {
  const row = (kind: string) => (found: Finding) => [
    `line ${found.line}`,
    kind,
    placeText(found.loc),
    found.msg,
    `(${found.type})`,
  ]
  const lines = tableLines([...faults.map(row('fault')), ...warnings.map(row('warning'))])
  if (edits !== undefined) {
    const left = dropped.length > 0 ? `, ${counted(dropped.length, 'operation')} left out` : ''
    const made = edits.map(({ op, loc, msg, type }) => [op, placeText(loc), msg, `(${type})`])
    lines.unshift(...tableLines(made), counted(edits.length, 'edit') + left)
  }
  if (methods !== undefined) {
    const named = methods.map(({ name, method, path, summary }) => [name, method.toUpperCase(), path, summary])
    lines.push(`${counted(methods.length, 'method')}:`, ...tableLines(named).map(text => `  ${text}`))
  }
  if (impact !== undefined) {
    const { changes, agents } = impact
    lines.push(...tableLines(changes.map(change => [change.class, change.operation, change.msg])))
    if (changes.length === 0) lines.push('No change for a model.')
    lines.push(`Used by ${agents.ids.length === 0 ? 'no agent' : `the agents ${agents.ids.join(', ')}`}.`)
  }
  return lines
}

/** An option without effect is a mistake. */
function requireTogether(call: Call, { complete, server, dropUnsupported, output }: ValidateOptions): void {
  const [alone] =
    Object.entries({ '--server': server, '--drop-unsupported': dropUnsupported, '--output': output }).find(
      ([, value]) => value !== undefined,
    ) ?? []
  if (alone !== undefined && !complete) throw new UsageError(`${alone} goes together with --complete`)
  if (output === '-' && call.json) throw new UsageError('--json excludes --output -, as both go to standard output')
  if (server === undefined) return
  if (!(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
  const reason = unusableServer(server)
  if (reason !== undefined) throw new UsageError(`the address of --server ${reason}`)
}

/** Writes the completed definition, as JSON where it came as JSON; without a file nothing. Answers the text that was written. */
function writeCompleted(call: Call, file: string | undefined, definition: unknown, { isJson }: Source) {
  if (file === undefined) return undefined
  const text = isJson
    ? stringifyExact(definition, 2)
    : withoutMarks(stringify(definition, numberReplacer, { lineWidth: 0 })).trimEnd()
  if (file === '-') call.printExact(text)
  else {
    writeText(file, `${text}\n`)
    call.remark(`wrote ${file}`)
  }
  return text
}

function withRemedy(fault: Fault, { complete, dropUnsupported }: ValidateOptions): Fault {
  if (!complete || dropUnsupported || fault.type !== 'request_body_media_type_unsupported') return fault
  return { ...fault, msg: `${fault.msg}; --drop-unsupported leaves the operation out` }
}

async function useOf(call: Call, tool: string) {
  const { db } = await call.database()
  return await definitionUse(db, await resourceId(db, 'tool', tool))
}
