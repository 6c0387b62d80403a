import type { Kysely } from 'kysely'
import type { Database } from '../db/tables.js'
import { GENESIS_HASH } from '../updates/audit.js'
import { RESOURCE_KINDS } from '../updates/resource-pages.js'
import { accessFindings, verifyEvents } from './audit-verification/access.js'
import { definitionFindings } from './audit-verification/content.js'
import type { AuditVerification, VerifyOptions } from './audit-verification/findings.js'
import { verifyKind } from './audit-verification/resources.js'
import { leafOrderFindings, treeFindings } from './audit-verification/tree.js'
import { readErasures } from './erasure.js'

/**
 * Recomputes every chain, in one snapshot of the database, and compares it with what is stored: rows and events that were edited,
 * emptied, erased, deleted (the last one too) or reordered, except as pruning and erasure say that they did it; content and
 * access that changed without a row; and the tree over all hashes with its rows and, where one is given, with a checkpoint.
 */
export async function verifyAudit(db: Kysely<Database>, options: VerifyOptions = {}): Promise<AuditVerification> {
  if (db.isTransaction) return await verifySnapshot(db, options)
  return await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(trx => verifySnapshot(trx, options))
}

async function verifySnapshot(db: Kysely<Database>, options: VerifyOptions): Promise<AuditVerification> {
  const result: AuditVerification = { chains: 0, rows: 0, findings: [], head: GENESIS_HASH }
  const erasures = await readErasures(db)
  for (const kind of options.only ? [options.only.kind] : RESOURCE_KINDS) {
    await verifyKind(db, kind, erasures, options, result)
  }
  if (options.only === undefined) {
    await verifyEvents(db, erasures, options, result)
    result.findings.push(...(await definitionFindings(db)), ...(await accessFindings(db)))
  }
  if (options.only === undefined || options.checkpoint) {
    result.findings.push(...(await leafOrderFindings(db)), ...(await treeFindings(db, options.checkpoint)))
  }
  return result
}
