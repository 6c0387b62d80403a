import { dirname, resolve } from 'node:path'
import type { Command } from 'commander'
import { unusableKeys } from '../../secrets/stored-keys.js'
import type { Change } from '../../updates/resource.js'
import type { Outcome } from '../apply/catalogue.js'
import { placeholder } from '../apply/tools.js'
import { type ApplyReport, applyOrganisation, changesSomething, countOutcomes } from '../apply.js'
import { jsonText, yamlText } from '../document-text.js'
import { exportOrganisation } from '../export.js'
import { counted, EXIT, InvalidDocument, placeText, Refusal } from '../refusal.js'
import { readGivenSource } from '../source.js'
import { type CommandLine, UsageError } from './command.js'

export function addOrganisationCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'apply <FILE>', 'organisation.yaml --plan', applyCommand)
    .description(
      'Changes the database to match an organisation document.\n' +
        'FILE is YAML or JSON; - is standard input. Records are found by id, or else by name (users: by email; agents and tools: by name and owner). Fields that an entry omits keep their values.\n' +
        `In the value of a tool header, ${placeholder('AGENTS_NAME')} stands for the environment variable AGENTS_NAME; only names that begin with AGENTS_ are allowed. A header without a value keeps its stored value.\n` +
        'With --prune, stored records without an entry are also removed, but only for the lists that the document contains: agents are marked as deleted, users are deactivated, and other records are deleted unless they are in use.',
    )
    .option('--prune', 'destructive: for each list in the document, remove the stored records without an entry')
    .option('--yes', 'confirm --prune; first check the changes with --plan')
    .option('--plan', 'only show the changes; exit status 2 if there are any')
  line
    .add(program, 'export', '> organisation.yaml', exportCommand)
    .description(
      'Prints the organisation as a document that apply accepts.\n' +
        'The document contains the names of headers but not their values. Applying it to the same database keeps the stored values; for another database, add the values to the document.',
    )
}

async function applyCommand(
  call: CommandLine,
  { yes = false, prune = false, plan = false }: Partial<Record<'yes' | 'prune' | 'plan', boolean>>,
  file: string,
): Promise<number> {
  if (yes && !prune) throw new UsageError('--yes requires --prune')
  if (prune && !yes && !plan) throw new UsageError('--prune removes records: first try --plan, then give --yes')
  const source = await readGivenSource(file)
  try {
    const [ring, database, { env, actor }] = [await call.ring(), await call.database(), call]
    const keys = await unusableKeys(database.db, ring)
    if (keys.length > 0)
      throw new Refusal(`keys for stored secrets are missing or wrong: ${keys.join(', ')}. Run agentctl keys status`)
    const given = { env, plan, prune, ring, actor, baseDir: dirname(resolve(file)) }
    const report = await applyOrganisation(database, source.value, given)
    const counts = countOutcomes(report)
    call.answer({ ...report, counts }, () => printReport(call, report))
    return plan && changesSomething(counts) ? EXIT.differs : EXIT.ok
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    const lines = source.linesOf(error.faults.map(({ loc }) => loc))
    const faults = error.faults.map((fault, i) => ({ line: lines[i], ...fault }))
    call.answer({ faults }, () => {
      call.printTable(faults.map(({ line, loc, msg, type }) => [`line ${line}`, placeText(loc), msg, `(${type})`]))
      call.remark(`${counted(faults.length, 'fault')}; nothing was stored`)
    })
    return EXIT.error
  }
}

const SIGN = { created: '+', changed: '~', unchanged: ' ', removed: '-', kept: '!' } as const

function printReport(call: CommandLine, report: ApplyReport): void {
  const shown = report.outcomes.filter(({ action }) => action !== 'unchanged')
  if (shown.length > 0) call.print('+ created  ~ changed  - removed (users: deactivated)  ! kept (still in use)')
  for (const outcome of shown) printOutcome(call, outcome)
  const counts = Object.entries(countOutcomes(report)).map(([action, count]) => `${count} ${action}`)
  call.print(`${counts.join(', ')}${report.planned ? ' (a plan: nothing was stored)' : ''}`)
}

/** Prints one outcome: a line with a sign for its action, then the changed fields and the notes. */
function printOutcome(call: CommandLine, outcome: Outcome): void {
  const { section, id, name, action, fields, reason, impact = [], notes = [] } = outcome
  const row = section === 'users' ? [section, name] : [section, id, name]
  call.print(`${SIGN[action]} ${row.join(' ')}${reason ? `: ${reason}` : ''}`)
  for (const change of fields) {
    const shown = change.field === 'definition' && impact.length > 0 ? impact : changeText(change, action === 'created')
    if (typeof shown === 'string') call.print(`    ${change.field}: ${shown}`)
    else for (const line of [`    ${change.field}:`, ...shown.map(item => `      ${item}`)]) call.print(line)
  }
  for (const note of notes) call.print(`    ${note}`)
}

/** Formats the old and new value of a field. For lists, shows the removed and added items. */
function changeText({ from, to }: Change, isNew: boolean): string | string[] {
  const textOf = (item: unknown) => (typeof item === 'string' ? item : (JSON.stringify(item) ?? 'null'))
  if (!Array.isArray(from) && !Array.isArray(to)) {
    return `${isNew ? '' : `${JSON.stringify(from) ?? 'null'} -> `}${JSON.stringify(to) ?? 'null'}`
  }
  const [before, after] = [from, to].map(list => new Set<string>(Array.isArray(list) ? list.map(textOf) : []))
  const lost = [...(before ?? [])].filter(item => !after?.has(item)).map(item => `- ${item}`)
  const gained = [...(after ?? [])].filter(item => !before?.has(item)).map(item => `+ ${item}`)
  return lost.length + gained.length > 0 ? [...lost, ...gained] : ['(only the order changed)']
}

async function exportCommand(call: CommandLine): Promise<undefined> {
  const document = await exportOrganisation(await call.db())
  call.output.print(call.json ? jsonText(document) : yamlText(document))
}
