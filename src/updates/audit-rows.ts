import { type Insertable, type RawBuilder, type Selectable, sql } from 'kysely'
import type { RowTypes } from '../db/statements/row-statement.js'
import type { Param } from '../db/statements/statement.js'
import type { AuditTable, ResourceKind } from '../db/tables.js'
import { type AuditEntry, NO_KEY, type RequestKey } from './audit.js'

/** How the columns of an audit row travel: as their SQL type, bytes as hex. What is read and written follows from here. */
const COLUMNS = {
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
  command: 'text',
  salt: 'text',
  identity_hash: 'hex',
  fields: 'text[]',
  difference: 'json',
  difference_bytes: 'integer',
  difference_hash: 'hex',
  definition_before: 'hex',
  content_hash: 'hex',
  previous_hash: 'hex',
  hash: 'hex',
  idempotency_key: 'hex',
  request_fingerprint: 'hex',
} as const satisfies {
  [Column in keyof AuditTable]: Buffer extends Selectable<AuditTable>[Column] ? 'hex' : string
}

type ColumnName = keyof typeof COLUMNS
const NAMES = Object.keys(COLUMNS) as ColumnName[] // the keys of this very record

/** The values of an audit row in a row statement. */
export const AUDIT_TYPES = Object.fromEntries(
  NAMES.map(name => [name, COLUMNS[name] === 'hex' ? 'text' : COLUMNS[name]]),
) as RowTypes<AuditEntry & RequestKey>

type Written = { id: number; version: number; user: string | null; token: number | null }

/** SQL: the CTE that adds the audit row of each change. `source` has the changed rows with their values as `input`. */
export function insertAudit(
  kind: ResourceKind,
  source: RawBuilder<unknown>,
  param: Param<AuditEntry & RequestKey & Written>,
): RawBuilder<unknown> {
  const known: Partial<Record<ColumnName, RawBuilder<unknown>>> = {
    resource_kind: sql.lit(kind),
    resource_id: param('id'),
    version_before: param('version'),
    version_after: sql`${param('version')} + 1`,
    actor_id: param('user'),
    token_id: param('token'),
  }
  const sent = (name: ColumnName) => (COLUMNS[name] === 'hex' ? sql`decode(${param(name)}, 'hex')` : param(name))
  return sql`audited as (
        insert into audit (${sql.join(NAMES.map(name => sql.raw(name)))})
        select ${sql.join(NAMES.map(name => known[name] ?? sent(name)))}
        from ${source})`
}

/** The columns of an audit row for an insert without a writing statement. */
export function auditColumns(entry: AuditEntry & RequestKey) {
  const values = NAMES.map(name => {
    const value = entry[name]
    return [name, COLUMNS[name] === 'hex' && value !== null ? Buffer.from(String(value), 'hex') : value]
  })
  return Object.fromEntries(values) as Insertable<AuditTable>
}

/** SQL: the columns of the chain without the difference, which may have megabytes. */
export const ROW_COLUMNS = sql.join(
  NAMES.filter(name => isInChain(name) && name !== 'difference').map(name => shownColumn(name, COLUMNS[name])),
)

/** SQL: a column as the program sees it: bytes as hex, JSON as its text. */
function shownColumn(name: string, type: string): RawBuilder<unknown> {
  const column = sql.ref(name)
  if (type === 'hex') return sql`encode(${column}, 'hex') as ${column}`
  return type === 'json' ? sql`${column}::text as ${column}` : column
}

/** Whether the chain has this column: the key of a request is no part of it. */
function isInChain(name: ColumnName): name is keyof AuditEntry {
  return !(name in NO_KEY)
}
