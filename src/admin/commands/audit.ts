import type { KeyObject } from 'node:crypto'
import { type Command, Option } from 'commander'
import { type AuditFilter, LISTED_KINDS, listAudit } from '../audit-list.js'
import { verifyAudit } from '../audit-verification.js'
import { checkSignature, readSigningKey, writeCheckpoint } from '../checkpoint.js'
import { counted, EXIT } from '../refusal.js'
import { readText } from '../source.js'
import { type Call, type CommandLine, dateTime, UsageError, wholeNumber } from './command.js'

export function addAuditCommands(program: Command, line: CommandLine): void {
  const audit = program.command('audit').description('The audit trail.')
  line
    .add(audit, 'list', '--kind agent --subject 12 --since 2026-01-01', listCommand)
    .description('Lists changes of agents, tools and access, newest first.')
    .addOption(new Option('--kind <KIND>', 'only this kind').choices(LISTED_KINDS))
    .option('--subject <ID>', 'only of this id, or concerning the person with this email')
    .option('--since <DATE>', 'from this time on (RFC 3339, UTC without an offset)', dateTime)
    .option('--limit <COUNT>', 'the newest COUNT', wholeNumber, 100)
  line
    .add(audit, 'verify', '--checkpoint checkpoint-1 --public-key audit-key.pub', verifyCommand)
    .description(
      'Recomputes the audit trail and compares it with what is stored.\n' +
        'Exit status 3 when rows, events, content or access were changed by hand; ops/audit.md says what each finding means.',
    )
    .option('--checkpoint <FILE>', 'a checkpoint that was kept elsewhere: what it names must still be there')
    .option('--public-key <FILE>', 'the public half of the key that signed it, in PEM')
  line
    .add(audit, 'checkpoint <FILE>', 'checkpoint-2026-01-31 --key audit-key', checkpointCommand)
    .description(
      'Writes a signed file that names the last row of every chain of the audit trail.\n' +
        'Keep it where nobody who can write the database can write.',
    )
    .option('--key <FILE>', 'the private key, in PEM: openssl genpkey -algorithm ed25519 makes one')
}

async function listCommand(call: Call, { limit, ...filter }: AuditFilter & { limit: number }): Promise<undefined> {
  // One extra row shows that there are more.
  const rows = await listAudit(await call.db(), { ...filter, limit: limit + 1 })
  call.list(rows.slice(0, limit), {
    TIME: row => row.at,
    WHAT: row => (row.subject ? `${row.kind}:${row.subject}` : row.kind),
    VERSION: row => row.number,
    CHANGE: row => row.fields ?? row.action,
    WHOM: row => row.person,
    BY: row => row.actor,
    TOKEN: row => row.token_id,
    FROM: row => row.client_address,
    COMMAND: row => row.command,
  })
  if (rows.length > limit) call.remark(`there are more than ${limit}: see --limit and --since`)
}

async function verifyCommand(call: Call, options: { checkpoint?: string; publicKey?: string }): Promise<number> {
  const { checkpoint: file, publicKey } = options
  if (file === undefined && publicKey !== undefined) throw new UsageError('--public-key goes with --checkpoint')
  const checkpoint = file === undefined ? undefined : await checkSignature(file, keyOf(publicKey, 'public'))
  const result = await verifyAudit(await call.db(), file)
  call.answer(result, () => {
    for (const { problem, msg, number, ...place } of result.findings) {
      call.print(`${problem}  ${placeOf(place)} ${number}: ${msg}`)
    }
    const counts = [counted(result.chains, 'chain'), `${result.rows} rows and events`]
    call.print(`${counts.join(', ')}, ${counted(result.findings.length, 'finding')}`)
    if (checkpoint) call.print(`compared with ${counted(checkpoint.chains, 'chain')} of ${checkpoint.at}`)
  })
  return result.findings.length > 0 ? EXIT.findings : EXIT.ok
}

/** The subject of a row or event as agentctl names it: `agent:12`, `user:ID`, `prune:agent:12`. */
function placeOf({ kind, subject }: { kind: string; subject: string }): string {
  const place = subject === '' ? kind : `${kind}:${subject}`
  return place.replace(/^(prune:)?persona:/, '$1agent:')
}

async function checkpointCommand(call: Call, { key }: { key?: string }, file: string): Promise<undefined> {
  const made = await writeCheckpoint(await call.db(), keyOf(key, 'private'), file)
  call.answer(made, `${file}: ${counted(made.chains, 'chain')}, ${made.rows} rows and events`)
}

/** Reads one half of the key pair for checkpoints from the file of an option. */
function keyOf(file: string | undefined, half: 'private' | 'public'): KeyObject {
  if (file === undefined) {
    const option = half === 'private' ? 'key' : 'public-key'
    throw new UsageError(`--${option} FILE names the ${half} half of an Ed25519 key in PEM`)
  }
  return readSigningKey(readText(file), half)
}
