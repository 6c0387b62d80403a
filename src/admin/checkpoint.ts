import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { sha256 } from '../updates/audit.js'
import type { AuditFinding } from './audit-verification/finding.js'
import { Refusal } from './refusal.js'
import { readText, reasonOf } from './source.js'

/*
 * A checkpoint is a file: a line [kind, subject, number, hash] for the last row of each chain, a line with time, counts and the SHA-256 of
 * the lines before, and the Ed25519 signature of that line. If it is stored out of reach of everyone who can write to the database, it
 * proves which chains were cut, removed or rewritten later.
 */

/** The signed line of a checkpoint. `rows` counts audit rows and access events. */
export interface Checkpoint {
  at: string
  chains: number
  rows: number
  heads_sha256: string
  /** SHA-256 of the chain heads recorded by the upgrade to 2.0, which never change. */
  upgrade_sha256: string
}

type Head = [kind: string, subject: string, number: number, hash: string]

/** SQL: the last row of each chain, as the resource names it. For a removed resource, its last remaining audit row. */
const HEADS = sql<Head>`
  select json_build_array(kind, subject, number, encode(hash, 'hex')) as head from (
    select 'persona' as kind, id::text as subject, version as number, audit_head as hash from persona
    union all select 'tool', id::text, version, audit_head from tool
    union all (
      select distinct on (resource_kind, resource_id) resource_kind, resource_id::text, version_after, hash from audit a
      where case resource_kind
        when 'persona' then not exists (select from persona p where p.id = a.resource_id)
        else not exists (select from tool t where t.id = a.resource_id) end
      order by resource_kind, resource_id, version_after desc)
    union all select kind, subject, number, hash from access_chain
  ) chain where number > 0 order by kind, subject`

const UPGRADE_SHA256 = sql<string>`(
  select encode(sha256(convert_to(coalesce(string_agg(
    concat_ws(' ', kind, subject, number, encode(hash, 'hex')), ',' order by kind, subject), ''), 'UTF8')), 'hex')
  from audit_upgrade_head)`

/** Reads an Ed25519 key in PEM. Throws `Refusal`, without quoting the text. */
export function readSigningKey(pem: string, half: 'private' | 'public'): KeyObject {
  try {
    const key = half === 'private' ? createPrivateKey(pem) : createPublicKey(pem)
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {
    // Refused below, without quoting the text.
  }
  throw new Refusal(
    `this is not the ${half} half of an Ed25519 key in PEM: openssl genpkey -algorithm ed25519 makes one`,
  )
}

/**
 * Writes a signed checkpoint to a new file; an existing file is never overwritten, because it is evidence. Throws `Refusal` if it cannot be
 * written.
 */
export async function writeCheckpoint(db: Kysely<Tables>, key: KeyObject, path: string): Promise<Checkpoint> {
  // One statement, so that all parts are of the same moment.
  const { rows } = await sql<{ at: string; rows: number; upgrade_sha256: string; heads: Head[] }>`
    select to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at,
      ((select count(*) from audit) + (select count(*) from access_event))::float8 as rows,
      ${UPGRADE_SHA256} as upgrade_sha256, array(${HEADS}) as heads`.execute(db)
  const [state] = rows
  if (state === undefined) throw new Error('no row of the state')
  const { heads, ...said } = state
  const text = heads.map(head => `${JSON.stringify(head)}\n`).join('')
  const checkpoint = { ...said, chains: heads.length, heads_sha256: sha256(text) }
  const line = JSON.stringify(checkpoint)
  const signature = sign(null, Buffer.from(line), key).toString('base64')
  try {
    writeFileSync(path, `${text}${line}\n${signature}\n`, { flag: 'wx' })
  } catch (error) {
    throw new Refusal(`${path} cannot be written (${reasonOf(error)})`)
  }
  return checkpoint
}

/** Checks the signature of a checkpoint. Throws `Refusal` if it is malformed or signed by another key. */
export async function checkSignature(path: string, key: KeyObject): Promise<Checkpoint> {
  const lines = readText(path).trimEnd().split('\n')
  const [said = '', signature = ''] = lines.splice(-2)
  if (!verify(null, Buffer.from(said), key, Buffer.from(signature, 'base64'))) {
    throw new Refusal(`${path} is not a checkpoint that was signed by this key`)
  }
  const checkpoint: Checkpoint = JSON.parse(said) // its signature is valid
  if (checkpoint.heads_sha256 !== sha256(lines.map(line => `${line}\n`).join(''))) {
    throw new Refusal(`${path} was changed: its lines are not those that were signed`)
  }
  return checkpoint
}

/** Reports chains whose last row at the checkpoint is missing or different now. The signature must be checked before. */
export async function checkpointFindings(trx: Transaction<Tables>, path: string): Promise<AuditFinding[]> {
  const problem = 'checkpoint_mismatch'
  const lines = readText(path).trimEnd().split('\n').slice(0, -1)
  const { upgrade_sha256 }: Checkpoint = JSON.parse(lines.pop() ?? '')
  const heads = sql`(
    select h ->> 0 as kind, h ->> 1 as subject, (h ->> 2)::integer as number, decode(h ->> 3, 'hex') as hash
    from json_array_elements(${`[${lines.join()}]`}::json) h)`
  const msg = 'the row that was last at the checkpoint is missing or was replaced'
  const findings = await headFindings(trx, heads, { problem, msg })
  const { rows } = await sql<{ upgrade: string }>`select ${UPGRADE_SHA256} as upgrade`.execute(trx)
  if (rows[0]?.upgrade !== upgrade_sha256) {
    const msg = 'what was noted at the upgrade to 2.0 is not what it was at the checkpoint'
    findings.push({ kind: 'upgrade', subject: '', number: 0, problem, msg })
  }
  return findings
}

/** Reports the given rows that are missing without a pruning event, or have another hash now. `heads` has kind, subject, number, hash. */
export async function headFindings(
  trx: Transaction<Tables>,
  heads: RawBuilder<unknown>,
  finding: Pick<AuditFinding, 'problem' | 'msg'>,
): Promise<AuditFinding[]> {
  const { rows } = await sql<Pick<AuditFinding, 'kind' | 'subject' | 'number'>>`
    select h.kind, h.subject, h.number from ${heads} h
    left join audit a on h.kind in ('persona', 'tool') and a.resource_kind = h.kind
      and a.resource_id = case when h.subject ~ '^[0-9]{1,10}$' then h.subject::bigint end
      and a.version_after = h.number
    left join access_event e on e.kind = h.kind and e.subject = h.subject and e.number = h.number
    left join access_chain c on h.kind in ('persona', 'tool') and c.kind = 'prune' and c.subject = h.kind || ':' || h.subject
    left join access_event p on p.kind = c.kind and p.subject = c.subject and p.number = c.number
    where encode(h.hash, 'hex') <> coalesce(encode(coalesce(a.hash, e.hash), 'hex'), case
      when p.detail ->> 'anchor_version' = h.number::text then p.detail ->> 'anchor_hash'
      when lpad(p.detail ->> 'anchor_version', 10, '0') > lpad(h.number::text, 10, '0') then encode(h.hash, 'hex') end, '')
    order by h.kind, h.subject`.execute(trx)
  return rows.map(row => ({ ...row, ...finding }))
}
