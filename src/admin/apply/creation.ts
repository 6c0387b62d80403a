import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { type Actor, auditEntry, type Change, GENESIS_HASH } from '../../revisions/audit.js'

/** A new agent or tool: its changes are what differs from an empty one. */
export interface Creation {
  id: number
  changes: Change[]
}

/**
 * The audit rows of new agents or tools, version 0 to 1, each the first of its chain. Answers the head of each chain, hex, in the
 * order given; the resource rows must be inserted with it, `version` 1 and `audit_count` 1.
 */
export async function auditCreations(
  db: Kysely<Database>,
  kind: ResourceKind,
  creations: readonly Creation[],
  actor: Actor,
): Promise<string[]> {
  if (creations.length === 0) return []
  const { rows } = await sql<{
    ms: number
  }>`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`.execute(db)
  const atMs = rows[0]?.ms ?? Date.now()
  const entries = creations.map(({ id, changes }) =>
    auditEntry({ kind, id, version: 0, audit_head: GENESIS_HASH }, changes, actor, atMs),
  )
  await db
    .insertInto('audit')
    .values(
      entries.map(entry => ({
        ...entry,
        difference_bytes: Buffer.byteLength(entry.difference),
        difference_hash: Buffer.from(entry.difference_hash, 'hex'),
        definition_before: null,
        previous_hash: Buffer.from(entry.previous_hash, 'hex'),
        hash: Buffer.from(entry.hash, 'hex'),
      })),
    )
    .execute()
  return entries.map(entry => entry.hash)
}
