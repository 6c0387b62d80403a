import { type Command, Option } from 'commander'
import type { ResourceKind } from '../../db/tables.js'
import { type AuditFilter, LISTED_KINDS, listAudit, requireTraces } from '../audit.js'
import { makeCheckpoint } from '../audit-proof.js'
import { placeOf } from '../audit-verification/findings.js'
import { verifyAudit } from '../audit-verification.js'
import { generateSigningKey, parseSigningKey, readNote, type SigningKey } from '../checkpoint.js'
import { counted } from '../counts.js'
import { Refusal } from '../refusal.js'
import { resourceId } from '../resources.js'
import { readGivenText, writeText } from '../source.js'
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
    example: 'agentctl audit verify --checkpoint /mnt/worm/checkpoint-2026-01-31',
  } as const
  line
    .add(audit, 'verify', verify, verifyCommand)
    .option('--resource <NAME>', RESOURCE)
    .option('--expect-head <HASH>', 'compare with a head that was printed before')
    .option('--checkpoint <FILE>', 'a checkpoint that was kept elsewhere')
    .option('--public-key <KEY>', 'who signed it (default: the public half of AUDIT_SIGNING_KEY)')
    .option('--json', 'print JSON')
  const keygen = {
    effect: 'writes',
    summary: 'Makes a key pair that signs checkpoints. NAME says whose audit trail it is.',
    example: 'agentctl audit keygen agents.example.com --file signing-key',
  } as const
  line
    .add(audit, 'keygen <NAME>', keygen, async call => {
      const { signer, verifier } = generateSigningKey(call.argument(0))
      const file = call.text('file')
      if (file !== undefined) writeText(file, `${signer}\n`, { mode: 0o600, flag: 'wx' })
      call.answer({ ...(file === undefined && { private_key: signer }), public_key: verifier }, () => {
        call.print(file === undefined ? signer : `the private key is in ${file}`)
        call.print(verifier)
      })
      return undefined
    })
    .option('--file <FILE>', 'put the private key into this new file instead of printing it')
    .option('--json', 'print JSON')
  const checkpoint = {
    effect: 'reads',
    summary: [
      'Signs the state of the whole audit trail.',
      'Keep the note outside of the database. Needs AUDIT_SIGNING_KEY. The server does it by itself where AUDIT_CHECKPOINT_DIR is set.',
    ].join('\n'),
    example: 'agentctl audit checkpoint --out /mnt/worm/checkpoint-2026-01-31',
  } as const
  line
    .add(audit, 'checkpoint', checkpoint, async call => {
      const { note, size } = await makeCheckpoint((await call.database()).db, signingKeyOf(call))
      const out = call.text('out')
      if (out === undefined) call.printExact(note.trimEnd())
      else {
        writeText(out, note, { flag: 'wx' }) // an older checkpoint is evidence
        call.print(`${out}: ${size} audit rows and events`)
      }
      return undefined
    })
    .option('--out <FILE>', 'write it to this new file instead of printing it')
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
  const [expected, file] = [call.text('expect-head'), call.text('checkpoint')]
  const checkpoint = file === undefined ? undefined : readNote(await readGivenText(file), publicKeyOf(call))
  const only = await resourceOf(call)
  if (only !== undefined) await requireTraces((await call.database()).db, only)
  const result = await verifyAudit((await call.database()).db, {
    ...(only && { only }),
    ...(checkpoint && { checkpoint }),
  })
  const headDiffers = expected !== undefined && expected.toLowerCase() !== result.head
  call.answer({ ...result, ...(expected !== undefined && { head_as_expected: !headDiffers }) }, () => {
    for (const { problem, msg, number, ...place } of result.findings) {
      call.print({ text: problem, colour: 'red' }, `  ${placeOf(place)} ${number}: ${msg}`)
    }
    if (headDiffers) call.print({ text: 'the head is not the expected one', colour: 'red' })
    call.print(
      `${counted(result.chains, 'chain')}, ${result.rows} rows and events, ${counted(result.findings.length, 'finding')}`,
    )
    if (checkpoint) call.print(`compared with the checkpoint of ${checkpoint.size} leaves`)
    call.print(`head ${result.head}`)
  })
  return result.findings.length > 0 || headDiffers ? EXIT.findings : EXIT.ok
}

function signingKeyOf(call: Call): SigningKey {
  const { signingKey } = call.config.audit
  if (signingKey === undefined) {
    throw new Refusal(
      'AUDIT_SIGNING_KEY is not set: agentctl audit keygen NAME --file FILE, then AUDIT_SIGNING_KEY_FILE=FILE',
    )
  }
  return parseSigningKey(signingKey)
}

/** Who checks has a public key; who signs has it with the other half. */
function publicKeyOf(call: Call): string {
  const given = call.text('public-key')
  if (given !== undefined) return given
  if (call.config.audit.signingKey !== undefined) return signingKeyOf(call).verifier
  throw new Refusal('--checkpoint needs --public-key NAME+HASH+KEY of who signed it: agentctl audit keygen printed it')
}
