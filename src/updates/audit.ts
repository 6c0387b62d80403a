import { hash } from 'node:crypto'
import type { ResourceKind } from '../db/tables.js'

/** Who makes a change, for the audit trail. `name` is an email, or `agentctl` for a change by the operator. */
export interface Actor {
  id: string | null
  name: string
  tokenId: number | null
  requestId: string
  clientAddress: string
}

/** One field's stored value before and after a change. Secrets appear as masks only. */
export interface Change {
  field: string
  from: unknown
  to: unknown
}

/** The resource as it stood before the change: where its chain of audit rows ends. `audit_head` is hex. */
export interface ChainEnd {
  kind: ResourceKind
  id: number
  version: number
  audit_head: string
}

/** One row of the audit trail. Hashes are hex, `at` is UTC with microseconds, `difference` is JSON text. */
export interface AuditEntry {
  resource_kind: ResourceKind
  resource_id: number
  version_before: number
  version_after: number
  at: string
  actor_id: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  fields: string[]
  difference: string
  difference_hash: string
  definition_before: string | null
  previous_hash: string
  hash: string
}

export const GENESIS_HASH = '0'.repeat(64)

/**
 * The audit row of one effective change, linked to the row before it.
 *
 * The chain runs per resource, so writers of different resources never wait for each other. The hash covers the
 * difference by its own hash: pruning a stored difference leaves the chain verifiable (DECISIONS section 10).
 * `definitionBefore` is the hash of the tool definition that the change replaced, which keeps that text alive.
 */
export function auditEntry(
  end: ChainEnd,
  changes: Change[],
  actor: Actor,
  atMs: number,
  definitionBefore: string | null = null,
): AuditEntry {
  const difference = JSON.stringify(Object.fromEntries(changes.map(({ field, from, to }) => [field, { from, to }])))
  const entry = {
    resource_kind: end.kind,
    resource_id: end.id,
    version_before: end.version,
    version_after: end.version + 1,
    at: new Date(atMs).toISOString().replace('Z', '000Z'),
    actor_id: actor.id,
    actor: actor.name,
    token_id: actor.tokenId,
    request_id: actor.requestId,
    client_address: actor.clientAddress,
    fields: changes.map(change => change.field),
    difference,
    difference_hash: sha256(difference),
    definition_before: definitionBefore,
    previous_hash: end.audit_head,
  }
  return Object.assign(entry, { hash: auditHash(entry) })
}

/**
 * The hash of an audit row: SHA-256 over its fields in a fixed order, the difference by its own hash. Hex.
 * `definition_before` is no part of it: the difference names the same hash, and it goes when the difference is pruned.
 */
export function auditHash(entry: Omit<AuditEntry, 'difference' | 'definition_before' | 'hash'>): string {
  return sha256(
    JSON.stringify([
      entry.resource_kind,
      entry.resource_id,
      entry.version_before,
      entry.version_after,
      entry.at,
      entry.actor_id,
      entry.actor,
      entry.token_id,
      entry.request_id,
      entry.client_address,
      entry.fields,
      entry.difference_hash,
      entry.previous_hash,
    ]),
  )
}

/** SHA-256 of a text's UTF-8 bytes, in hex. */
export function sha256(text: string): string {
  return hash('sha256', text)
}
