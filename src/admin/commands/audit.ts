import type { ResourceKind } from '../../db/tables.js'
import { ACCESS_KINDS } from '../../updates/access-events.js'
import { type AuditFilter, LISTED_KINDS, listAudit, requireTraces } from '../audit.js'
import { makeCheckpoint, type ProvedChange, proveChange } from '../audit-proof.js'
import { placeOf } from '../audit-verification/findings.js'
import { verifyAudit } from '../audit-verification.js'
import { generateSigningKey, parseSigningKey, readNote, type SigningKey } from '../checkpoint.js'
import { counted } from '../counts.js'
import type { Selection } from '../listing.js'
import { Refusal } from '../refusal.js'
import { resourceId } from '../resources.js'
import { readGivenText, writeText } from '../source.js'
import { type Call, type Command, dateOf, EXIT, JSON_OPTION, UsageError, wholeNumber } from './command.js'
import { listCommand } from './list.js'

const RESOURCE_OPTION = {
  type: 'string',
  value: 'agent:12',
  description: 'Only this agent or tool, by id or name.',
} as const

const CHECKPOINT_OPTIONS = {
  checkpoint: { type: 'string', value: 'FILE', description: 'A checkpoint that was kept elsewhere.' },
  'public-key': {
    type: 'string',
    value: 'KEY',
    description: 'Who signed it, as name+hash+key. Default: the public half of AUDIT_SIGNING_KEY.',
  },
} as const

export const auditCommands: Command[] = [
  listCommand({
    name: 'audit list',
    summary: 'Lists changes of agents, tools and access, newest first.',
    columns: [
      { field: 'at', title: 'TIME', whole: true },
      {
        field: 'subject',
        title: 'WHAT',
        show: row => (row.subject ? `${row.kind}:${row.subject}` : row.kind),
      },
      { field: 'number', title: 'VERSION' },
      { field: 'action', title: 'CHANGE', show: row => row.fields?.join(', ') ?? row.action },
      { field: 'person', title: 'WHOM' },
      { field: 'actor', title: 'BY' },
      { field: 'token_id', title: 'TOKEN' },
      { field: 'client_address', title: 'FROM' },
      { field: 'command', title: 'COMMAND' },
      { field: 'kind' },
      { field: 'fields' },
      { field: 'detail' },
      { field: 'resource_kind' },
      { field: 'resource_id' },
      { field: 'version_before' },
      { field: 'version_after' },
      { field: 'request_id' },
      { field: 'difference' },
      { field: 'hash' },
    ],
    options: {
      resource: RESOURCE_OPTION,
      kind: {
        type: 'string',
        value: 'KIND',
        choices: LISTED_KINDS,
        description: 'Only changes of this kind; share: who has, owns or sees something.',
      },
      subject: {
        type: 'string',
        value: 'ID',
        description:
          'Only changes of what has this id, or that concern who has this email, also by a list that names them.',
      },
      actor: { type: 'string', value: 'EMAIL', description: 'Only changes by this user (agentctl: the operator).' },
      since: { type: 'string', value: 'DATE', description: 'From this time on (RFC 3339, UTC without an offset).' },
      until: { type: 'string', value: 'DATE', description: 'Before this time.' },
    },
    limit: 100,
    rows: auditRows,
  }),
  {
    name: 'audit verify',
    summary:
      'Recomputes the audit trail and compares it with what is stored and, where one is given, with a checkpoint.',
    positionals: [],
    options: {
      resource: RESOURCE_OPTION,
      'expect-head': { type: 'string', value: 'HASH', description: 'Compare with a head that was printed before.' },
      ...CHECKPOINT_OPTIONS,
      ...JSON_OPTION,
    },
    details: [
      'Exit status 1 when something is wrong: rows and events that were edited, deleted, moved, emptied or erased by hand, content and',
      'access that changed without them, and a tree that is not the one of the checkpoint. ops/audit.md says what each means.',
      'The head changes with every change: export it with --resource for one that should not have changed, or compare it in quiet times.',
    ].join('\n'),
    run: verifyCommand,
  },
  {
    name: 'audit keygen',
    summary: 'Makes a key pair that signs checkpoints.',
    positionals: ['NAME'],
    options: {
      file: {
        type: 'string',
        value: 'FILE',
        description: 'Put the private key into this new file instead of printing it.',
      },
      ...JSON_OPTION,
    },
    details:
      'NAME says whose audit trail it is, such as the host of the service. Set AUDIT_SIGNING_KEY or AUDIT_SIGNING_KEY_FILE to\nthe private key; keep the public one where checkpoints are checked.',
    offline: true,
    run: async call => {
      const { signer, verifier } = generateSigningKey(call.argument(0))
      const file = call.text('file')
      if (file !== undefined) writeText(file, `${signer}\n`, { mode: 0o600, flag: 'wx' })
      call.answer({ ...(file === undefined && { private_key: signer }), public_key: verifier }, () => {
        call.print(file === undefined ? signer : `the private key is in ${file}`)
        call.print(verifier)
      })
    },
  },
  {
    name: 'audit checkpoint',
    summary: 'Signs the tree over all audit rows and access events, as a note to keep outside of the database.',
    positionals: [],
    options: {
      out: { type: 'string', value: 'FILE', description: 'Write it to this new file instead of printing it.' },
    },
    details: 'Needs AUDIT_SIGNING_KEY. The server does it by itself where AUDIT_CHECKPOINT_DIR is set.',
    run: async call => {
      const { note, size } = await makeCheckpoint((await call.database()).db, signingKeyOf(call))
      const out = call.text('out')
      if (out === undefined) call.printExact(note.trimEnd())
      else {
        writeText(out, note, { flag: 'wx' }) // an older checkpoint is evidence
        call.print(`${out}: ${size} audit rows and events`)
      }
    },
  },
  {
    name: 'audit prove',
    summary: 'Proves that one change is in a checkpoint, for somebody who has the public key and no database.',
    positionals: ['WHAT', 'NUMBER'],
    options: {
      ...CHECKPOINT_OPTIONS,
      out: { type: 'string', value: 'FILE', description: 'Write it to this file instead of printing it.' },
    },
    details: [
      'WHAT is agent:12, tool:7, or an event such as user:ID; NUMBER its version, or the number of the event: see agentctl audit list.',
      'Without a checkpoint a new one is made. The proof is checked by: node ops/verify-proof.mjs PROOF.json PUBLIC_KEY',
    ].join('\n'),
    run: proveCommand,
  },
]

