import { createHash, createPrivateKey, createPublicKey, type Hash, type KeyObject, sign, verify } from 'node:crypto'
import { closeSync, createReadStream, openSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { type AuditFinding, scan } from './audit-verification/findings.js'
import { Refusal } from './refusal.js'

/*
 * A checkpoint is a file: a line for the last row of each chain, as JSON [kind, subject, number, hash], then a line with time,
 * counts and the SHA-256 of the lines before it, then the Ed25519 signature of that line. Kept where nobody who can write the
 * database can write, it shows which chains were cut, removed or rewritten since.
 */

/** What the signed line of a checkpoint says. `rows` are audit rows and events. */
export interface Checkpoint {
  at: string
  chains: number
  rows: number
  heads_sha256: string
  /** Of what the upgrade to 2.0 noted: nobody adds to it. */
  upgrade_sha256: string
}

type Head = [kind: string, subject: string, number: number, hash: string]

const HEADS_AT_ONCE = 1_000

/** The last row of each chain: as an agent or tool names it, of those that are gone the last one that is there. */
const HEADS = sql<{ head: Head }>`
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
  ) chain where number > 0`

const UPGRADE_SHA256 = sql<string>`(
  select encode(sha256(convert_to(coalesce(string_agg(
    concat_ws(' ', kind, subject, number, encode(hash, 'hex')), ',' order by kind, subject), ''), 'UTF8')), 'hex')
  from audit_upgrade_head)`

/** Reads a private or public key in PEM, as openssl writes it. Throws `Refusal`, without the text. */
export function readSigningKey(pem: string, half: 'private' | 'public'): KeyObject {
  try {
    const key = half === 'private' ? createPrivateKey(pem) : createPublicKey(pem)
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {
    // Not a key: said below, without what was given.
  }
  throw new Refusal(
    `this is not the ${half} half of an Ed25519 key in PEM: openssl genpkey -algorithm ed25519 makes one`,
  )
}

/** Writes a signed checkpoint into a new file. Throws `Refusal` where that is there already or cannot be made. */
export async function writeCheckpoint(db: Kysely<Database>, key: KeyObject, path: string): Promise<Checkpoint> {
  const file = newFile(path)
  try {
    return await db
      .transaction()
      .setIsolationLevel('repeatable read')
      .setAccessMode('read only')
      .execute(async trx => {
        const { rows } = await sql<Omit<Checkpoint, 'chains' | 'heads_sha256'>>`
          select to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at,
            ((select count(*) from audit) + (select count(*) from access_event))::float8 as rows,
            ${UPGRADE_SHA256} as upgrade_sha256`.execute(trx)
        const digest = createHash('sha256')
        let chains = 0
        for await (const { head } of scan(trx, 'chain_heads', HEADS, HEADS_AT_ONCE)) {
          writeLine(file, JSON.stringify(head), digest)
          chains++
        }
        const [state] = rows
        if (state === undefined) throw new Error('no row of the state')
        const checkpoint = { ...state, chains, heads_sha256: digest.digest('hex') }
        const line = JSON.stringify(checkpoint)
        writeLine(file, line)
        writeLine(file, sign(null, Buffer.from(line), key).toString('base64'))
        return checkpoint
      })
  } finally {
    closeSync(file)
  }
}

function newFile(path: string): number {
  try {
    return openSync(path, 'wx') // an older checkpoint is evidence
  } catch (error) {
    throw new Refusal(`${path} cannot be made (${(error as NodeJS.ErrnoException).code})`)
  }
}

function writeLine(file: number, line: string, digest?: Hash): void {
  writeSync(file, `${line}\n`)
  digest?.update(`${line}\n`)
}

/** Checks the signature of a checkpoint. Throws `Refusal` where it is not one, or not signed by this key. */
export async function checkSignature(path: string, key: KeyObject): Promise<Checkpoint> {
  const digest = createHash('sha256')
  const end: string[] = []
  for await (const line of linesOf(path)) {
    if (isHead(line)) digest.update(`${line}\n`)
    else end.push(line)
  }
  const [said = '', signature = '', ...more] = end
  if (more.length > 0 || !verify(null, Buffer.from(said), key, Buffer.from(signature, 'base64'))) {
    throw new Refusal(`${path} is not a checkpoint that was signed by this key`)
  }
  const checkpoint: Checkpoint = JSON.parse(said) // it is signed
  if (checkpoint.heads_sha256 !== digest.digest('hex')) {
    throw new Refusal(`${path} was changed: its lines are not those that were signed`)
  }
  return checkpoint
}

async function* linesOf(path: string): AsyncGenerator<string> {
  try {
    yield* createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY })
  } catch (error) {
    throw new Refusal(`${path} cannot be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

function isHead(line: string): boolean {
  return line.startsWith('[')
}

/** The chains of a checkpoint whose last row of that time is gone now, or another. Its signature was checked. */
export async function checkpointFindings(trx: Transaction<Database>, path: string): Promise<AuditFinding[]> {
  const findings: AuditFinding[] = []
  const problem = 'checkpoint_mismatch'
  let heads: Head[] = []
  const compare = async () => {
    const source = sql`(
      select h ->> 0 as kind, h ->> 1 as subject, (h ->> 2)::integer as number, decode(h ->> 3, 'hex') as hash
      from json_array_elements(${JSON.stringify(heads)}::json) h)`
    const msg = 'what was the last row at the checkpoint is gone, or another'
    findings.push(...(await headFindings(trx, source, { problem, msg })))
    heads = []
  }
  for await (const line of linesOf(path)) {
    if (isHead(line)) heads.push(JSON.parse(line))
    else if (line.startsWith('{')) {
      const { upgrade_sha256 }: Checkpoint = JSON.parse(line)
      const { rows } = await sql<{ isSame: boolean }>`select ${UPGRADE_SHA256} = ${upgrade_sha256} as "isSame"`.execute(
        trx,
      )
      const msg = 'what was noted at the upgrade to 2.0 is not what it was at the checkpoint'
      if (!rows[0]?.isSame) findings.push({ kind: 'upgrade', subject: '', number: 0, problem, msg })
    }
    if (heads.length === HEADS_AT_ONCE) await compare()
  }
  await compare()
  return findings
}

/** Which of some rows that once ended their chains are gone without a pruning, or others now. `heads`: kind, subject, number, hash. */
export async function headFindings(
  trx: Transaction<Database>,
  heads: RawBuilder<unknown>,
  finding: Pick<AuditFinding, 'problem' | 'msg'>,
): Promise<AuditFinding[]> {
  const { rows } = await sql<Pick<AuditFinding, 'kind' | 'subject' | 'number'>>`
    select h.kind, h.subject, h.number from ${heads} h
    left join audit a on h.kind in ('persona', 'tool') and a.resource_kind = h.kind
      and a.resource_id = case when h.subject ~ '^[0-9]{1,10}$' then h.subject::bigint end
      and a.version_after = h.number
    left join access_event e on e.kind = h.kind and e.subject = h.subject and e.number = h.number
    left join access_chain c on c.kind = 'prune' and c.subject = h.kind || ':' || h.subject
    left join access_event p on p.kind = c.kind and p.subject = c.subject and p.number = c.number
    where encode(h.hash, 'hex') <> coalesce(encode(coalesce(a.hash, e.hash), 'hex'), case
      when p.detail ->> 'anchor_version' = h.number::text then p.detail ->> 'anchor_hash'
      when lpad(p.detail ->> 'anchor_version', 10, '0') > lpad(h.number::text, 10, '0') then encode(h.hash, 'hex') end, '')
    order by h.kind, h.subject`.execute(trx)
  return rows.map(row => ({ ...row, ...finding }))
}
