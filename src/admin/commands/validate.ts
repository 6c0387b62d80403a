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
import { counted } from '../counts.js'
import { placeText } from '../refusal.js'
import { definitionUse, resourceId } from '../resources.js'
import { parseSource, readGivenSource, type Source, writeText } from '../source.js'
import { type Call, type CommandLine, EXIT, UsageError } from './command.js'

export function addValidateCommand(program: Command, line: CommandLine): void {
  const validate = {
    effect: 'reads',
    summary: [
      'Checks a tool definition as the service does.',
      'FILE is JSON or YAML; - is standard input. Needs no database without --against. Exit status 3 when there are faults.',
    ].join('\n'),
    example: 'agentctl validate weather.yaml --complete -o weather-completed.yaml',
  } as const
  line
    .add(program, 'validate <FILE>', validate, validateCommand)
    .option('--against <TOOL>', 'say what it would change for the agents that use this tool')
    .option('--complete', 'repair it with the fewest edits, and say which they are')
    .option('--server <URL>', 'with --complete: the address where the definition names none that can be used')
    .option('--drop-unsupported', 'with --complete: leave out operations whose body is not JSON')
    .option('-o, --output <FILE>', 'with --complete: write the completed definition here; - is standard output')
    .option('--json', 'print JSON')
}

async function validateCommand(call: Call): Promise<number> {
  requireTogether(call)
  const against = call.text('against')
  const use = against === undefined ? undefined : await useOf(call, against)
  const given = await readGivenSource(call.argument(0))
  const options: CheckOptions = {
    at: ['definition'],
    ...(use && { headerNames: use.header_names }),
  }
  const completion = call.flag('complete') ? completed(call, given, options) : undefined
  const check = completion?.check ?? checkDefinition(given.value, options)
  const written = completion && check.ok ? writeCompleted(call, completion.text) : undefined
  // The lines are those of the text that was written, else of the text that was given.
  const shown = written === undefined ? given : parseSource(written)
  const places = completion && written === undefined ? new GivenPlaces(given.value, completion.edits) : undefined
  const located = <Found extends { loc: Loc }>(found: Found) => {
    const loc = places?.nearestTo(found.loc.slice(1)) ?? found.loc.slice(1)
    return { line: shown.lineOf(loc), ...found, loc }
  }
  const faults = check.ok ? [] : check.faults.map(fault => located(withRemedy(call, fault)))
  const warnings = check.warnings.map(located)
  const impact =
    use && check.ok ? await impactOf(use, use.definition, completion?.definition ?? given.value) : undefined
  const rows = [
    ...faults.map(fault => ['fault', fault] as const),
    ...warnings.map(warning => ['warning', warning] as const),
  ].map(([kind, { line, loc, msg, type }]) => [`line ${line}`, kind, placeText(loc), msg, `(${type})`])
  const edits = (completion?.edits ?? []).map(({ op, path, type, msg }) => ({ op, loc: path, type, msg }))
  if (call.text('output') === '-') {
    // Standard output is the definition: nothing else may stand there.
    for (const { op, loc, msg, type } of edits) call.remark(`${op} ${placeText(loc)}: ${msg} (${type})`)
    for (const row of rows) call.remark(row.join('  '))
    return check.ok ? EXIT.ok : EXIT.findings
  }
  const answer = {
    ok: check.ok,
    ...(check.ok && { methods: check.methods }),
    faults,
    warnings,
    ...(completion && { edits, dropped: completion.dropped }),
    ...(impact && { impact }),
  }
  call.answer(answer, () => {
    if (completion) {
      call.printTable(edits.map(({ op, loc, msg, type }) => [op, placeText(loc), msg, `(${type})`]))
      const dropped = completion.dropped.length
      call.print(`${counted(edits.length, 'edit')}${dropped > 0 ? `, ${counted(dropped, 'operation')} left out` : ''}`)
    }
    call.printTable(rows)
    if (check.ok) {
      call.print(`${counted(check.methods.length, 'method')}:`)
      call.printTable(
        check.methods.map(({ name, method, path, summary }) => [`  ${name}`, method.toUpperCase(), path, summary]),
      )
    }
    if (impact) printImpact(call, impact)
  })
  return check.ok ? EXIT.ok : EXIT.findings
}

/** An option without effect is a mistake. */
function requireTogether(call: Call): void {
  const server = call.text('server')
  const alone = ['server', 'drop-unsupported', 'output'].find(name => call.flag(name) || call.text(name) !== undefined)
  if (alone !== undefined && !call.flag('complete')) throw new UsageError(`--${alone} goes together with --complete`)
  if (call.text('output') === '-' && call.json)
    throw new UsageError('--json excludes --output -, as both go to standard output')
  if (server === undefined) return
  if (!(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
  const reason = unusableServer(server)
  if (reason !== undefined) throw new UsageError(`the address of --server ${reason}`)
}

function completed(call: Call, given: Source, options: CheckOptions) {
  const server = call.text('server')
  const completion = completeDefinition(given.value, {
    ...options,
    ...(server !== undefined && { server }),
    dropsUnsupported: call.flag('drop-unsupported'),
    numbers: numberTexts,
  })
  const text = () =>
    given.isJson
      ? stringifyExact(completion.definition, 2)
      : withoutMarks(stringify(completion.definition, numberReplacer, { lineWidth: 0 })).trimEnd()
  return { ...completion, text }
}

/** Writes the completed definition where `-o` says; without it nothing. Answers the text that was written. */
function writeCompleted(call: Call, text: () => string): string | undefined {
  const file = call.text('output')
  if (file === undefined) return undefined
  const written = text()
  if (file === '-') call.printExact(written)
  else {
    writeText(file, `${written}\n`)
    call.remark(`wrote ${file}`)
  }
  return written
}

function withRemedy(call: Call, fault: Fault): Fault {
  const canBeDropped = fault.type === 'request_body_media_type_unsupported' && !call.flag('drop-unsupported')
  if (!call.flag('complete') || !canBeDropped) return fault
  return { ...fault, msg: `${fault.msg}; --drop-unsupported leaves the operation out` }
}

async function useOf(call: Call, tool: string) {
  const { db } = await call.database()
  return await definitionUse(db, await resourceId(db, 'tool', tool))
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