async function resourceOf(call: Call): Promise<{ kind: ResourceKind; id: number } | undefined> {
  const text = call.text('resource')
  if (text === undefined) return undefined
  const [, word, name = ''] = /^(agent|persona|tool):(.+)$/s.exec(text) ?? []
  if (word === undefined) throw new UsageError(`--resource has the form agent:12 or tool:7, not ${text}`)
  const kind = word === 'tool' ? 'tool' : 'persona'
  return { kind, id: await resourceId((await call.database()).db, kind, name) }
}

async function auditRows(call: Call, selection: Selection) {
  const [actor, since, until] = [call.text('actor'), dateOf(call, 'since'), dateOf(call, 'until')]
  const [subject, kind] = [call.text('subject'), LISTED_KINDS.find(word => word === call.text('kind'))]
  const resource = await resourceOf(call)
  const filter: AuditFilter = {
    ...(resource && { resource }),
    ...(kind !== undefined && { kind }),
    ...(subject !== undefined && { subject }),
    ...(actor !== undefined && { actor }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  }
  return await listAudit((await call.database()).db, filter, selection)
}

async function verifyCommand(call: Call): Promise<number | undefined> {
  const [expected, file] = [call.text('expect-head'), call.text('checkpoint')]
  const checkpoint = file === undefined ? undefined : readNote(await readGivenText(file), publicKeyOf(call))
  const only = await resourceOf(call)
  if (only !== undefined) await requireTraces((await call.database()).db, only)
  const result = await verifyAudit((await call.database()).db, {
    ...(only && { only }),
    ...(checkpoint && { checkpoint }),
    progress: rows => call.progress.at('recomputing the audit trail', rows, undefined, 'rows'),
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
  return result.findings.length > 0 || headDiffers ? EXIT.refused : EXIT.ok
}

async function proveCommand(call: Call): Promise<undefined> {
  const { db } = await call.database()
  const change = await changeOf(call)
  const file = call.text('checkpoint')
  const checkpoint =
    file === undefined
      ? { note: (await makeCheckpoint(db, signingKeyOf(call))).note, verifier: signingKeyOf(call).verifier }
      : { note: await readGivenText(file), verifier: publicKeyOf(call) }
  call.progress.at('reading the tree')
  const proof = JSON.stringify(await proveChange(db, change, checkpoint), null, 2)
  const out = call.text('out')
  if (out === undefined) call.printExact(proof)
  else writeText(out, `${proof}\n`)
}

async function changeOf(call: Call): Promise<ProvedChange> {
  const [, kind = '', subject = ''] = /^([a-z_]+)(?::(.+))?$/s.exec(call.argument(0)) ?? []
  const number = wholeNumber(call.argument(1), 'NUMBER')
  const resource = kind === 'tool' ? 'tool' : kind === 'agent' || kind === 'persona' ? 'persona' : undefined
  if (resource !== undefined) {
    const id = await resourceId((await call.database()).db, resource, subject)
    return { kind: resource, subject: String(id), number }
  }
  if (!ACCESS_KINDS.some(one => one === kind)) {
    throw new UsageError(`WHAT has the form agent:12, tool:7 or KIND:ID of an event, not ${call.argument(0)}`)
  }
  return { kind, subject: kind === 'prune' ? subject.replace('agent:', 'persona:') : subject, number }
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
