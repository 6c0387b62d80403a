import { existsSync } from 'node:fs'
import type { Command } from 'commander'
import { stringify } from 'yaml'
import type { Loc } from '../../errors.js'
import { numberReplacer, stringifyExact, withoutMarks } from '../../schema/exact-json.js'
import type { Outcome } from '../apply/catalogue.js'
import { placeholder } from '../apply/placeholders.js'
import { folderOf } from '../apply/tools.js'
import { type ApplyOptions, type ApplyReport, applyOrganisation, countOutcomes } from '../apply.js'
import { counted } from '../counts.js'
import { NOUN } from '../document.js'
import { exportOrganisation } from '../export.js'
import { InvalidDocument, placeText, Refusal } from '../refusal.js'
import { readGivenSource, writeText } from '../source.js'
import { type Call, type CommandLine, EXIT } from './command.js'

export function addOrganisationCommands(program: Command, line: CommandLine): void {
  const apply = {
    effect: 'writes',
    summary: [
      'Brings the database to what an organisation document says.',
      'FILE is YAML or JSON; - is standard input. Rows are found by id or name; what an entry does not name stays as it is.',
      `A header value may be ${placeholder('AGENTS_NAME')}; variables named otherwise are not read.`,
      'With --prune agents are marked deleted, users deactivated, and what is still used is kept.',
    ].join('\n'),
    example: 'agentctl apply organisation.yaml --plan',
  } as const
  line
    .add(program, 'apply <FILE>', apply, applyCommand)
    .option('--prune', 'remove what the lists of the document do not name')
    .option('--verbose', 'show every row that is only in the database, and all fields of new ones')
    .option('--plan', 'only show what would change; exit status 2 where something would')
    .option('--json', 'print JSON')
  const exportIt = {
    effect: 'reads',
    summary: [
      'Writes the organisation as a document that apply takes back.',
      'In the place of each secret stands a variable, AGENTS_TOOL_<id>_<HEADER>. Applied to its own database with the',
      'variable unset, the stored secret is kept; in another database the variable must be set.',
    ].join('\n'),
    example: 'agentctl export organisation.yaml',
  } as const
  line
    .add(program, 'export [FILE]', exportIt, exportCommand)
    .option('--json', 'write JSON instead of YAML')
    .option('--force', 'write over FILE where it is there already')
}

async function applyCommand(call: Call): Promise<number | undefined> {
  const file = call.argument(0)
  const source = await readGivenSource(file)
  const options: ApplyOptions = {
    ...(await applyOptions(call)),
    env: call.env,
    prune: call.flag('prune'),
    ...(file !== '-' && { baseDir: folderOf(file) }),
  }
  try {
    const report = await applyOrganisation(await call.database(), source.value, options)
    call.answer({ ...report, counts: countOutcomes(report) }, () => printReport(call, report))
    return report.planned && changesSomething(report) ? EXIT.differs : EXIT.ok
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    printFaults(call, error, source.lineOf)
    return EXIT.error
  }
}

async function applyOptions(call: Call): Promise<ApplyOptions> {
  return {
    vault: await call.vault(),
    actor: call.actor,
    env: null,
    plan: call.flag('plan'),
  }
}

/**
 * Makes or changes one agent or tool by the rules of `apply`. An entry without an id is a new row, also where its name exists.
 * Header values stand as they are: no variable is read. `lineOf` tells of a place in the entry where it stands in its file.
 */
export async function applyEntry(
  call: Call,
  section: 'agents' | 'tools',
  entry: Readonly<Record<string, unknown>>,
  lineOf: LineOf,
): Promise<number | undefined> {
  const options = { ...(await applyOptions(call)), asNew: true }
  try {
    const report = await applyOrganisation(await call.database(), { version: 1, [section]: [entry] }, options)
    const [outcome] = report.outcomes.filter(one => one.section === section && one.action !== 'only_here')
    if (outcome === undefined) return EXIT.ok
    const { id, name, action, fields, notes = [] } = outcome
    const what = action === 'changed' ? `: ${fields.map(({ field }) => field).join(', ')}` : ''
    call.answer({ id, name, action, fields, ...(notes.length > 0 && { notes }) }, () => {
      if (report.planned) return printOutcome(call, outcome, true)
      if (action === 'unchanged') call.print(`${NOUN[section]} ${id} ${name} is so already`)
      else call.print(`${action} ${NOUN[section]} ${id} ${name}${what}`)
      for (const note of notes) call.remark(note)
    })
    return report.planned && outcome.action !== 'unchanged' ? EXIT.differs : EXIT.ok
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    const faults = error.faults.map(fault => ({ ...fault, loc: fault.loc.slice(2) }))
    printFaults(call, new InvalidDocument(faults), lineOf)
    return EXIT.error
  }
}

