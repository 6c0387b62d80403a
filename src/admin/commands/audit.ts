import type { KeyObject } from 'node:crypto'
import { type Command, Option } from 'commander'
import type { ResourceKind } from '../../db/tables.js'
import { type AuditFilter, LISTED_KINDS, listAudit } from '../audit.js'
import { placeOf } from '../audit-verification/findings.js'
import { verifyAudit } from '../audit-verification.js'
import { checkSignature, readSigningKey, writeCheckpoint } from '../checkpoint.js'
import { counted } from '../counts.js'
import { Refusal } from '../refusal.js'
import { resourceId } from '../resources.js'
import { readText } from '../source.js'
import { type Call, type CommandLine, dateOf, EXIT, UsageError, wholeNumber } from './command.js'

const RESOURCE = 'only this agent or tool, by id or name, such as agent:12'

export function addAuditCommands(program: Command, line: CommandLine): void {
  const audit = program.command('audit').description('The audit trail.')
  const list = {
    effect: 'reads',
    summary: 'Lists changes of agents, tools and access, newest first.',
    example: 'agentctl audit list --resource agent:12 --since 2026-01-01 --json',
  } as const
  line
    .add(audit, 'list', list, listCommand)
    .option('--resource <NAME>', RESOURCE)
    .addOption(
      new Option('--kind <KIND>', 'only this kind; share: who has, owns or sees something').choices(LISTED_KINDS),
    )
    .option('--subject <ID>', 'only of this id, or concerning who has this email')
    .option('--actor <EMAIL>', 'only by this user (agentctl: the operator)')
    .option('--since <DATE>', 'from this time on (RFC 3339, UTC without an offset)')
    .option('--until <DATE>', 'before this time')
    .option('--limit <COUNT>', 'at most so many (default: 100)')
    .option('--json', 'print JSON, with every detail')
  const verify = {
    effect: 'reads',
    summary: [
      'Recomputes the audit trail and compares it with what is stored.',
      'Exit status 3 when rows, events, content or access were changed by hand; ops/audit.md says what each finding means.',
    ].join('\n'),
    example: 'agentctl audit verify --checkpoint checkpoint-1 --public-key audit-key.pub',
  } as const
  line
    .add(audit, 'verify', verify, verifyCommand)
    .option('--resource <NAME>', RESOURCE)
    .option('--checkpoint <FILE>', 'a checkpoint that was kept elsewhere: what it names must still be there')
    .option('--public-key <FILE>', 'the public half of the key that signed it, in PEM')
    .option('--json', 'print JSON')
  const checkpoint = {
    effect: 'reads',
    summary: [
      'Writes a signed file that names the last row of every chain of the audit trail.',
      'Keep it where nobody who can write the database can write.',
    ].join('\n'),
    example: 'agentctl audit checkpoint checkpoint-2026-01-31 --key audit-key',
  } as const
  line
    .add(audit, 'checkpoint <FILE>', checkpoint, async call => {
      const file = call.argument(0)
      const made = await writeCheckpoint((await call.database()).db, keyOf(call, 'private'), file)
      call.answer(made, `${file}: ${counted(made.chains, 'chain')}, ${made.rows} rows and events`)
      return undefined
    })
    .option('--key <FILE>', 'the private key, in PEM, as keys generate --signing --file makes it')
    .option('--json', 'print JSON')
}

async function resourceOf(call: Call): Promise<{ kind: ResourceKind; id: number } | undefined> {
  const text = call.text('resource')
  if (text === undefined) return undefined
  const [, word, name = ''] = /^(agent|tool):(.+)$/s.exec(text) ?? []
  if (word === undefined) throw new UsageError(`--resource has the form agent:12 or tool:7, not ${text}`)
  const kind = word === 'tool' ? 'tool' : 'persona'
  return { kind, id: await resourceId((await call.database()).db, kind, name) }
}

async function listCommand(call: Call): Promise<undefined> {
  const [actor, since, until] = [call.text('actor'), dateOf(call, 'since'), dateOf(call, 'until')]
  const [subject, kind] = [call.text('subject'), LISTED_KINDS.find(word => word === call.text('kind'))]
  const limit = wholeNumber(call.text('limit') ?? '100', '--limit')
  const resource = await resourceOf(call)
  const filter: AuditFilter = {
    ...(resource && { resource }),
    ...(kind !== undefined && { kind }),
    ...(subject !== undefined && { subject }),
    ...(actor !== undefined && { actor }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  }
  // One more than is shown tells that there are more.
  const rows = await listAudit((await call.database()).db, filter, { limit: limit + 1 })
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

async function verifyCommand(call: Call): Promise<number | undefined> {
  const file = call.text('checkpoint')
  const checkpoint = file === undefined ? undefined : await checkSignature(file, keyOf(call, 'public'))
  const only = await resourceOf(call)
  const result = await verifyAudit((await call.database()).db, {
    ...(only && { only }),
    ...(file !== undefined && { checkpoint: file }),
  })
  // A mistyped id must not look like a chain that is whole.
  if (only !== undefined && result.chains === 0) throw new Refusal(`nothing is kept of ${call.text('resource')}`)
  call.answer(result, () => {
    for (const { problem, msg, number, ...place } of result.findings) {
      call.print({ text: problem, colour: 'red' }, `  ${placeOf(place)} ${number}: ${msg}`)
    }
    const counts = [counted(result.chains, 'chain'), `${result.rows} rows and events`]
    call.print(`${counts.join(', ')}, ${counted(result.findings.length, 'finding')}`)
    if (checkpoint) call.print(`compared with ${counted(checkpoint.chains, 'chain')} of ${checkpoint.at}`)
  })
  return result.findings.length > 0 ? EXIT.findings : EXIT.ok
}

/** A half of the key pair that signs checkpoints, from the file of an option. */
function keyOf(call: Call, half: 'private' | 'public'): KeyObject {
  const option = half === 'private' ? 'key' : 'public-key'
  const file = call.text(option)
  if (file === undefined) {
    throw new UsageError(`--${option} FILE names the ${half} key in PEM: agentctl keys generate --signing makes a pair`)
  }
  return readSigningKey(readText(file), half)
}
