import type { Command } from 'commander'
import type { ResourceKind } from '../../db/tables.js'
import { NOUN } from '../document.js'
import { readHistory, rollbackPersona, rollbackTool } from '../history.js'
import { resourceId } from '../resources.js'
import { type Call, type CommandLine, EXIT, UsageError, wholeNumber } from './command.js'
import { PLAN, printOutcome } from './organisation.js'

export function addHistoryCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'history <KIND> <ID>', 'tool Weather --limit 5', historyCommand)
    .description('Lists the versions of an agent or tool, newest first.\nKIND is agent or tool, ID an id or a name.')
    .option('--limit <COUNT>', 'at most so many', wholeNumber, 100)
  line
    .add(program, 'rollback <KIND> <ID>', 'tool Weather --to 3 --plan', rollbackCommand)
    .description(
      'Makes a new version with the content of an old one.\n' +
        'It passes the same checks as any change. KIND is agent or tool, ID an id or a name. Secrets (header values) are not rolled back.',
    )
    .requiredOption('--to <VERSION>', 'the old version', wholeNumber)
    .option('--plan', PLAN)
}

async function historyCommand(call: Call, { limit }: { limit: number }, word: string, name: string) {
  const kind = kindOf(word)
  const { db } = await call.database()
  const id = await resourceId(db, kind, name)
  // One more than is shown tells that there are more.
  const history = await readHistory(db, kind, id, limit + 1)
  const versions = history.versions.slice(0, limit)
  call.answer({ ...history, versions }, () => {
    const rows = versions.map(({ version, at, actor, fields }) => [version, at, actor, fields])
    call.printTable([['VERSION', 'TIME', 'BY', 'FIELDS'], ...rows])
  })
  if (history.kept_from > 1) call.remark(`contents are kept from version ${history.kept_from} on`)
  if (history.versions.length > limit) call.remark(`there are more than ${limit}: see --limit`)
  return undefined
}

function kindOf(word: string): ResourceKind {
  if (word === 'agent') return 'persona'
  if (word === 'tool') return word
  throw new UsageError(`KIND is agent or tool, not ${word}`)
}

async function rollbackCommand(
  call: Call,
  { to: version, plan = false }: { to: number; plan?: boolean },
  word: string,
  name: string,
): Promise<number> {
  const kind = kindOf(word)
  const database = await call.database()
  const id = await resourceId(database.db, kind, name)
  const options = {
    plan,
    actor: call.actor,
  }
  const { changes, left, notes, ...result } =
    kind === 'persona'
      ? await rollbackPersona(database, id, version, options)
      : await rollbackTool(database, await call.vault(), id, version, options)
  const fields = changes.map(({ field }) => field)
  const section = kind === 'tool' ? 'tools' : 'agents'
  call.answer({ version: result.version, fields, left, ...(notes.length > 0 && { notes }) }, () => {
    const done = fields.length > 0 ? `set back ${fields.join(', ')}` : 'nothing to set back'
    if (plan && fields.length > 0) {
      printOutcome(call, { section, id, name: result.name, action: 'changed', fields: changes }, true)
    } else call.print(`${NOUN[section]} ${id} is version ${result.version}: ${done}`)
    if (kind === 'tool') call.remark('secrets are not rolled back: the header values are those of now')
    for (const note of notes) call.remark(note)
    if (left.length > 0) call.remark(`left as now: ${left.join(', ')}`)
  })
  return plan && fields.length > 0 ? EXIT.differs : EXIT.ok
}
