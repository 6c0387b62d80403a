import { type Expression, type Insertable, type RawBuilder, type Selectable, sql } from 'kysely'
import { bytesOf, hexOf, lit, named, on, queries } from '../db/statements/queries.js'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import type { AuditTable, ResourceKind } from '../db/tables.js'
import type { AuditEntry } from './audit.js'

/** The SQL types in which the columns of an audit row are sent; `hex` is bytes as hex text. All statements on audit rows derive from this table. */
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
} as const satisfies {
  [Column in keyof AuditTable]: Buffer extends Selectable<AuditTable>[Column] ? 'hex' : string
}

type ColumnName = keyof typeof COLUMNS
const NAMES = Object.keys(COLUMNS) as ColumnName[]

/** The parameter types of an audit row in a statement. */
export const AUDIT_TYPES = Object.fromEntries(
  NAMES.map(name => [name, COLUMNS[name] === 'hex' ? 'text' : COLUMNS[name]]),
) as SqlTypes<AuditEntry>

type Written = { id: number; version: number; user: string | null; token: number | null }

/** SQL: the audit rows of a resource, as `a`. */
export function changesOf(kind: ResourceKind, id: Expression<number>) {
  return queries().selectFrom('audit as a').where('a.resource_kind', '=', lit(kind)).where('a.resource_id', '=', id)
}

/** SQL: the row that a statement changed; none if it changed nothing. */
export function changedRow() {
  return queries<{ changed: { version: number } }>().selectFrom('changed')
}

/** SQL: inserts an audit row for `changedRow`. */
export function insertAudit(kind: ResourceKind, param: Param<AuditEntry & Written>) {
  const known: Partial<Record<ColumnName, Expression<unknown>>> = {
    resource_kind: lit(kind),
    resource_id: param('id'),
    version_before: param('version'),
    version_after: on()(param('version'), '+', lit(1)),
    actor_id: param('user'),
    token_id: param('token'),
  }
  const sent = (name: ColumnName) =>
    COLUMNS[name] === 'hex' ? bytesOf(param(name) as Expression<string>) : param(name)
  const values = NAMES.map(name => named(known[name] ?? sent(name), name))
  return queries().insertInto('audit').columns(NAMES).expression(changedRow().select(values))
}

/** The columns of an audit row, for an insert by values. */
export function auditColumns(entry: AuditEntry) {
  const values = NAMES.map(name => {
    const value = entry[name]
    return [name, COLUMNS[name] === 'hex' && value !== null ? Buffer.from(String(value), 'hex') : value]
  })
  return Object.fromEntries(values) as Insertable<AuditTable>
}

/** SQL: the columns that the hash chain covers, except the difference, which can have megabytes. */
export const ROW_COLUMNS = sql.join(
  NAMES.filter(name => name !== 'difference').map(name => shownColumn(name, COLUMNS[name])),
)

/** SQL: a column as the program reads it: bytes as hex, JSON as text. */
function shownColumn(name: string, type: string): RawBuilder<unknown> {
  const column = sql.ref<Buffer>(name)
  if (type === 'hex') return sql`${hexOf(column)} as ${column}`
  return type === 'json' ? sql`${column}::text as ${column}` : column
}
