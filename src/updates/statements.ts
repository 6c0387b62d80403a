import {
  type AliasableExpression,
  type Expression,
  type Generated,
  type Insertable,
  type Kysely,
  type OperationNodeSource,
  type SqlBool,
  sql,
  type Transaction,
} from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import type { Viewer } from '../auth/access.js'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import { VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { columnsOf, instant, lit, named, on, queries } from '../db/statements/queries.js'
import { type Param, type SqlTypes, statement } from '../db/statements/statement.js'
import type { PersonaTable, ProposalState, ResourceKind, Tables, VersionedTable } from '../db/tables.js'
import { type Actor, AUDIT_TYPES, type AuditEntry, type Change, nextHash } from './audit.js'
import type { AnyColumnField, SqlType } from './field-table.js'
import { recentChanges } from './precondition.js'
import type { ResourceTypes, VersionedResource, VersionedState } from './resource.js'

const { case: choose, cast, eb } = on()

interface Versioned extends VersionedTable {
  id: Generated<number>
}

/** SQL: the row `alias` as `VersionedState` JSON, with the given members added. */
export function versionedState<State extends VersionedState>(
  alias: string,
  members: Record<string, Expression<unknown>>,
): AliasableExpression<State> {
  const row = columnsOf<Versioned>(alias)
  const own = { id: row('id'), version: row('version'), recent_changes: row('recent_changes') }
  const columns = Object.entries<Expression<unknown>>({ ...own, ...members }).map(([name, value]) => named(value, name))
  return jsonObjectFrom(queries().selectNoFrom(columns)).$castTo<State>()
}

/** The statements that read an agent or a tool. `lookup`, for routes, also reads the caller; `read` returns the state as its viewer sees it. */
export function readsOf<State>(
  kind: ResourceKind,
  query: (viewer: Viewer, id: Expression<number>) => Expression<{ state: State }> & OperationNodeSource,
) {
  const ofCaller = callerStatement(`caller_and_${kind}`, id => query(viewerOfCaller, id))
  const types = { ...VIEWER_TYPES, id: 'integer' }
  const read = statement<ViewerParameters & { id: number }, { state: State }>(`${kind}_state`, types, param =>
    query(viewerOf(param), param('id')),
  )
  return { lookup: { parameter: `${kind}_id`, statement: ofCaller }, read }
}

/** SQL: the value of a column as states and audit rows contain it. A timestamp becomes UTC text with microseconds. */
export function columnValue(column: Expression<unknown>, type: SqlType): Expression<unknown> {
  return type === 'timestamptz' ? instant(column as Expression<string>) : column // other columns keep their type
}

/** The parameters of every statement that writes an agent or a tool. The changes are JSON texts. */
export type WriteParameters = ViewerParameters & AuditEntry & { id: number; version: number } & ChangeTexts
type ChangeTexts = Record<'changed_columns' | 'field_versions' | 'recent_changes', string>

export const WRITE_TYPES: SqlTypes<WriteParameters> = {
  ...VIEWER_TYPES,
  ...AUDIT_TYPES,
  ...{ id: 'integer', version: 'integer' },
  ...{ changed_columns: 'jsonb', field_versions: 'jsonb', recent_changes: 'jsonb' },
}

/** The columns that every write sets on the row `alias`, in addition to the content. */
export function nextVersion(alias: string, param: Param<WriteParameters>) {
  const row = columnsOf<Versioned>(alias)
  return {
    version: eb(row('version'), '+', lit(1)),
    field_versions: eb(row('field_versions'), '||', param('field_versions') as Expression<never>).$castTo<string>(), // both sides are JSON
    recent_changes: param('recent_changes'),
    audit_head: nextHash(param, row('audit_head')),
  }
}

/** SQL: for each column, the new value if the JSON contains one, otherwise the old value. The same SQL text serves every set of changes. */
export function changedColumns<Column extends string>(
  alias: string,
  columns: readonly (readonly [Column, AnyColumnField])[],
  changed: Expression<string>,
): Record<Column, Expression<never>> {
  const own = columnsOf<Record<Column, never>>(alias)
  const values = columns.map(([name, { column: type }]) => {
    const key = lit(name)
    const given = type === 'json' ? sql`nullif(${changed} -> ${key}, 'null')` : sql`(${changed} ->> ${key})`
    const value = cast<never>(given, type)
    return [name, choose().when(changed, '?', key).then(value).else(own(name)).end()]
  })
  return Object.fromEntries(values) // the table of fields has each column once
}

/** The parameters that all writes have. */
export function writeParameters(
  columns: readonly (readonly [string, AnyColumnField])[],
  { id, name, version, recent_changes }: VersionedState,
  changes: readonly Change[],
  viewer: ViewerParameters,
  entry: AuditEntry,
): WriteParameters {
  const ofColumns = changes.filter(({ field }) => columns.some(([column]) => column === field))
  const changed_columns = JSON.stringify(Object.fromEntries(ofColumns.map(({ field, to }) => [field, to])))
  const edited = name === '' ? [] : changes.map(({ field }) => field) // a creation edits no field
  const texts = {
    changed_columns,
    field_versions: JSON.stringify(Object.fromEntries(edited.map(field => [field, version + 1]))),
    recent_changes: JSON.stringify(recentChanges(recent_changes, edited, entry.actor_id)),
  }
  return { id, version, ...texts, ...viewer, ...entry }
}

/** Takes the next id from the sequence. The id stays used even if the transaction fails. */
export async function nextId(db: Kysely<Tables>, kind: ResourceKind): Promise<number> {
  const next = sql<number>`nextval(pg_get_serial_sequence(${kind}, 'id')::regclass)::integer`
  return (await db.selectNoFrom(next.as('id')).executeTakeFirstOrThrow()).id
}

/**
 * Inserts a blank agent or tool at version 0. The creation then updates it to version 1 with an audit row. If a removed resource had the id, its
 * audit chain is continued. Returns false if the id is in use.
 */
export async function insertBlank(
  trx: Transaction<Tables>,
  { kind, newRow }: Pick<VersionedResource<ResourceTypes>, 'kind' | 'newRow'>,
  id: number,
  owner: string | null,
): Promise<boolean> {
  const row: unknown = { ...newRow(owner), ...(await endOfChain(trx, kind, id)), id } // the table of fields has a blank value for each column
  const insert = trx.insertInto(kind as 'persona').values(row as Insertable<PersonaTable>)
  const inserted = await insert.onConflict(conflict => conflict.column('id').doNothing()).executeTakeFirst()
  return inserted.numInsertedOrUpdatedRows === 1n
}

async function endOfChain(trx: Transaction<Tables>, kind: ResourceKind, id: number) {
  const rows = trx.selectFrom('audit').where('resource_kind', '=', kind).where('resource_id', '=', id).limit(1)
  const last = await rows.select(['version_after', 'hash']).orderBy('version_after', 'desc').executeTakeFirst()
  const hashed = rows.select('previous_hash').where('hash', 'is not', null).orderBy('version_after')
  const first = await hashed.executeTakeFirst()
  const [audit_head, audit_anchor] = [last?.hash ?? NO_HASH, first?.previous_hash ?? NO_HASH]
  return { version: last?.version_after ?? 0, audit_head, audit_anchor }
}

const NO_HASH = Buffer.alloc(32)

/** Locks a row, if it exists, against other writers until the transaction ends. */
export async function lockRow(trx: Transaction<Tables>, kind: ResourceKind, id: number): Promise<void> {
  await trx.selectFrom(kind).select('id').where('id', '=', id).forNoKeyUpdate().execute()
}

/** The audit row of a decision. */
export function auditEntry<T extends ResourceTypes>(
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
  actor: Actor,
): AuditEntry {
  const { changes, replaced = null, command = actor.command } = decision
  const taken = resource.takenFrom?.(state, decision.after) ?? null
  return {
    resource_kind: resource.kind,
    resource_id: state.id,
    version_after: state.version + 1,
    ...actor,
    command,
    fields: changes.map(change => change.field),
    difference: JSON.stringify(Object.fromEntries(changes.map(({ field, from, to }) => [field, { from, to }]))),
    definition_before: replaced,
    taken_from: taken && JSON.stringify(taken),
  }
}

const KEPT_BYTES_MAX = 4 * 1024

/**
 * Ends the matching open proposals and removes their long values. Returns their number. Callers that also change the record must have locked it.
 * `by` is null for the operator.
 */
export async function endProposals(
  trx: Kysely<Tables>,
  end: { state: ProposalState; by: string | null; reason?: string },
  match: Expression<SqlBool>,
): Promise<number> {
  const { state, by: closed_by, reason = null } = end
  const update = trx
    .updateTable('proposal')
    .set({ state, closed_by, closed_at: sql<string>`clock_timestamp()`, reason })
    .set({ definition_hash: null, fields: sql`${KEPT}`, size_bytes: sql`octet_length(${KEPT}::text)` })
    .set({ closed_transaction_id: sql`pg_current_xact_id()`, closed_place: sql`nextval('change_place')` })
    .where('state', '=', 'open')
    .where(match)
  return Number((await update.executeTakeFirst()).numUpdatedRows)
}

/** SQL: the fields of a proposal, with null for long values and the definition. */
const KEPT = sql`(
  select json_object_agg(key, case when key <> 'definition' and octet_length(value::text) <= ${sql.lit(KEPT_BYTES_MAX)} then value end)
  from json_each(fields))`

/** Closes the open proposals of a record if the change deletes it. */
export async function closeProposals(trx: Kysely<Tables>, entry: AuditEntry): Promise<void> {
  const { resource_kind: kind, resource_id: id, actor_id: by, fields } = entry
  if (!fields.includes('deleted') && !fields.includes('removed')) return
  await endProposals(trx, { state: 'closed', by }, sql<boolean>`resource_kind = ${kind} and resource_id = ${id}`)
}
