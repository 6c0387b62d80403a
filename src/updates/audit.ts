import { hash, randomUUID } from 'node:crypto'
import type { Selectable } from 'kysely'
import { instantText, instantUs } from '../db/clock.js'
import type { AuditTable, ResourceKind } from '../db/tables.js'

/** The author of a change, for the audit trail. `name` is an email, or `agentctl` for a change by the operator. */
export interface Actor {
  id: string | null
  name: string
  tokenId: number | null
  requestId: string
  clientAddress: string
  /** The command line of `agentctl` without secret or personal values; null for a request. */
  command: string | null
}

/** One field's stored value before and after a change. Secrets appear as redactions only. */
export interface Change {
  field: string
  from: unknown
  to: unknown
}

/** The resource before the change. `audit_head` is the hash of its last audit row in hex; `made_at` is the time of that version, if known. */
interface ChainEnd {
  kind: ResourceKind
  id: number
  version: number
  audit_head: string
  made_at?: string | null
}

/** The type of a column as the program reads it: bytes are hex. */
export type Shown<Value> = Value extends Buffer ? string : Value

/** An audit row as it is stored, without its difference. Bytes are hex, `at` is UTC with microseconds. */
export type StoredRow = {
  [Column in Exclude<keyof AuditTable, 'difference'>]: Shown<Selectable<AuditTable>[Column]>
}

/** A new audit row, before any pruning or erasure. `difference` is JSON text. */
export type AuditEntry = StoredRow & { difference: string; salt: string; identity_hash: string }

export const GENESIS_HASH = '0'.repeat(64)

/**
 * Makes the audit row of one change, linked to the previous row of the same resource. Its hash covers only the hash of the difference and a
 * salted commitment to the author, so that both can be removed and the chain still verifies (DECISIONS section 10).
 */
export function auditEntry(
  end: ChainEnd,
  changes: Change[],
  actor: Actor,
  atMs: number,
  /** Hashes in hex. A stored definition is kept while an audit row names it as `definitionBefore`. */
  content: { definitionBefore: string | null; contentHash: string | null },
): AuditEntry {
  const difference = JSON.stringify(Object.fromEntries(changes.map(({ field, from, to }) => [field, { from, to }])))
  const salt = randomUUID()
  const entry = {
    resource_kind: end.kind,
    resource_id: end.id,
    version_before: end.version,
    version_after: end.version + 1,
    at: auditTime(atMs, end.made_at ?? null),
    actor_id: actor.id,
    actor: actor.name,
    token_id: actor.tokenId,
    request_id: actor.requestId,
    client_address: actor.clientAddress,
    command: actor.command,
    salt,
    identity_hash: commitment(salt, actor.name, actor.clientAddress),
    fields: changes.map(change => change.field),
    difference,
    difference_bytes: Buffer.byteLength(difference),
    difference_hash: sha256(difference),
    definition_before: content.definitionBefore,
    content_hash: content.contentHash,
    previous_hash: end.audit_head,
  }
  return Object.assign(entry, { hash: auditHash(entry) })
}

/** The time of an audit row. It is always later than `after`, even if the database's clock was set back: versions are looked up by time. */
export function auditTime(atMs: number, after: string | null): string {
  return instantText(Math.max(Math.floor(atMs * 1_000), after ? instantUs(after) + 1 : 0))
}

/** The hash of an audit row in hex. It leaves out `definition_before`, which pruning removes together with the difference. */
export function auditHash(entry: Omit<StoredRow, 'salt' | 'definition_before' | 'hash'>): string {
  const { resource_kind, resource_id, version_before, version_after, at, actor_id, identity_hash, token_id } = entry
  const { request_id, command, difference_bytes, content_hash, fields, difference_hash, previous_hash } = entry
  return sha256(
    JSON.stringify([
      ...[resource_kind, resource_id, version_before, version_after, at, actor_id, identity_hash, token_id, request_id],
      ...[command, difference_bytes, content_hash, fields, difference_hash, previous_hash],
    ]),
  )
}

/** A salted hash in hex of texts that may have to be erased later. Without the salt the texts cannot be guessed from it. */
export function commitment(salt: string, ...texts: readonly string[]): string {
  return sha256(JSON.stringify([salt, ...texts]))
}

/** SHA-256 of a text's UTF-8 bytes, in hex. */
export function sha256(text: string): string {
  return hash('sha256', text)
}
