import type { Command } from 'commander'
import { checkDefinition, completeDefinition, toFunctions, unusableServer } from '../../definition/index.js'
import type { Loc } from '../../errors.js'
import { jsonText, yamlText } from '../document-text.js'
import { counted, EXIT, placeText } from '../refusal.js'
import { readGivenSource } from '../source.js'
import { tableLines } from '../terminal.js'
import { type CommandLine, UsageError } from './command.js'

export function addValidateCommand(program: Command, line: CommandLine): void {
  line
    .add(program, 'validate <FILE>', 'weather.yaml --complete > weather-completed.yaml', validateCommand)
    .description(
      'Checks a tool definition as the service does.\n' +
        'FILE is JSON or YAML; - is standard input. Needs no database. Exit status 3 if there are faults. ' +
        'With --json, also prints the functions that a model gets.',
    )
    .option('--complete', 'print the completed definition; edits, faults and warnings go to standard error')
    .option('--server <URL>', 'with --complete: the server URL to add if the definition has no absolute server URL')
}

async function validateCommand(
  call: CommandLine,
  { complete, server }: { complete?: boolean; server?: string },
  file: string,
): Promise<number> {
  if (server !== undefined && !complete) throw new UsageError('--server requires --complete')
  const reason = server === undefined ? undefined : unusableServer(server)
  if (reason !== undefined) throw new UsageError(`--server: ${reason}`)
  const { value, isJson, linesOf } = await readGivenSource(file)
  const completion = complete ? completeDefinition(value, { at: [], ...(server && { server }) }) : undefined
  const { definition = value, edits = [], check = checkDefinition(value, { at: [] }) } = completion ?? {}
  // Each `loc` refers to the completed definition, and each `line` to the given text.
  const located = <Found extends { loc: Loc }>(findings: readonly Found[]) => {
    const lines = linesOf(findings.map(({ loc }) => loc))
    return findings.map((found, i) => ({ line: lines[i] ?? 1, ...found }))
  }
  const answer = {
    ok: check.ok,
    ...(check.ok && { methods: check.methods, functions: toFunctions(definition) }),
    faults: check.ok ? [] : located(check.faults),
    warnings: located(check.warnings),
    ...(completion && { edits, definition }),
  }
  call.answer(answer, () => {
    // With `--complete`, standard output contains only the completed definition.
    const print = (text: string) => (completion ? call.remark(text) : call.print(text))
    const cellsOf = ({ loc, msg, type }: { loc: Loc; msg: string; type: string }) => [placeText(loc), msg, `(${type})`]
    tableLines(edits.map(edit => [edit.op, ...cellsOf(edit)])).forEach(print)
    for (const kind of ['faults', 'warnings'] as const) {
      const rows = answer[kind].map(({ line, ...found }) => [`line ${line}`, kind.slice(0, -1), ...cellsOf(found)])
      tableLines(rows).forEach(print)
    }
    if (check.ok) {
      print(`${counted(check.methods.length, 'method')}:`)
      tableLines(check.methods.map(({ name, method, path, summary }) => [name, method, path, summary])).forEach(print)
    }
    if (completion) call.output.print(isJson ? jsonText(definition) : yamlText(definition))
  })
  return check.ok ? EXIT.ok : EXIT.findings
}
