import { dirname, resolve } from 'node:path'
import type { Command } from 'commander'
import type { Outcome } from '../apply/catalogue.js'
import { placeholder } from '../apply/placeholders.js'
import { type ApplyReport, applyOrganisation, countOutcomes } from '../apply.js'
import { jsonDocumentText, yamlText } from '../document-text.js'
import { exportOrganisation } from '../export.js'
import { counted, EXIT, InvalidDocument, placeText } from '../refusal.js'
import { readGivenSource } from '../source.js'
import type { Call, CommandLine } from './command.js'

export const PLAN = 'only show what would change; exit status 2 where something would'

export function addOrganisationCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'apply <FILE>', 'organisation.yaml --plan', applyCommand)
    .description(
      'Brings the database to what an organisation document says.\n' +
        'FILE is YAML or JSON; - is standard input. Rows are found by id or name; what an entry does not name stays as it is.\n' +
        `A header value may be ${placeholder('AGENTS_NAME')}; variables named otherwise are not read.\n` +
        'With --prune agents are marked deleted, users deactivated, and what is still used is kept.',
    )
    .option('--prune', 'remove what the lists of the document do not name')
    .option('--plan', PLAN)
  line
    .add(program, 'export', '> organisation.yaml', exportCommand)
    .description(
      'Writes the organisation as a document that apply takes back.\n' +
        'In the place of each secret stands a variable, TOOL_<id>_<HEADER>. Applied to its own database with the ' +
        'variable unset, the stored secret is kept; in another database the variable must be set.',
    )
}

async function applyCommand(call: Call, options: { prune?: boolean; plan?: boolean }, file: string): Promise<number> {
  const source = await readGivenSource(file)
  const given = { ...options, env: call.env, ...(file !== '-' && { baseDir: dirname(resolve(file)) }) }
  try {
    const vault = await call.vault()
    const report = await applyOrganisation(await call.database(), source.value, { ...given, vault, actor: call.actor })
    const counts = countOutcomes(report)
    call.answer({ ...report, counts }, () => printReport(call, report))
    return report.planned && counts.created + counts.changed + counts.removed > 0 ? EXIT.differs : EXIT.ok
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    const faults = error.faults.map(fault => ({ line: source.lineOf(fault.loc), ...fault }))
    call.answer({ faults }, () => {
      call.printTable(faults.map(({ line, loc, msg, type }) => [`line ${line}`, placeText(loc), msg, `(${type})`]))
      call.remark(`${counted(faults.length, 'fault')}; nothing was stored`)
    })
    return EXIT.error
  }
}

const SIGN: Record<Outcome['action'], string> = {
  created: '+',
  changed: '~',
  unchanged: ' ',
  removed: '-',
  kept: '!',
}

function printReport(call: Call, report: ApplyReport): void {
  const { created, changed, unchanged, removed, kept } = countOutcomes(report)
  const shown = report.outcomes.filter(({ action }) => action !== 'unchanged')
  if (shown.length > 0) call.print('+ created  ~ changed  - removed  ! kept as it is used')
  for (const outcome of shown) printOutcome(call, outcome)
  const counts = [`${created} created`, `${changed} changed`, `${unchanged} unchanged`]
  if (removed + kept > 0) counts.push(`${removed} removed`, `${kept} kept`)
  call.print(`${counts.join(', ')}${report.planned ? ' (a plan: nothing was stored)' : ''}`)
}

/** One outcome for people: a line with its sign, then what each field was and becomes. */
export function printOutcome(call: Call, { section, id, name, action, fields, reason, notes = [] }: Outcome): void {
  call.print(`${SIGN[action]} ${section} ${id} ${name}${reason ? `: ${reason}` : ''}`)
  for (const { field, from, to } of fields) {
    const before = action === 'created' ? '' : `${shortened(from)} -> `
    call.print(`    ${field}: ${before}${shortened(to)}`)
  }
  for (const note of notes) call.print(`    ${note}`)
}

/** A value on one line, cut where it is long. */
function shortened(value: unknown, characters = 100): string {
  const text = JSON.stringify(value) ?? 'null'
  return text.length > characters ? `${text.slice(0, characters)}...` : text
}

async function exportCommand(call: Call): Promise<undefined> {
  const document = await exportOrganisation(await call.db())
  call.printExact(call.json ? jsonDocumentText(document) : yamlText(document))
}
