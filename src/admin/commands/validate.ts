import type { Command } from 'commander'
import {
  checkDefinition,
  completeDefinition,
  type Edit,
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
    .option('--complete', 'add what it lacks, print it, and name the edits and faults on standard error')
    .option('--server <URL>', 'with --complete: the server of a definition that names none, or only a path')
}

/** The most characters of a value in the description of an edit. */
const EDIT_CHARACTERS = 100

interface ValidateOptions {
  asFunctions?: boolean
  complete?: boolean
  server?: string
}

async function validateCommand(call: Call, options: ValidateOptions, file: string): Promise<number> {
  const { complete, server, asFunctions = false } = options
  requireTogether(options)
  const { value, document, linesOf } = await readGivenSource(file)
  const at = ['definition']
  const completion = complete ? completeDefinition(value, { at, ...(server !== undefined && { server }) }) : undefined
  const check = completion?.check ?? checkDefinition(value, { at })
  const edits = completion?.edits ?? []
  // Places are those in the completed definition, lines the nearest ones in the given text.
  const located = <Found extends { loc: Loc }>(findings: readonly Found[]) => {
    const locs = findings.map(({ loc }) => loc.slice(at.length))
    const lines = linesOf(locs)
    return findings.map((found, i) => ({ line: lines[i] ?? 1, ...found, loc: locs[i] ?? [] }))
  }
  const definition = completion?.definition ?? value
  const functions = check.ok && asFunctions ? toFunctions(definition) : undefined
  const answer = {
    ok: check.ok,
    ...(check.ok && { methods: check.methods }),
    ...(functions && { functions }),
    faults: check.ok ? [] : located(check.faults),
    warnings: located(check.warnings),
    ...(completion && {
      edits: edits.map(({ loc, ...edit }) => ({ loc: loc.slice(at.length), ...edit })),
      definition,
    }),
  }
  call.answer(answer, () => {
    // If standard output is the definition or its functions, everything else goes to standard error.
    const print = (text: string) => (completion || (asFunctions && check.ok) ? call.remark(text) : call.print(text))
    const table = (rows: readonly (readonly Cell[])[]) => tableLines(rows).forEach(print)
    if (completion) {
      table(
        answer.edits?.map(edit => [edit.op, placeText(edit.loc), changeShown(edit), edit.msg, `(${edit.type})`]) ?? [],
      )
      print(counted(edits.length, 'edit'))
    }
    const found = [
      ...answer.faults.map(one => ['fault', one] as const),
      ...answer.warnings.map(one => ['warning', one] as const),
    ]
    table(found.map(([kind, { line, loc, msg, type }]) => [`line ${line}`, kind, placeText(loc), msg, `(${type})`]))
    if (check.ok) {
      print(`${counted(check.methods.length, 'method')}:`)
      table(check.methods.map(({ name, method, path, summary }) => ['', name, method.toUpperCase(), path, summary]))
    }
    if (functions) return call.printJson(functions)
    if (completion) call.printExact(document === undefined ? jsonDocumentText(definition) : yamlText(definition))
  })
  return check.ok ? EXIT.ok : EXIT.findings
}

/** The shortened values before and after an edit. */
function changeShown({ op, loc, before, after, type }: Edit): string {
  if (loc.length === 0) return ''
  const [old, next] = [before, after].map(value => {
    const whole = JSON.stringify(value ?? null)
    const text = type.startsWith('server_') ? withoutSecrets(whole) : whole
    return text.length > EDIT_CHARACTERS ? `${text.slice(0, EDIT_CHARACTERS)}...` : text
  })
  return op === 'add' ? String(next) : `${old} -> ${next}`
}

/** Refuses options that have no effect. */
function requireTogether({ complete, server }: ValidateOptions): void {
  if (server !== undefined && !complete) throw new UsageError('--server goes together with --complete')
  if (server === undefined) return
  if (!(/^https?:\/\//i.test(server) && URL.canParse(server)))
    throw new UsageError('--server must be an absolute http(s) address')
  const reason = unusableServer(server)
  if (reason !== undefined) throw new UsageError(`the address of --server ${reason}`)
}
