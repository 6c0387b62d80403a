import { dirname, resolve } from 'node:path'
import type { Command } from 'commander'
import type { FieldChange, Outcome } from '../apply/catalogue.js'
import { placeholder } from '../apply/placeholders.js'
import { type ApplyReport, applyOrganisation, countOutcomes } from '../apply.js'
import { jsonDocumentText, yamlText } from '../document-text.js'
import { exportOrganisation } from '../export.js'
import { counted, EXIT, InvalidDocument, placeText } from '../refusal.js'
import { readGivenSource } from '../source.js'
import { harmless } from '../terminal.js'
import { changedWords } from '../text-diff.js'
import { type Call, type CommandLine, UsageError } from './command.js'

const PLAN = 'only show what would change; exit status 2 where something would'

export function addOrganisationCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'apply <FILE>', 'organisation.yaml --plan', applyCommand)
    .description(
      'Brings the database to what an organisation document says.\n' +
        'FILE is YAML or JSON; - is standard input. Rows are found by id or name; what an entry does not name stays as it is.\n' +
        `A header value may be ${placeholder('AGENTS_NAME')}, or the variable that export wrote for it; no other is read.\n` +
        'With --prune agents are marked deleted, users deactivated, and what is still used is kept.',
    )
    .option('--prune', 'destructive: remove what the lists of the document do not name')
    .option('--yes', 'with --prune: remove without asking')
    .option('--plan', PLAN)
  line
    .add(program, 'export', '> organisation.yaml', exportCommand)
    .description(
      'Writes the organisation as a document that apply takes back.\n' +
        'Each secret is replaced by a variable, TOOL_<id>_<HEADER>. Applied to its own database with the ' +
        'variable unset, the stored secret is kept; in another database the variable must be set.',
    )
}

interface ApplyCommandOptions {
  prune?: boolean
  yes?: boolean
  plan?: boolean
}

async function applyCommand(
  call: Call,
  { yes = false, ...options }: ApplyCommandOptions,
  file: string,
): Promise<number> {
  if (yes && !options.prune) throw new UsageError('--yes goes together with --prune')
  const source = await readGivenSource(file)
  const given = { ...options, env: call.env, ...(file !== '-' && { baseDir: dirname(resolve(file)) }) }
  try {
    const ring = await call.rightRing()
    const database = await call.database()
    const apply = (more: object) =>
      applyOrganisation(database, source.value, { ...given, ring, actor: call.actor, ...more })
    const isPruned = options.prune && !options.plan
    const removable = isPruned ? await confirmed(call, await apply({ plan: true }), yes) : undefined
    const report = await apply(removable ? { removable } : {})
    const counts = countOutcomes(report)
    call.answer({ ...report, counts }, () => printReport(call, report))
    return report.planned && counts.created + counts.changed + counts.removed > 0 ? EXIT.differs : EXIT.ok
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

/** Lists the rows that pruning will remove, and returns them after confirmation. Throws `UsageError` without one. */
async function confirmed(call: Call, { outcomes }: ApplyReport, yes: boolean): Promise<ReadonlySet<string>> {
  const removed = outcomes.filter(({ action }) => action === 'removed')
  const rows = new Set(removed.map(({ section, id }) => `${section} ${id}`))
  if (rows.size === 0) return rows
  call.remark(`${counted(rows.size, 'row')} will be removed:`)
  for (const { section, id, name, notes = [] } of removed) {
    call.remark(harmless(`- ${section} ${id} ${name}${notes.map(note => `: ${note}`).join('')}`))
  }
  const isSure = yes || (await call.output.ask?.('Remove them? [y/N] '))?.trim().toLowerCase() === 'y'
  if (!isSure) throw new UsageError('nothing was stored: --prune removes rows only with --yes')
  return rows
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

/** Prints one outcome: a line with its sign, then each field with its old and new value. */
function printOutcome(call: Call, outcome: Outcome): void {
  const { section, id, name, action, fields, reason, impact = [], notes = [] } = outcome
  const row = section === 'users' ? [section, name] : [section, id, name]
  call.print(`${SIGN[action]} ${row.join(' ')}${reason ? `: ${reason}` : ''}`)
  for (const change of fields) {
    if (change.field === 'definition') call.printBlock('definition', impact.length > 0 ? impact : ['changed'])
    else printChange(call, change, action === 'created')
  }
  for (const note of notes) call.print(`    ${note}`)
}

/** Longer texts are shown as a word diff. */
const SHORT_TEXT = 80

function printChange(call: Call, { field, from, to, added, removed }: FieldChange, isNew: boolean): void {
  const isLong = (value: unknown) => typeof value === 'string' && (value.includes('\n') || value.length > SHORT_TEXT)
  if (added && removed) {
    const items = [...removed.map(item => `- ${itemText(item)}`), ...added.map(item => `+ ${itemText(item)}`)]
    call.printBlock(field, items.length > 0 ? items : ['(in another order)'])
  } else if (isLong(from) || isLong(to)) {
    const text = isNew ? String(to) : changedWords(String(from ?? ''), String(to ?? ''))
    call.printBlock(field, text.split('\n'))
  } else {
    const before = isNew ? '' : `${JSON.stringify(from) ?? 'null'} -> `
    call.print(`    ${field}: ${before}${JSON.stringify(to) ?? 'null'}`)
  }
}

function itemText(item: unknown): string {
  if (typeof item !== 'object' || item === null) return String(item)
  const { email, name = email, key, level, value, ...others } = item as Record<string, unknown>
  if (name !== undefined && level !== undefined) return `${name} (${level})`
  if (key !== undefined && value !== undefined && Object.keys(others).length === 0) return `${key}: ${value}`
  return JSON.stringify(item)
}

async function exportCommand(call: Call): Promise<undefined> {
  const document = await exportOrganisation(await call.db())
  call.printExact(call.json ? jsonDocumentText(document) : yamlText(document))
}
