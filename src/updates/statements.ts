import { hash } from 'node:crypto'
import {
  type Compilable,
  type Expression,
  type Generated,
  type Insertable,
  type Kysely,
  type OperationNodeSource,
  type QueryCreator,
  type SelectQueryBuilder,
  sql,
  type Transaction,
} from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import { VIEWER_TYPES, type Viewer, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { columnsOf, lit, on, queries } from '../db/statements/queries.js'
import { type Executor, type Param, type SqlTypes, type Statement, statement } from '../db/statements/statement.js'
import type { PersonaTable, ResourceKind, Tables, VersionedTable } from '../db/tables.js'
import type { AnyColumnField } from './field-table.js'
import { recentChanges } from './precondition.js'
import type { Actor, AuditEntry, Decision, ResourceTypes, VersionedResource, VersionedState } from './resource.js'

const { eb } = on()

interface Versioned extends VersionedTable {
  id: Generated<number>
}

/** Returns two statements that read an agent or tool with `query`. `lookup` also reads the caller of the request. `read` uses a given viewer. */
export function readsOf<State>(
  kind: ResourceKind,
  query: (viewer: Viewer, id: Expression<number>) => SelectQueryBuilder<Tables, never, State>,
) {
  const ofCaller = callerStatement(`caller_and_${kind}`, id => jsonObjectFrom(query(viewerOfCaller, id)))
  const types = { ...VIEWER_TYPES, id: 'integer' }
  const read = statement<ViewerParameters & { id: number }, { state: State }>(`${kind}_state`, types, param =>
    asJson(query(viewerOf(param), param('id'))),
  )
  return { lookup: { parameter: `${kind}_id`, statement: ofCaller }, read }
}

/** Runs a query and returns the JSON form of each row. */
export async function readStates<State>(db: Kysely<Tables>, query: SelectQueryBuilder<Tables, never, State>) {
  return (await db.executeQuery(asJson(query).compile())).rows.map(({ state }) => state)
}

/** SQL: the rows of `query` as JSON, so that values have the same form in every statement. */
function asJson<State>(query: SelectQueryBuilder<Tables, never, State>) {
  return queries().selectFrom(query.as('row')).select(sql<State>`to_json("row")`.as('state'))
}

/** The parameters for a new audit row. `entry` is the text form of a value of the SQL type `audit_values`. */
export type AuditParameters = Record<'entry' | 'difference', string>

export const AUDIT_TYPES: SqlTypes<AuditParameters> = { entry: 'audit_values', difference: 'json' }

/** The parameters of every statement that writes an agent or a tool. */
export type WriteParameters = ViewerParameters &
  AuditParameters & { id: number; version: number; recent_changes: string }

const WRITE_TYPES: SqlTypes<WriteParameters> = {
  ...VIEWER_TYPES,
  ...AUDIT_TYPES,
  ...{ id: 'integer', version: 'integer', recent_changes: 'jsonb' },
}

/** Returns the columns that every write sets in addition to the content. `alias` is the SQL alias of the written row. */
export function nextVersion(alias: string, param: Param<WriteParameters>) {
  const row = columnsOf<Versioned>(alias)
  return {
    version: eb(row('version'), '+', lit(1)),
    recent_changes: param('recent_changes'),
    audit_head: nextHash(param, row('audit_head')),
  }
}

/** The maximum number of prepared statements for one kind of resource. Each database connection keeps its prepared statements in memory. */
const SETS_MAX = 50

/**
 * Returns a function that stores a decision with one statement. That function returns the statement's row, or undefined if nothing was stored. The
 * first `SETS_MAX` sets of changed columns get their own prepared statements. All other sets share one statement that writes all columns.
 * `changed` has a parameter for each written column. `Own` has the parameters that only this kind of resource has.
 */
export function writing<Name extends string, Own extends object, R>(
  name: string,
  columns: readonly (readonly [Name, AnyColumnField])[],
  types: SqlTypes<Own>,
  build: (
    param: Param<Own & WriteParameters>,
    changed: Record<Name, Expression<never>>,
  ) => Compilable<R> & OperationNodeSource,
) {
  type Parameters = Own & WriteParameters & Record<Name, never>
  const built = new Map<string, Statement<Parameters, R>>()
  const make = (set: typeof columns) => {
    const all = {
      ...WRITE_TYPES,
      ...types,
      ...Object.fromEntries(set.map(([column, { column: type }]) => [column, type])),
    }
    return statement<Parameters, R>(
      name,
      all as SqlTypes<Parameters>,
      param => {
        const changed = set.map(([column]) => [column, param(column as keyof Parameters & Name)])
        return build(param as Param<Own & WriteParameters>, Object.fromEntries(changed))
      },
      'writes',
    )
  }
  return async (
    db: Executor,
    own: Own,
    { id, name, version, recent_changes }: VersionedState,
    { changes, after }: Decision,
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<R | undefined> => {
    const fields = changes.map(({ field }) => field)
    const changed = columns.filter(([column]) => fields.includes(column))
    const names = changed.map(([column]) => column).join()
    const [set, key] = built.has(names) || built.size < SETS_MAX ? [changed, names] : [columns, 'all']
    const write = built.get(key) ?? make(set)
    built.set(key, write)
    const values = set.map(([column, { column: type }]) => {
      const value = (after as object as Record<string, unknown>)[column] // the state has all columns of the resource
      return [column, type === 'json' && value !== null ? JSON.stringify(value) : value]
    })
    const edited = name === '' ? [] : fields // a creation does not count as a recent change
    const recent = JSON.stringify(recentChanges(recent_changes, edited, entry.actor_id))
    const given: Own & Record<Name, never> = { ...own, ...Object.fromEntries(values) }
    // V8 spreads objects much faster if a named property comes first.
    return await write.first(db, {
      id,
      version,
      recent_changes: recent,
      ...viewer,
      ...auditParameters(entry),
      ...given,
    })
  }
}

/** Returns the next id of the sequence. The id is not reused if the transaction fails. */
export async function nextId(db: Kysely<Tables>, kind: ResourceKind): Promise<number> {
  const next = sql<number>`nextval(pg_get_serial_sequence(${kind}, 'id')::regclass)::integer`
  return (await db.selectNoFrom(next.as('id')).executeTakeFirstOrThrow()).id
}

/**
 * Inserts an agent or tool with initial values, which the creation then updates. If a removed resource had the same id, the new row
 * continues the versions and the audit chain of that resource. Otherwise, its version is 0. Returns false if the id is in use.
 */
export async function insertBlank(
  trx: Transaction<Tables>,
  { kind, newRow }: Pick<VersionedResource<ResourceTypes>, 'kind' | 'newRow'>,
  id: number,
  owner: string | null,
): Promise<boolean> {
  const row: unknown = { ...newRow(owner), ...(await endOfChain(trx, kind, id)), id } // the field table has an initial value for each column
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

/** Locks a row against other writers until the transaction ends. Does nothing if the row does not exist. */
export async function lockRow(trx: Transaction<Tables>, kind: ResourceKind, id: number): Promise<void> {
  await trx.selectFrom(kind).select('id').where('id', '=', id).forNoKeyUpdate().execute()
}

/** Returns the audit row for a decision, with the next version of the resource. */
export function auditEntry<T extends ResourceTypes>(
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
  actor: Actor,
): AuditEntry {
  const { changes, replaced = null, command = actor.command } = decision
  const taken = resource.takenFrom?.(state, decision.after) ?? null
  const difference = JSON.stringify(Object.fromEntries(changes.map(({ field, from, to }) => [field, { from, to }])))
  return {
    resource_kind: resource.kind,
    resource_id: state.id,
    version_before: state.version,
    version_after: state.version + 1,
    ...actor,
    command,
    fields: changes.map(change => change.field),
    difference,
    difference_bytes: Buffer.byteLength(difference),
    difference_hash: hash('sha256', difference, 'buffer'),
    definition_before: replaced,
    taken_from: taken && JSON.stringify(taken),
  }
}

/** Returns the parameters for an audit row. `values` has the order of the type `audit_values` and of the view `new_audit` (migration 0016). */
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

/** Quotes a value for the text form of a composite type (PostgreSQL, section 8.16.6). PostgreSQL reads an unquoted empty value as null. */
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

/** SQL: the hash of the new audit row. `previous` is the hash of the resource's previous audit row. */
export function nextHash(param: Param<AuditParameters>, previous: Expression<Buffer>) {
  return sql<Buffer>`next_audit_hash(${previous}, ${param('entry')})`
}

/** SQL: inserts an audit row with the hashes that the query `changed` returns. Inserts nothing if `changed` returns no row. */
export function insertAudit<Parts>(param: Param<AuditParameters>, db: QueryCreator<Tables & Parts>) {
  return (db as unknown as QueryCreator<Tables>)
    .insertInto('new_audit')
    .expression(sql`select (${param('entry')}).*, ${param('difference')}, previous, hash from changed`)
    .returning('version_after as version')
}
