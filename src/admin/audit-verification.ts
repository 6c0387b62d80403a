import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { RESOURCE_KINDS } from '../updates/resource-pages.js'
import {
  type AuditFinding,
  type AuditVerification,
  accessFindings,
  readErasures,
  verifyEvents,
} from './audit-verification/events.js'
import { verifyResources } from './audit-verification/resources.js'
import { checkpointFindings, headFindings } from './checkpoint.js'

/**
 * Recomputes every chain, in one snapshot of the database, and compares it with what is stored: rows and events that were edited,
 * emptied, erased, deleted (the last one too) or reordered, except as pruning and erasure say that they did it; content and
 * access that changed without a row; and the chains of a checkpoint, where the path of one is given whose signature was checked.
 */
export async function verifyAudit(db: Kysely<Database>, checkpoint?: string): Promise<AuditVerification> {
  if (db.isTransaction) return await verifySnapshot(db as Transaction<Database>, checkpoint) // it says so
  return await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(trx => verifySnapshot(trx, checkpoint))
}

async function verifySnapshot(trx: Transaction<Database>, checkpoint: string | undefined): Promise<AuditVerification> {
  const result: AuditVerification = { chains: 0, rows: 0, findings: [] }
  const erasures = await readErasures(trx)
  for (const kind of RESOURCE_KINDS) await verifyResources(trx, kind, erasures, result)
  await verifyEvents(trx, erasures, result)
  const msg = 'the last row of before the upgrade to 2.0 is gone, or another'
  result.findings.push(
    ...(await definitionFindings(trx)),
    ...(await accessFindings(trx)),
    ...(await headFindings(trx, sql`audit_upgrade_head`, { problem: 'head_mismatch', msg })),
    ...(checkpoint === undefined ? [] : await checkpointFindings(trx, checkpoint)),
  )
  return result
}

/** Definitions are kept once under the SHA-256 of their text, which is what rows name: the text must still be that one. */
async function definitionFindings(trx: Transaction<Database>): Promise<AuditFinding[]> {
  const { rows } = await sql<Pick<AuditFinding, 'kind' | 'subject' | 'msg'>>`
    select 'tool_definition' as kind, encode(hash, 'hex') as subject,
      'the text of the definition is not the one that its hash was made of' as msg
    from tool_definition where hash <> sha256(convert_to(content::text, 'UTF8'))
    union all
    select 'tool', id::text, 'the text of its definition is gone' from tool t
    where not exists (select from tool_definition d where d.hash = t.definition_hash) and definition_hash is not null
    order by 1 desc, 2`.execute(trx)
  return rows.map(row => ({ ...row, number: 0, problem: 'content_mismatch' }))
}