/** The line of a place; undefined where it was not read from a file. */
type LineOf = (loc: Loc) => number | undefined

/** The faults of a document with line and place, one a line. */
function printFaults(call: Call, { faults }: InvalidDocument, lineOf: LineOf): void {
  const located = faults.map(fault => ({ line: lineOf(fault.loc), ...fault }))
  const lines = located.some(({ line }) => line !== undefined)
  const rows = located.map(({ line, loc, msg, type }) => [
    ...(lines ? [line === undefined ? '' : `line ${line}`] : []),
    placeText(loc),
    msg,
    `(${type})`,
  ])
  call.answer({ faults: located }, () => {
    call.printTable(rows)
    call.remark(`${counted(faults.length, 'fault')}; nothing was stored`)
  })
}

const SIGN: Record<Outcome['action'], string> = {
  created: '+',
  changed: '~',
  unchanged: ' ',
  removed: '-',
  kept: '!',
  only_here: '?',
}

/** More new rows than these are not shown field by field. */
const CREATED_SHOWN_MAX = 20

function changesSomething(report: ApplyReport): boolean {
  const { created, changed, removed } = countOutcomes(report)
  return created + changed + removed > 0
}

function printReport(call: Call, report: ApplyReport): void {
  const { created, changed, unchanged, removed, kept, only_here } = countOutcomes(report)
  const verbose = call.flag('verbose')
  const shown = report.outcomes.filter(({ action }) => action !== 'unchanged' && (verbose || action !== 'only_here'))
  if (shown.length > 0) call.print('+ created  ~ changed  - removed  ! kept as it is used  ? only in the database')
  for (const outcome of shown) printOutcome(call, outcome, verbose || created <= CREATED_SHOWN_MAX)
  if (!verbose) printOnlyHere(call, report)
  const counts = [`${created} created`, `${changed} changed`, `${unchanged} unchanged`]
  if (removed + kept > 0) counts.push(`${removed} removed`, `${kept} kept`)
  if (only_here > 0) counts.push(`${only_here} only in the database`)
  call.print(`${counts.join(', ')}${report.planned ? ' (a plan: nothing was stored)' : ''}`)
}

/** What no entry names is counted by list: it may be nearly everything. */
function printOnlyHere(call: Call, { outcomes }: ApplyReport): void {
  const counts = new Map<string, number>()
  for (const { section, action } of outcomes) {
    if (action === 'only_here') counts.set(section, (counts.get(section) ?? 0) + 1)
  }
  for (const [section, count] of counts) call.print(`? ${section} ${count} only in the database (--verbose names them)`)
}

/** One outcome for people: a line with its sign, then what each field was and becomes. */
export function printOutcome(
  call: Call,
  { section, id, name, action, fields, reason, notes = [] }: Outcome,
  withFields: boolean,
): void {
  call.print(`${SIGN[action]} ${section} ${id} ${name}${reason ? `: ${reason}` : ''}`)
  if (action === 'created' && !withFields) return
  for (const { field, from, to } of fields) {
    const after = { text: shortened(to), colour: 'green' } as const
    if (action === 'created') call.print(`    ${field}: `, after)
    else call.print(`    ${field}: `, { text: shortened(from), colour: 'red' }, ' -> ', after)
  }
  for (const note of notes) call.print(`    ${note}`)
}

/** A value on one line, cut where it is long. */
export function shortened(value: unknown, characters = 100): string {
  const text = JSON.stringify(value) ?? 'null'
  return text.length > characters ? `${text.slice(0, characters)}...` : text
}

async function exportCommand(call: Call): Promise<undefined> {
  const file = call.argument(0) || undefined
  const flag = call.flag('force') ? 'w' : 'wx'
  if (file !== undefined && flag === 'wx' && existsSync(file))
    throw new Refusal(`${file} is there already: --force writes over it`)
  const document = await exportOrganisation((await call.database()).db)
  const text = call.json
    ? stringifyExact(document, 2)
    : withoutMarks(stringify(document, numberReplacer, { lineWidth: 120 })).trimEnd()
  if (file === undefined) call.printExact(text)
  else writeText(file, `${text}\n`, { flag })
}
