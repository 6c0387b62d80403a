import { structuredPatch } from 'diff'
import type { ResourceKind } from '../../db/tables.js'
import { parseExact, stringifyExact } from '../../schema/exact-json.js'
import { definitionLimitsOf } from '../../tool/definition/index.js'
import { pruneHistory } from '../../updates/prune.js'
import { NOUN } from '../document.js'
import { definitionTexts, differenceBetween, type FieldDifference, readHistory } from '../history.js'
import { resourceId } from '../resources.js'
import { rollbackPersona, rollbackTool } from '../rollback.js'
import type { Coloured } from '../terminal.js'
import { type Call, type Command, EXIT, JSON_OPTION, PLAN_OPTIONS, UsageError, wholeNumber } from './command.js'
import { listCommand } from './list.js'
import { printOutcome, shortened } from './organisation.js'
import { KINDS } from './program.js'

const NAMES = 'ID may be a name that only one agent or tool has.'

export const historyCommands: Command[] = [
  listCommand({
    name: 'history',
    summary: 'Lists the versions of an agent or tool, newest first.',
    positionals: [KINDS, 'ID'],
    details: NAMES,
    columns: [
      { field: 'version', title: 'VERSION', whole: true },
      { field: 'at', title: 'TIME', whole: true },
      { field: 'actor', title: 'BY' },
      { field: 'fields', title: 'FIELDS' },
      { field: 'request_id' },
      { field: 'difference' },
    ],
    limit: 100,
    rows: async (call, selection) => {
      const kind = kindOf(call)
      const { db } = await call.database()
      const history = await readHistory(db, kind, await resourceId(db, kind, call.argument(1)), selection)
      return {
        rows: history.versions,
        enclose: versions => ({ ...history, versions }),
        remark: history.kept_from > 1 ? `contents are kept from version ${history.kept_from} on` : undefined,
      }
    },
  }),
  {
    name: 'diff',
    summary: 'Shows what differs between two versions of an agent or tool.',
    positionals: [KINDS, 'ID', 'FROM', 'TO'],
    options: JSON_OPTION,
    details: NAMES,
    run: diffCommand,
  },
  {
    name: 'rollback',
    summary: 'Makes a new version with the content of an old one.',
    positionals: [KINDS, 'ID'],
    options: {
      to: { type: 'string', value: 'VERSION', required: true, description: 'The old version.' },
      ...PLAN_OPTIONS,
    },
    details:
      'By the same checks as any change. Secrets (header values) are not rolled back: they stay as they are now.',
    run: rollbackCommand,
  },
  {
    name: 'prune',
    summary: 'Removes history beyond the retention; the server does it by itself.',
    positionals: [],
    options: JSON_OPTION,
    details: 'The limits are AUDIT_RETENTION_DAYS, HISTORY_VERSIONS_MAX and HISTORY_BYTES_MAX.',
    run: async call => {
      const { db } = await call.database()
      const progress = (resources: number) => call.progress.at('pruning', resources, undefined, 'agents and tools')
      const pruned = await pruneHistory(db, call.config.history, progress, call.actor)
      const { auditRows, differences, definitions } = pruned
      call.answer(pruned, `removed ${auditRows} audit rows, ${differences} old contents, ${definitions} definitions`)
    },
  },
]

function kindOf(call: Call): ResourceKind {
  const kind = call.argument(0)
  if (kind === 'agent' || kind === 'persona') return 'persona'
  if (kind === 'tool') return kind
  throw new UsageError(`the first argument is agent or tool, not ${kind}`)
}

async function diffCommand(call: Call): Promise<undefined> {
  const kind = kindOf(call)
  const [from, to] = [wholeNumber(call.argument(2), 'FROM'), wholeNumber(call.argument(3), 'TO')]
  const { db } = await call.database()
  const id = await resourceId(db, kind, call.argument(1))
  const differences = differenceBetween(await readHistory(db, kind, id), from, to)
  const hashes = differences.filter(({ field }) => field === 'definition').flatMap(change => [change.from, change.to])
  const texts = await definitionTexts(db, hashes)
  const shown = differences.map(change => (change.field === 'definition' ? withTexts(change, texts) : change))
  call.answer({ kind, id, from, to, differences: shown }, () => {
    if (shown.length === 0) call.print('The versions have the same content.')
    for (const change of shown) printDifference(call, change)
  })
}

/** A definition is kept by its hash: what is compared is its text. */
function withTexts(change: FieldDifference, texts: ReadonlyMap<string, string>): FieldDifference {
  const parsed = (hash: unknown): unknown => {
    const text = texts.get(String(hash))
    return text === undefined ? hash : parseExact(text)
  }
  return { field: change.field, from: parsed(change.from), to: parsed(change.to) }
}

/** More differing lines than these are not looked for: everything is shown as removed and added then. */
const EDITS_MAX = 4_000
const SIGN_COLOUR: Readonly<Record<string, Coloured['colour']>> = { '-': 'red', '+': 'green', ' ': 'dim' }

function printDifference(call: Call, { field, from, to }: FieldDifference): void {
  call.print({ text: field, colour: 'bold' })
  const show = (line: string) => call.print({ text: line, colour: SIGN_COLOUR[line.charAt(0)] ?? 'dim' })
  const [before, after] = [textOf(from), textOf(to)]
  const isLong = before.includes('\n') || after.includes('\n')
  const patch = isLong && structuredPatch('', '', before, after, '', '', { context: 3, maxEditLength: EDITS_MAX })
  if (!patch) {
    for (const line of before.split('\n')) show(`- ${line}`)
    for (const line of after.split('\n')) show(`+ ${line}`)
    return
  }
  for (const { oldStart, lines } of patch.hunks) {
    if (oldStart > 1) show('  ...')
    // A last line without an end is marked by one that begins with a backslash.
    for (const line of lines) if (!line.startsWith('\\')) show(`${line.charAt(0)} ${line.slice(1)}`)
  }
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  return typeof value === 'object' && value !== null ? stringifyExact(value, 2) : shortened(value)
}

async function rollbackCommand(call: Call): Promise<number> {
  const kind = kindOf(call)
  const version = wholeNumber(call.text('to') ?? '', '--to')
  const database = await call.database()
  const id = await resourceId(database.db, kind, call.argument(1))
  const { limits } = call.config
  const options = {
    plan: call.flag('plan'),
    actor: call.actor,
    limits: definitionLimitsOf(limits),
    snapshotBytesMax: limits.snapshotBytes,
  }
  const { changes, left, notes, ...result } =
    kind === 'persona'
      ? await rollbackPersona(database, id, version, options)
      : await rollbackTool(database, await call.vault(), id, version, options)
  const fields = changes.map(({ field }) => field)
  const changesSomething = fields.length > 0
  call.answer({ version: result.version, fields, left, ...(notes.length > 0 && { notes }) }, () => {
    const section = kind === 'tool' ? 'tools' : 'agents'
    const done = changesSomething ? `set back ${fields.join(', ')}` : 'nothing to set back'
    if (options.plan && changesSomething) {
      printOutcome(call, { section, id, name: result.name, action: 'changed', fields: changes }, true)
    } else call.print(`${NOUN[section]} ${id} is version ${result.version}: ${done}`)
    if (kind === 'tool') call.remark('secrets are not rolled back: the header values are those of now')
    for (const note of notes) call.remark(note)
    if (left.length > 0) call.remark(`left as now: ${left.join(', ')}`)
  })
  return options.plan && changesSomething ? EXIT.planned : EXIT.ok
}
