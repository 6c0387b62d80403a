import { type Kysely, sql } from 'kysely'
import type { Database } from '../db/tables.js'
import { eventText, readEvents } from '../updates/access-events.js'
import { auditText } from '../updates/audit.js'
import { growTree, readLeaves, readTree } from '../updates/audit-leaves.js'
import { readRows } from '../updates/audit-rows.js'
import { HashTree, siblingsOf } from '../updates/hash-tree.js'
import { RESOURCE_KINDS } from '../updates/resource-pages.js'
import { placeOf } from './audit-verification/findings.js'
import { readNote, type SigningKey, signedNote } from './checkpoint.js'
import { ERASED } from './erasure.js'
import { Refusal } from './refusal.js'

/** That one change is in the tree of a checkpoint: what `ops/verify-proof.mjs` checks without a database. */
export interface InclusionProof {
  /** SHA-256 of `hashed`, hex: the leaf's data. */
  hash: string
  /** The text of the row or event that was hashed; null where the clear text in it was erased. */
  hashed: string | null
  /** What changed, or the state of access: its SHA-256 stands in `hashed`. Null where it was pruned. */
  content: string | null
  /** Who made the change: the commitment to it stands in `hashed`. Null where it was erased, or stands there itself. */
  identity: { salt: string; actor: string; client_address: string } | null
  /** Whom an event concerns, in the same way. */
  person: { salt: string; name: string } | null
  /** The place of the leaf, from 0, and the nodes beside its way to the root, base64. */
  index: number
  path: string[]
  /** The signed note with the root. */
  checkpoint: string
}

/** Adds what is new to the tree, and answers a checkpoint of it. */
export async function makeCheckpoint(db: Kysely<Database>, key: SigningKey): Promise<{ size: number; note: string }> {
  await growTree(db)
  const tree = await readTree(db)
  return { size: tree.size, note: signedNote({ size: tree.size, root: tree.root() }, key) }
}

/** The audit row or access event that is to be proved; `number` is the version of an agent (`persona`) or tool. */
export interface ProvedChange {
  kind: string
  subject: string
  number: number
}

/**
 * Proves that a change is in the tree of a checkpoint. Throws `Refusal` when it is not kept, or not in that tree, and when the
 * database is not the one that the checkpoint was made of.
 */
export async function proveChange(
  db: Kysely<Database>,
  change: ProvedChange,
  checkpoint: { note: string; verifier: string },
): Promise<InclusionProof> {
  const { kind, subject, number } = change
  const { size, root } = readNote(checkpoint.note, checkpoint.verifier)
  const leaf = await db
    .selectFrom('audit_leaf')
    .select(['position', 'hash'])
    .where('kind', '=', kind)
    .where('subject', '=', subject)
    .where('number', '=', number)
    .executeTakeFirst()
  const name = `${placeOf({ kind, subject })} ${number}`
  if (leaf === undefined || leaf.position >= size) throw new Refusal(`${name} is not in the tree of the checkpoint`)
  const disclosed = await disclosureOf(db, change)
  if (disclosed === undefined) throw new Refusal(`${name} was pruned: only its hash is kept, at place ${leaf.position}`)
  const path = await inclusionPath(db, leaf.position, size, root)
  const hash = leaf.hash.toString('hex')
  return { hash, ...disclosed, index: leaf.position, path, checkpoint: checkpoint.note }
}

type Disclosure = Pick<InclusionProof, 'hashed' | 'content' | 'identity' | 'person'>

async function disclosureOf(
  db: Kysely<Database>,
  { kind, subject, number }: ProvedChange,
): Promise<Disclosure | undefined> {
  if (RESOURCE_KINDS.some(resource => resource === kind)) {
    const place = sql`resource_kind = ${kind} and resource_id = ${subject}::integer and version_after = ${number}::integer`
    const [row] = await readRows(db, place)
    if (row === undefined) return undefined
    const { salt, actor, client_address } = row
    const isErasedText = row.identity_hash === null && actor === ERASED
    const identity = salt === null ? null : { salt, actor, client_address }
    if (isErasedText) return { hashed: null, content: null, identity: null, person: null }
    return { hashed: auditText(row), content: row.difference, identity, person: null }
  }
  const place = sql`kind = ${kind} and subject = ${subject} and number = ${number}::integer`
  const [event] = await readEvents(db, place)
  if (event === undefined) return undefined
  const { salt, actor, client_address, person, person_salt } = event
  return {
    hashed: eventText(event),
    content: event.detail,
    identity: salt === null ? null : { salt, actor, client_address },
    person: person === null || person_salt === null ? null : { salt: person_salt, name: person },
  }
}

/** The roots of the ranges beside the way of a leaf, in one pass over all leaves. */
async function inclusionPath(db: Kysely<Database>, index: number, size: number, root: Buffer): Promise<string[]> {
  const siblings = siblingsOf(index, size).map(range => ({ ...range, tree: new HashTree() }))
  const whole = new HashTree()
  for await (const { position, hash } of readLeaves(db, size)) {
    if (position !== whole.size) break
    whole.add(hash)
    siblings.find(({ start, end }) => position >= start && position < end)?.tree.add(hash)
  }
  if (whole.size !== size || !whole.root().equals(root)) {
    throw new Refusal('this database is not the one of the checkpoint: agentctl audit verify --checkpoint FILE')
  }
  return siblings.map(({ tree }) => tree.root().toString('base64'))
}
