import { type RawBuilder, sql } from 'kysely'
import type { Param } from '../db/statement.js'
import type { AuditEntry } from './audit.js'

/**
 * SQL: the CTE that adds the audit row of a change, if the CTE named `source` changed its row.
 * The parameters carry the fields of an `AuditEntry`.
 */
export function insertAudit(source: string, param: Param<AuditEntry>): RawBuilder<unknown> {
  return sql`audited as (
        insert into audit (
          resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id,
          client_address, fields, difference, difference_bytes, difference_hash, definition_before, previous_hash, hash)
        select ${param('resource_kind')}::text, ${param('resource_id')}::integer, ${param('version_before')}::integer,
          ${param('version_after')}::integer, ${param('at')}::timestamptz, ${param('actor_id')}::uuid,
          ${param('actor')}::text, ${param('token_id')}::integer, ${param('request_id')}::text,
          ${param('client_address')}::text, ${param('fields')}::text[], given.difference, octet_length(given.difference::text),
          decode(${param('difference_hash')}::text, 'hex'), decode(${param('definition_before')}::text, 'hex'),
          decode(${param('previous_hash')}::text, 'hex'), decode(${param('hash')}::text, 'hex')
        from ${sql.table(source)}, (select ${param('difference')}::json as difference) given)`
}
