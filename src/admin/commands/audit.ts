import type { KeyObject } from 'node:crypto'
import { type Command, Option } from 'commander'
import type { ResourceKind } from '../../db/tables.js'
import { type AuditFilter, LISTED_KINDS, listAudit } from '../audit.js'
import { placeOf } from '../audit-verification/findings.js'
import { verifyAudit } from '../audit-verification.js'
import { checkSignature, readSigningKey, writeCheckpoint } from '../checkpoint.js'
import { counted, Refusal } from '../refusal.js'
import { resourceId } from '../resources.js'
import { readText } from '../source.js'
import { type Call, type CommandLine, dateTime, EXIT, UsageError, wholeNumber } from './command.js'

const RESOURCE = 'only this agent or tool, by id or name, such as agent:12'

export function addAuditCommands(program: Command, line: CommandLine): void {
  const audit = program.command('audit').description('The audit trail.')
  line
    .add(audit, 'list', 'reads', '--resource agent:12 --since 2026-01-01 --json', listCommand)
    .description('Lists changes of agents, tools and access, newest first.')
    .option('--resource <NAME>', RESOURCE)
    .addOption(new Option('--kind <KIND>', 'only this kind').choices(LISTED_KINDS))
    .option('--subject <ID>', 'only of this id, or concerning the person with this email')
    .option('--actor <EMAIL>', 'only by this user (agentctl: the operator)')
    .option('--since <DATE>', 'from this time on (RFC 3339, UTC without an offset)', dateTime)
    .option('--until <DATE>', 'before this time', dateTime)
    .option('--limit <COUNT>', 'at most so many', wholeNumber, 100)
  line
    .add(audit, 'verify', 'reads', '--checkpoint checkpoint-1 --public-key audit-key.pub', verifyCommand)
    .description(
      'Recomputes the audit trail and compares it with what is stored.\n' +
        'Exit status 3 when rows, events, content or access were changed by hand; ops/audit.md says what each finding means.',
    )
    .option('--resource <NAME>', RESOURCE)
    .option('--checkpoint <FILE>', 'a checkpoint that was kept elsewhere: what it names must still be there')
    .option('--public-key <FILE>', 'the public half of the key that signed it, in PEM')
  line
    .add(audit, 'checkpoint <FILE>', 'reads', 'checkpoint-2026-01-31 --key audit-key', checkpointCommand)
    .description(
      'Writes a signed file that names the last row of every chain of the audit trail.\n' +
        'Keep it where nobody who can write the database can write.',
    )
    .option('--key <FILE>', 'the private key, in PEM: openssl genpkey -algorithm ed25519 makes one')
}

/** The agent or tool that a text such as `agent:12` names. */
async function resourceOf(call: Call, text: string): Promise<{ kind: ResourceKind; id: number }> {
  const [, word, name = ''] = /^(agent|tool):(.+)$/s.exec(text) ?? []
  if (word === undefined) throw new UsageError(`--resource has the form agent:12 or tool:7, not ${text}`)
  const kind = word === 'tool' ? 'tool' : 'persona'
  return { kind, id: await resourceId((await call.database()).db, kind, name) }
}

type ListOptions = Omit<AuditFilter, 'resource' | 'limit'> & { resource?: string; limit: number }

async function listCommand(call: Call, { resource, limit, ...filter }: ListOptions): Promise<undefined> {
  const only = resource !== undefined && { resource: await resourceOf(call, resource) }
  // One more than is shown tells that there are more.
  const rows = await listAudit((await call.database()).db, { ...filter, ...only, limit: limit + 1 })
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
  if (rows.length > limit) call.remark(`there are more than ${limit}: see --limit, --since and --until`)
}

async function verifyCommand(
  call: Call,
  { resource, checkpoint: file, publicKey }: { resource?: string; checkpoint?: string; publicKey?: string },
): Promise<number> {
  const checkpoint = file === undefined ? undefined : await checkSignature(file, keyOf(publicKey, 'public'))
  const only = resource === undefined ? undefined : await resourceOf(call, resource)
  const result = await verifyAudit((await call.database()).db, {
    ...(only && { only }),
    ...(file !== undefined && { checkpoint: file }),
  })
  // A mistyped id must not look like a chain that is whole.
  if (only !== undefined && result.chains === 0) throw new Refusal(`nothing is kept of ${resource}`)
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

async function checkpointCommand(call: Call, { key }: { key?: string }, file: string): Promise<undefined> {
  const made = await writeCheckpoint((await call.database()).db, keyOf(key, 'private'), file)
  call.answer(made, `${file}: ${counted(made.chains, 'chain')}, ${made.rows} rows and events`)
}

/** A half of the key pair that signs checkpoints, from the file of an option. */
function keyOf(file: string | undefined, half: 'private' | 'public'): KeyObject {
  if (file === undefined) {
    const option = half === 'private' ? 'key' : 'public-key'
    throw new UsageError(`--${option} FILE names the ${half} half of an Ed25519 key in PEM`)
  }
  return readSigningKey(readText(file), half)
}
