import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../../src/db/tables.js'
import { auditHash, commitment, type StoredRow } from '../../src/updates/audit.js'
import { ROW_COLUMNS } from '../../src/updates/audit-rows.js'

/** The audit rows for which a condition holds, by resource and version. */
export async function readRows(db: Kysely<Tables>, condition: RawBuilder<unknown>): Promise<StoredRow[]> {
  const order = sql`order by resource_kind, resource_id, version_after`
  return (await sql<StoredRow>`select ${ROW_COLUMNS} from audit where ${condition} ${order}`.execute(db)).rows
}

/** Works in a transaction that is rolled back. */
export async function inVain<T>(db: Kysely<Tables>, work: (trx: Transaction<Tables>) => Promise<T>): Promise<T> {
  const trx = await db.startTransaction().execute()
  try {
    return await work(trx)
  } finally {
    await trx.rollback().execute()
  }
}

/** Makes a chain whole again after a row was changed: every hash, and the head. */
export async function rewrite(trx: Transaction<Tables>, kind: 'persona' | 'tool', id: number): Promise<void> {
  const rows = await readRows(trx, sql`resource_kind = ${kind} and resource_id = ${id}`)
  let previous = rows[0]?.previous_hash ?? ''
  for (const row of rows) {
    const identity_hash = row.salt === null ? row.identity_hash : commitment(row.salt, row.actor, row.client_address)
    const hash = auditHash({ ...row, identity_hash, previous_hash: previous })
    await sql`update audit set identity_hash = decode(${identity_hash}, 'hex'), previous_hash = decode(${previous}, 'hex'),
      hash = decode(${hash}, 'hex') where resource_kind = ${kind} and resource_id = ${id}
      and version_after = ${row.version_after}`.execute(trx)
    previous = hash
  }
  await sql`update ${sql.table(kind)} set audit_head = decode(${previous}, 'hex') where id = ${id}`.execute(trx)
}
