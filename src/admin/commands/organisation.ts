import { writeFileSync } from 'node:fs'
import { stringify } from 'yaml'
import { MIGRATIONS, migrate, schemaState } from '../../db/migrate.js'
import { definitionLimitsOf } from '../../tool/definition/index.js'
import { VERSION } from '../../version.js'
import { placeholder } from '../apply/placeholders.js'
import { folderOf } from '../apply/tools.js'
import { type ApplyReport, applyOrganisation, countOutcomes, type Outcome } from '../apply.js'
import { exportOrganisation } from '../export.js'
import { InvalidDocument, placeText } from '../refusal.js'
import { readSource, type Source } from '../source.js'
import { type Call, type Command, coloured, EXIT, JSON_OPTION, SchemaUnfit, table } from './command.js'

export const organisationCommands: Command[] = [
  {
    name: 'migrate',
    summary: 'Brings the schema of the database up to date.',
    positionals: [],
    options: {
      plan: { type: 'boolean', description: 'Only name the migrations that would run and what they lock.' },
      ...JSON_OPTION,
    },
    details:
      'Forward only; several processes may start it at once. The embedded database is migrated by whoever opens it.',
    run: migrateCommand,
  },
  {
    name: 'apply',
    summary: 'Brings the database to what an organisation document (YAML or JSON) says, in one transaction.',
    positionals: ['FILE'],
    options: {
      plan: { type: 'boolean', description: 'Only show what would be created, changed, and is only in the database.' },
      prune: { type: 'boolean', description: 'Remove what the lists of the document do not name.' },
      ...JSON_OPTION,
    },
    details: [
      'Rows are found by id or name; what an entry does not name stays as it is. FILE may be - for standard input.',
      `A header value may be ${placeholder('NAME')}. With --prune agents are marked deleted, users deactivated,`,
      'and what is still used is kept.',
    ].join('\n'),
    run: applyCommand,
  },
  {
    name: 'export',
    summary: 'Writes the organisation as a document that apply takes back, without secrets.',
    positionals: ['[FILE]'],
    options: { json: { type: 'boolean', description: 'Write JSON instead of YAML.' } },
    details: [
      'In the place of each secret stands a variable, TOOL_<id>_<HEADER>. Applied to its own database with the variable unset, the',
      'stored secret is kept; in another database the variable must be set.',
    ].join('\n'),
    run: exportCommand,
  },
]

async function migrateCommand(call: Call): Promise<number | undefined> {
  const { database } = await call.rawDatabase()
  const state = await schemaState(database.db, VERSION)
  if (state.kind === 'ahead')
    throw new SchemaUnfit(`the schema needs at least version ${state.oldestProgram} of this program`)
  const pending = state.kind === 'behind' ? state.pending : []
  if (call.flag('plan')) {
    const steps = pending.map(name => ({ migration: name, locks: MIGRATIONS[name]?.locks ?? [] }))
    if (call.json) call.printJson({ pending: steps })
    else if (steps.length === 0) call.print('The schema is up to date.')
    else call.print(table(steps.map(step => [step.migration, `locks: ${step.locks.join('; ')}`])))
    return undefined
  }
  const ran = await migrate(database.db)
  if (call.json) call.printJson({ applied: ran })
  else call.print(ran.length === 0 ? 'The schema is up to date.' : ran.map(name => `applied ${name}`).join('\n'))
  return undefined
}

async function applyCommand(call: Call): Promise<number | undefined> {
  const file = call.argument(0)
  const source = readSource(file)
  const options = {
    vault: await call.vault(),
    env: call.env,
    plan: call.flag('plan'),
    prune: call.flag('prune'),
    definitionLimits: definitionLimitsOf(call.config.limits),
    ...(file !== '-' && { baseDir: folderOf(file) }),
  }
  try {
    const report = await applyOrganisation(await call.database(), source.value, options)
    if (call.json) call.printJson({ ...report, counts: countOutcomes(report) })
    else printReport(call, report)
    return undefined
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error
    printFaults(call, error, source)
    return EXIT.refused
  }
}

/** The faults of a document with line and place, one a line. */
export function printFaults(call: Call, { faults }: InvalidDocument, source: Source): void {
  if (call.json) {
    call.printJson({ faults: faults.map(fault => ({ line: source.lineOf(fault.loc), ...fault })) })
    return
  }
  call.print(
    table(faults.map(({ loc, msg, type }) => [`line ${source.lineOf(loc)}`, placeText(loc), msg, `(${type})`])),
  )
  call.output.remark(`${faults.length} fault${faults.length === 1 ? '' : 's'}; nothing was stored`)
}

const SIGN: Record<Outcome['action'], string> = {
  created: '+',
  changed: '~',
  unchanged: ' ',
  removed: '-',
  kept: '!',
  only_here: '?',
}

function printReport(call: Call, report: ApplyReport): void {
  for (const outcome of report.outcomes) if (outcome.action !== 'unchanged') printOutcome(call, outcome)
  const { created, changed, unchanged, removed, kept, only_here } = countOutcomes(report)
  const counts = [`${created} created`, `${changed} changed`, `${unchanged} unchanged`]
  if (removed + kept > 0) counts.push(`${removed} removed`, `${kept} kept`)
  if (only_here > 0) counts.push(`${only_here} only in the database`)
  call.print(`${counts.join(', ')}${report.planned ? ' (a plan: nothing was stored)' : ''}`)
}

function printOutcome(call: Call, { section, id, name, action, fields, reason }: Outcome): void {
  const shownId = typeof id === 'number' && id < 0 ? 'new' : id
  call.print(`${SIGN[action]} ${section} ${shownId} ${name}${reason ? `: ${reason}` : ''}`)
  for (const { field, from, to, changed_by, changed_at } of fields) {
    const by = changed_by ? `  (set by ${changed_by} at ${changed_at})` : ''
    call.print(
      `    ${field}: ${coloured(call.output, 'red', shortened(from))} -> ${coloured(call.output, 'green', shortened(to))}${by}`,
    )
  }
}

/** A value on one line, cut where it is long. */
export function shortened(value: unknown, characters = 100): string {
  const text = JSON.stringify(value) ?? 'null'
  return text.length > characters ? `${text.slice(0, characters)}...` : text
}

async function exportCommand(call: Call): Promise<number | undefined> {
  const document = await exportOrganisation((await call.database()).db)
  const text = call.json ? JSON.stringify(document, null, 2) : stringify(document, { lineWidth: 120 }).trimEnd()
  const file = call.positionals[0]
  if (file === undefined) call.print(text)
  else writeFileSync(file, `${text}\n`)
  return undefined
}
