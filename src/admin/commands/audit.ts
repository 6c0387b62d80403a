import { type Command, Option } from 'commander'
import { resetFeed } from '../../changes/feed.js'
import { type AuditFilter, LISTED_KINDS, listAudit } from '../audit-list.js'
import { verifyAudit } from '../audit-verification.js'
import { counted, EXIT } from '../refusal.js'
import { type CommandLine, dateTime, wholeNumber } from './command.js'

export function addAuditCommands(program: Command, line: CommandLine): void {
  const audit = program.command('audit').description('The audit trail.')
  line
    .add(audit, 'list', '--kind agent --subject 12 --since 2026-01-01', listCommand)
    .description('Lists the entries of the audit trail, newest first.')
    .addOption(new Option('--kind <KIND>', 'only entries of this kind').choices(LISTED_KINDS))
    .option('--subject <ID>', 'only entries about the records with this id, or about the user with this email')
    .option('--since <DATE>', 'only entries at or after this time (RFC 3339, by default in UTC)', dateTime)
    .option('--until <DATE>', 'only entries before this time', dateTime)
    .option('--limit <COUNT>', 'only the newest COUNT entries', wholeNumber, 100)
  line
    .add(audit, 'verify', '', verifyCommand)
    .description(
      'Verifies the hashes of audit rows and definitions. Changes nothing.\n' +
        'Exit status 3 if there are findings; ops/audit.md explains them.',
    )
  const changes = program.command('changes').description('The feed of changes.')
  line
    .add(changes, 'reset', '', resetCommand)
    .description(
      'Resets the feed of changes: each of its clients must then read everything again.\n' +
        'Run this if a restored backup or a fail-over has returned the database to an earlier state (ops/backup.md).',
    )
}

async function resetCommand(call: CommandLine): Promise<undefined> {
  await resetFeed(await call.db())
  return call.answer({ reset: true }, 'the feed of changes was reset: each of its clients must read everything again')
}

async function listCommand(
  call: CommandLine,
  { limit, ...filter }: AuditFilter & { limit: number },
): Promise<undefined> {
  // Reads one more row than it shows, to find out whether older rows exist.
  const rows = await listAudit(await call.db(), { ...filter, limit: limit + 1 })
  call.list(rows.slice(0, limit), {
    TIME: row => row.at,
    WHAT: row => (row.subject ? `${row.kind}:${row.subject}` : row.kind),
    VERSION: row => row.version,
    ACTION: row => row.action,
    WHOM: row => row.person,
    BY: row => row.actor,
    TOKEN: row => row.token_id,
    FROM: row => row.client_address,
    COMMAND: row => row.command,
    FIELDS: row => row.fields,
  })
  if (rows.length > limit) call.remark('older entries are not shown: to see them, raise --limit or set --until')
}

async function verifyCommand(call: CommandLine): Promise<number> {
  const result = await verifyAudit(await call.db())
  call.answer(result, () => {
    for (const { problem, msg, version, kind, subject } of result.findings) {
      call.print(`${problem}  ${kind === 'persona' ? 'agent' : kind}:${subject} ${version}: ${msg}`)
    }
    const counts = [result.chains, result.rows, result.findings.length] as const
    call.print(`${counted(counts[0], 'chain')}, ${counted(counts[1], 'row')}, ${counted(counts[2], 'finding')}`)
    if (result.unchained_rows > 0) {
      const from = result.since === null ? '' : `; the oldest verified row is from ${result.since}`
      call.print(`not verified: ${counted(result.unchained_rows, 'row')} without a hash, written before 3.0${from}`)
    }
  })
  return result.findings.length > 0 ? EXIT.findings : EXIT.ok
}
