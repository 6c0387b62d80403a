import { type RawBuilder, sql } from 'kysely'
import type { RowTypes } from '../db/statements/row-statement.js'
import type { Param } from '../db/statements/statement.js'
import type { AuditEntry } from './audit.js'

/** The values of an audit row in a row statement. */
export const AUDIT_TYPES: RowTypes<AuditEntry> = {
  resource_kind: 'text',
  resource_id: 'integer',
  version_before: 'integer',
  version_after: 'integer',
  at: 'timestamptz',
  actor_id: 'uuid',
  actor: 'text',
  token_id: 'integer',
  request_id: 'text',
  client_address: 'text',
  fields: 'text[]',
  difference: 'json',
  difference_hash: 'text',
  definition_before: 'text',
  previous_hash: 'text',
  hash: 'text',
}

/**
 * SQL: the CTE that adds the audit row of each change. `source` is what it selects from: the rows that were changed, with
 * their values as `input`, which carry the fields of an `AuditEntry`.
 */
export function insertAudit(source: RawBuilder<unknown>, param: Param<AuditEntry>): RawBuilder<unknown> {
  return sql`audited as (
        insert into audit (
          resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id,
          client_address, fields, difference, difference_bytes, difference_hash, definition_before, previous_hash, hash)
        select ${param('resource_kind')}, ${param('resource_id')}, ${param('version_before')}, ${param('version_after')},
          ${param('at')}, ${param('actor_id')}, ${param('actor')}, ${param('token_id')}, ${param('request_id')},
          ${param('client_address')}, ${param('fields')}, ${param('difference')},
          octet_length(${param('difference')}::text), decode(${param('difference_hash')}, 'hex'),
          decode(${param('definition_before')}, 'hex'), decode(${param('previous_hash')}, 'hex'),
          decode(${param('hash')}, 'hex')
        from ${source})`
}
