import { type Insertable, type Kysely, sql, type Transaction } from 'kysely'
import type { PersonaTable, ResourceKind, Tables, ToolTable } from '../db/tables.js'
import { GENESIS_HASH } from './audit.js'

/** An id that no resource of this kind has had. It is used up, whatever becomes of the transaction. */
export async function nextId(db: Kysely<Tables>, kind: ResourceKind): Promise<number> {
  const { id } = await db
    .selectNoFrom(({ cast, fn, val }) => {
      const sequence = fn<string>('pg_get_serial_sequence', [val(kind), val('id')])
      return cast<number>(fn('nextval', [cast(sequence, sql`regclass`)]), 'integer').as('id')
    })
    .executeTakeFirstOrThrow()
  return id
}

/**
 * Inserts an agent or a tool of which nothing is said yet, at version 0: its first version is stored as a change, with an audit row.
 * An id that was removed before continues its old chain. False where another row has the id.
 */
export async function insertBlank(
  trx: Transaction<Tables>,
  kind: ResourceKind,
  id: number,
  columns: Readonly<Record<string, unknown>>,
): Promise<boolean> {
  const { version, head, anchor_version, anchor } = await endOfChain(trx, kind, id)
  const chain = { audit_count: version, audit_head: head, audit_anchor_version: anchor_version, audit_anchor: anchor }
  const row: unknown = { ...columns, ...chain, id, version } // the table of fields has each column with its blank
  const insert =
    kind === 'persona'
      ? trx.insertInto('persona').values(row as Insertable<PersonaTable>)
      : trx.insertInto('tool').values(row as Insertable<ToolTable>)
  const { numInsertedOrUpdatedRows = 0n } = await insert
    .onConflict(conflict => conflict.column('id').doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows > 0n
}

/** Where the chain of an id continues, and where its kept rows begin. */
interface ChainEnd {
  version: number
  head: Buffer
  anchor_version: number
  anchor: Buffer
}

async function endOfChain(trx: Transaction<Tables>, kind: ResourceKind, id: number): Promise<ChainEnd> {
  const rows = trx.selectFrom('audit').where('resource_kind', '=', kind).where('resource_id', '=', id)
  const last = await rows
    .select(['version_after as version', 'hash as head'])
    .orderBy('version_after', 'desc')
    .limit(1)
    .executeTakeFirst()
  if (last === undefined) return await prunedEnd(trx, kind, id)
  const first = await rows
    .select(['version_before as anchor_version', 'previous_hash as anchor'])
    .orderBy('version_after')
    .limit(1)
    .executeTakeFirstOrThrow()
  return { ...last, ...first }
}

/** The end of a chain whose rows are all pruned, as the newest pruning names it; of a new chain its beginning. */
async function prunedEnd(trx: Transaction<Tables>, kind: ResourceKind, id: number): Promise<ChainEnd> {
  const pruning = await trx
    .selectFrom('access_event')
    .select('detail')
    .where('kind', '=', 'prune')
    .where('subject', '=', `${kind}:${id}`)
    .orderBy('number', 'desc')
    .limit(1)
    .executeTakeFirst()
  const mark = (pruning?.detail ?? {}) as { anchor_version?: number; anchor_hash?: string } // as pruning writes it
  const { anchor_version: version = 0, anchor_hash: hash } = mark
  const head = Buffer.from(version > 0 && hash !== undefined ? hash : GENESIS_HASH, 'hex')
  return { version, head, anchor_version: version, anchor: head }
}
