import type { Command } from 'commander'
import type { ResourceKind } from '../../db/tables.js'
import { NOUN } from '../document.js'
import { readHistory } from '../history.js'
import { resourceId } from '../resources.js'
import { rollbackPersona, rollbackTool } from '../rollback.js'
import { type Call, type CommandLine, EXIT, UsageError, wholeNumber } from './command.js'
import { printOutcome } from './organisation.js'

export function addHistoryCommands(program: Command, line: CommandLine): void {
  const history = {
    effect: 'reads',
    summary: 'Lists the versions of an agent or tool, newest first.\nKIND is agent or tool, ID an id or a name.',
    example: 'agentctl history tool Weather --limit 5',
  } as const
  line
    .add(program, 'history <KIND> <ID>', history, historyCommand)
    .option('--limit <COUNT>', 'at most so many (default: 100)')
    .option('--json', 'print JSON, with what each version changed')
  const rollback = {
    effect: 'writes',
    summary: [
      'Makes a new version with the content of an old one.',
      'It passes the same checks as any change. KIND is agent or tool, ID an id or a name. Secrets (header values) are not rolled back.',
    ].join('\n'),
    example: 'agentctl rollback tool Weather --to 3 --plan',
  } as const
  line
    .add(program, 'rollback <KIND> <ID>', rollback, rollbackCommand)
    .requiredOption('--to <VERSION>', 'the old version')
    .option('--plan', 'only show what would change; exit status 2 where something would')
    .option('--json', 'print JSON')
}

async function historyCommand(call: Call): Promise<undefined> {
  const kind = kindOf(call)
  const limit = wholeNumber(call.text('limit') ?? '100', '--limit')
  const { db } = await call.database()
  // One more than is shown tells that there are more.
  const id = await resourceId(db, kind, call.argument(1))
  const history = await readHistory(db, kind, id, { limit: limit + 1 })
  const versions = history.versions.slice(0, limit)
  call.answer({ ...history, versions }, () => {
    const rows = versions.map(({ version, at, actor, fields }) => [version, at, actor, fields])
    call.printTable([['VERSION', 'TIME', 'BY', 'FIELDS'], ...rows])
  })
  if (history.kept_from > 1) call.remark(`contents are kept from version ${history.kept_from} on`)
  if (history.versions.length > limit) call.remark(`there are more than ${limit}: see --limit`)
}

function kindOf(call: Call): ResourceKind {
  const kind = call.argument(0)
  if (kind === 'agent') return 'persona'
  if (kind === 'tool') return kind
  throw new UsageError(`KIND is agent or tool, not ${kind}`)
}

async function rollbackCommand(call: Call): Promise<number> {
  const kind = kindOf(call)
  const version = wholeNumber(call.text('to') ?? '', '--to')
  const database = await call.database()
  const id = await resourceId(database.db, kind, call.argument(1))
  const options = {
    plan: call.flag('plan'),
    actor: call.actor,
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
  return options.plan && changesSomething ? EXIT.differs : EXIT.ok
}
