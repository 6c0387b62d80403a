import { hash } from 'node:crypto'
import { type Expression, type QueryCreator, sql } from 'kysely'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import type { AuditTable, Tables } from '../db/tables.js'

/** The author of a change, for the audit trail. `actor_id` is null for the operator. `command` is the `agentctl` command without secret or personal values. */
export type Actor = Pick<AuditTable, 'actor_id' | 'token_id' | 'request_id' | 'client_address' | 'command'>

/** The values of one field before and after a change. Secrets are shown as masks. */
export interface Change {
  field: string
  from: unknown
  to: unknown
}

/** A new audit row, without the columns that the inserting statement adds: the time and the hashes of the chain. */
export interface AuditEntry
  extends Actor,
    Pick<AuditTable, 'resource_kind' | 'resource_id' | 'version_before' | 'version_after' | 'fields'>,
    Pick<AuditTable, 'difference_bytes' | 'difference_hash'> {
  difference: string
  taken_from: string | null
  /** The hash of the replaced definition, in hex. Definitions are kept as long as an audit row refers to them. */
  definition_before: string | null
}

/** A new audit row as parameters of a statement. `entry` is a row of the type `audit_values` as text. */
export type AuditParameters = Record<'entry' | 'difference', string>

export const AUDIT_TYPES: SqlTypes<AuditParameters> = { entry: 'audit_values', difference: 'json' }

/** Returns the parameters. The order of the values is that of the members of `audit_values` and of the view `new_audit` (migration 0016). */
export function auditParameters(entry: AuditEntry): AuditParameters {
  const { resource_kind, resource_id, version_before, version_after, actor_id, token_id, request_id } = entry
  const { client_address, command, fields, difference_bytes, difference_hash, definition_before, taken_from } = entry
  const values = [
    ...[resource_kind, resource_id, version_before, version_after, actor_id, token_id, request_id, client_address],
    ...[command, `{${fields.join()}}`, difference_bytes, bytes(difference_hash.toString('hex'))],
    ...[definition_before && bytes(definition_before), taken_from],
  ]
  return { entry: `(${values.map(quoted).join()})`, difference: entry.difference }
}

const bytes = (hex: string) => `\\x${hex}`

/** Quotes a member of a row (PostgreSQL, section 8.16.6). PostgreSQL reads an empty member as null. */
const quoted = (value: string | number | null) =>
  value === null ? '' : `"${String(value).replaceAll(/["\\]/g, '\\$&')}"`

/** The columns that the hash of an audit row covers, in the order of the parameters of `audit_hash`. Neither pruning nor erasure changes them. */
const HASHED = [
  ...(['previous_hash', 'resource_kind', 'resource_id', 'version_before', 'version_after', 'at'] as const),
  ...(['actor_id', 'token_id', 'command', 'fields', 'difference_hash'] as const),
]

/** SQL: the hash of an audit row. `of` returns the expression for a column. */
export function auditHash(of: (column: (typeof HASHED)[number]) => Expression<unknown>) {
  return sql<Buffer>`audit_hash(${sql.join(HASHED.map(of))})`
}

/** SQL: the hash of the new audit row. `previous` is the hash of the row before it. */
export function nextHash(param: Param<AuditParameters>, previous: Expression<Buffer>) {
  return sql<Buffer>`next_audit_hash(${previous}, ${param('entry')})`
}

/** SQL: inserts an audit row with the hashes in `changed`. Inserts nothing if `changed` is empty. */
export function insertAudit<Parts>(param: Param<AuditParameters>, db: QueryCreator<Tables & Parts>) {
  return (db as unknown as QueryCreator<Tables>)
    .insertInto('new_audit')
    .expression(sql`select (${param('entry')}).*, ${param('difference')}, previous, hash from changed`)
    .returning('version_after as version')
}

/** Returns the SHA-256 of a string in UTF-8, in hex. */
export function sha256(text: string): string {
  return hash('sha256', text)
}
