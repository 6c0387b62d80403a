import { hash } from 'node:crypto'
import { type Expression, type QueryCreator, sql } from 'kysely'
import { bytesOf, lit, named, on, queries } from '../db/statements/queries.js'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import type { AuditTable, Tables } from '../db/tables.js'

/** The author of a change in the audit trail. `actor_id` is null for the operator. `command` is the `agentctl` command without secret or personal values. */
export type Actor = Pick<AuditTable, 'actor_id' | 'token_id' | 'request_id' | 'client_address' | 'command'>

/** The values of one field before and after a change. Secrets are shown as masks. */
export interface Change {
  field: string
  from: unknown
  to: unknown
}

/** A new audit row, without the columns that the inserting statement adds: the time, the earlier version and the hashes. */
export interface AuditEntry
  extends Actor,
    Pick<
      AuditTable,
      'resource_kind' | 'resource_id' | 'version_after' | 'fields' | 'difference_bytes' | 'difference_hash'
    > {
  difference: string
  taken_from: string | null
  /** The hash of the replaced definition in hex. The definition stays stored while an audit row refers to it. */
  definition_before: string | null
}

export const AUDIT_TYPES: SqlTypes<AuditEntry> = {
  resource_kind: 'text',
  resource_id: 'integer',
  version_after: 'integer',
  actor_id: 'uuid',
  token_id: 'integer',
  request_id: 'text',
  client_address: 'text',
  command: 'text',
  fields: 'text[]',
  difference: 'json',
  ...{ difference_bytes: 'integer', difference_hash: 'bytea' },
  definition_before: 'text',
  taken_from: 'jsonb',
}

/** The columns that the hash of an audit row covers, in the order of `audit_hash`. Neither pruning nor erasure changes them. */
const HASHED = [
  ...(['previous_hash', 'resource_kind', 'resource_id', 'version_before', 'version_after', 'at'] as const),
  ...(['actor_id', 'token_id', 'command', 'fields', 'difference_hash'] as const),
]

/** SQL: the hash of an audit row. `of` returns the expression for a column. */
export function auditHash(of: (column: (typeof HASHED)[number]) => Expression<unknown>) {
  return sql<Buffer>`audit_hash(${sql.join(HASHED.map(of))})`
}

/** SQL: the columns of a new audit row except `previous_hash` and `hash`. The time is the same in all parts of a statement. */
function newRow(param: Param<AuditEntry>) {
  const names = Object.keys(AUDIT_TYPES) as (keyof AuditEntry)[]
  const sent = Object.fromEntries(names.map(name => [name, param(name)])) as Record<
    keyof AuditEntry,
    Expression<unknown>
  >
  return {
    ...sent,
    definition_before: bytesOf(param('definition_before')),
    version_before: on()(param('version_after'), '-', lit(1)),
    at: sql<string>`statement_timestamp()`,
  }
}

/** SQL: the hash of the new audit row. `previous` is the hash of the row before it. */
export function nextHash(param: Param<AuditEntry>, previous: Expression<Buffer>) {
  const row = { ...newRow(param), previous_hash: previous }
  return auditHash(column => row[column])
}

/** SQL: inserts the audit row for the row in `changed`, which has the new hash. Inserts nothing if `changed` is empty. */
export function insertAudit<Parts extends Changed>(param: Param<AuditEntry>, db: QueryCreator<Tables & Parts>) {
  const values = newRow(param)
  const columns = Object.entries<Expression<unknown>>(values).map(([name, value]) => named(value, name))
  return (db as unknown as QueryCreator<Tables>)
    .insertInto('audit')
    .columns([...(Object.keys(values) as (keyof typeof values)[]), 'previous_hash', 'hash'])
    .expression(
      queries<Changed>()
        .selectFrom('changed')
        .select([...columns, 'changed.previous', 'changed.hash']),
    )
    .returning('version_after as version')
}

interface Changed {
  changed: { previous: Buffer; hash: Buffer }
}

/** Returns the SHA-256 of a string in UTF-8, in hex. */
export function sha256(text: string): string {
  return hash('sha256', text)
}
