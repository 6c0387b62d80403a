import type { Command } from 'commander'
import {
  checkDefinition,
  type Edit,
  GivenPlaces,
  repairDefinition,
  toFunctions,
  unusableServer,
  withoutSecrets,
} from '../../definition/index.js'
import type { Loc } from '../../errors.js'
import { jsonDocumentText, yamlText } from '../document-text.js'
import { counted, EXIT, placeText } from '../refusal.js'
import { readGivenSource } from '../source.js'
import { type Cell, tableLines } from '../terminal.js'
import { type Call, type CommandLine, UsageError } from './command.js'

export function addValidateCommand(program: Command, line: CommandLine): void {
  line
    .add(program, 'validate <FILE>', 'weather.yaml --complete > weather-completed.yaml', validateCommand)
    .description(
      'Checks a tool definition as the service does.\n' +
        'FILE is JSON or YAML; - is standard input. Needs no database. Exit status 3 when there are faults.',
    )
    .option('--as-functions', 'print, as JSON, the functions that a model is given')
    .option('--complete', 'repair it with the fewest edits, print it, and name the edits on standard error')
    .option('--server <URL>', 'with --complete: the address where the definition names none that can be used')
    .option('--drop-unsupported', 'with --complete: leave out operations whose body is not JSON')
}

/** The most characters of a value in the description of an edit. */
const EDIT_CHARACTERS = 100

interface ValidateOptions {
  asFunctions?: boolean
  complete?: boolean
  server?: string
  dropUnsupported?: boolean
}

async function validateCommand(call: Call, options: ValidateOptions, file: string): Promise<number> {
  const { complete, server, dropUnsupported = false, asFunctions = false } = options
  requireTogether(options)
  const { value, document, linesOf } = await readGivenSource(file)
  const at = ['definition']
  const completion = complete
    ? repairDefinition(value, {
        at,
        ...(server !== undefined && { server }),
        dropsUnsupported: dropUnsupported,
      })
    : undefined
  const check = completion?.check ?? checkDefinition(value, { at })
  const edits = completion?.edits ?? []
  // Faults are shown at their places in the given text.
  const places = new GivenPlaces(value, edits)
  const located = <Found extends { loc: Loc; msg: string }>(findings: readonly Found[]) => {
    const inGiven = findings.map(found => places.located({ ...found, loc: found.loc.slice(1) }))
    const lines = linesOf(inGiven.map(({ loc }) => loc))
    return inGiven.map((found, i) => ({ line: lines[i] ?? 1, ...found }))
  }
  const definition = completion && check.ok ? completion.definition : value
  const functions = check.ok && asFunctions ? toFunctions(definition) : undefined
  const answer = {
    ok: check.ok,
    ...(check.ok && { methods: check.methods }),
    ...(functions && { functions }),
    faults: check.ok ? [] : located(check.faults),
    warnings: located(check.warnings),
    ...(completion && {
      edits: edits.map(({ path, ...edit }) => ({ loc: path, ...edit })),
      dropped: completion.dropped,
      ...(check.ok && { definition: completion.definition }),
    }),
  }
  call.answer(answer, () => {
    // If standard output is the definition or its functions, everything else goes to standard error.
    const print = (text: string) => ((completion || asFunctions) && check.ok ? call.remark(text) : call.print(text))
    const table = (rows: readonly (readonly Cell[])[]) => tableLines(rows).forEach(print)
    if (completion) {
      table(edits.map(edit => [edit.op, placeText(edit.path), changeShown(edit), edit.msg, `(${edit.type})`]))
      print(`${counted(edits.length, 'edit')}, ${counted(completion.dropped.length, 'operation')} left out`)
    }
    const found = [
      ...answer.faults.map(one => ['fault', one] as const),
      ...answer.warnings.map(one => ['warning', one] as const),
    ]
    table(found.map(([kind, { line, loc, msg, type }]) => [`line ${line}`, kind, placeText(loc), msg, `(${type})`]))
    if (!check.ok) return
    print(`${counted(check.methods.length, 'method')}:`)
    table(check.methods.map(({ name, method, path, summary }) => ['', name, method.toUpperCase(), path, summary]))
    if (asFunctions) return call.printJson(functions)
    if (completion === undefined) return
    call.printExact(document === undefined ? jsonDocumentText(completion.definition) : yamlText(completion.definition))
  })
  return check.ok ? EXIT.ok : EXIT.findings
}

/** The shortened values before and after an edit. */
function changeShown({ op, path, from, before, after, type }: Edit): string {
  if (path.length === 0) return ''
  const [old, next] = [before, after].map(value => {
    const whole = JSON.stringify(value ?? null)
    const text = type.startsWith('server_') ? withoutSecrets(whole) : whole
    return text.length > EDIT_CHARACTERS ? `${text.slice(0, EDIT_CHARACTERS)}...` : text
  })
  if (op === 'move') return `${JSON.stringify(from?.at(-1))} -> ${JSON.stringify(path.at(-1))}`
  return op === 'add' ? String(next) : op === 'remove' ? String(old) : `${old} -> ${next}`
}

/** Refuses options that have no effect. */
function requireTogether({ complete, server, dropUnsupported }: ValidateOptions): void {
  if (server !== undefined && !complete) throw new UsageError('--server goes together with --complete')
  if (dropUnsupported && !complete) throw new UsageError('--drop-unsupported goes together with --complete')
  if (server === undefined) return
  if (!(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
  const reason = unusableServer(server)
  if (reason !== undefined) throw new UsageError(`the address of --server ${reason}`)
}
