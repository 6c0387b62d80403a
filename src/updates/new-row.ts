import { type Insertable, type Kysely, sql, type Transaction } from 'kysely'
import type { PersonaTable, ResourceKind, Tables } from '../db/tables.js'
import type { ResourceTypes, VersionedResource } from './resource.js'

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

/** The end of an id's audit chain, and the anchor of its remaining rows. A new id has an empty chain. */
async function endOfChain(trx: Transaction<Tables>, kind: ResourceKind, id: number) {
  const rows = trx.selectFrom('audit').where('resource_kind', '=', kind).where('resource_id', '=', id).limit(1)
  const last = await rows.select(['version_after', 'hash']).orderBy('version_after', 'desc').executeTakeFirst()
  const hashed = rows.select('previous_hash').where('hash', 'is not', null).orderBy('version_after')
  const first = await hashed.executeTakeFirst()
  const [audit_head, audit_anchor] = [last?.hash ?? NO_HASH, first?.previous_hash ?? NO_HASH]
  return { version: last?.version_after ?? 0, audit_head, audit_anchor }
}

const NO_HASH = Buffer.alloc(32)

/** Locks a row against other writers until the transaction ends. Returns false if it does not exist. */
export async function lockRow(
  trx: Transaction<Tables>,
  { kind }: { kind: ResourceKind },
  id: number,
): Promise<boolean> {
  const row = trx.selectFrom(kind).select('id').where('id', '=', id).forNoKeyUpdate()
  return (await row.executeTakeFirst()) !== undefined
}
