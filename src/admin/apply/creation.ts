import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { type Actor, auditEntry, type Change, GENESIS_HASH, sha256 } from '../../updates/audit.js'
import { auditColumns } from '../../updates/audit-rows.js'
import { readMarks } from '../../updates/prune.js'

/** A new agent or tool: its changes are what differs from an empty one. */
export interface Creation {
  id: number
  changes: Change[]
  /** Its whole content, as `VersionedResource.audited` has it. */
  audited: readonly unknown[]
}

/** What the row of a new agent or tool says of its version and audit trail. */
export interface FirstVersion {
  version: number
  audit_count: number
  audit_head: Buffer
  audit_anchor: Buffer
  audit_anchor_version: number
}

interface Past {
  resource_id: number
  last_version: number
  last_hash: string
  first_version: number
  first_hash: string
}

const NO_PAST = { last_version: 0, last_hash: GENESIS_HASH, first_version: 0, first_hash: GENESIS_HASH }

/**
 * Stores the audit rows of new agents or tools, version 0 to 1, each the first of its chain, and answers what the resource rows
 * must be inserted with, in the order given. An id that was pruned away before and comes back goes on with its old chain.
 */
export async function auditCreations(
  db: Kysely<Database>,
  kind: ResourceKind,
  creations: readonly Creation[],
  actor: Actor,
): Promise<FirstVersion[]> {
  if (creations.length === 0) return []
  const { rows } = await sql<{ ms: number }>`
    select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`.execute(db)
  const atMs = rows[0]?.ms ?? Date.now()
  const pasts = await readPasts(
    db,
    kind,
    creations.map(({ id }) => id),
  )
  const made = creations.map(({ id, changes, audited }) => {
    const past = pasts.get(id) ?? NO_PAST
    const end = { kind, id, version: past.last_version, audit_head: past.last_hash }
    const content = { definitionBefore: null, contentHash: sha256(JSON.stringify(audited)) }
    return { past, entry: auditEntry(end, changes, actor, atMs, content) }
  })
  await db
    .insertInto('audit')
    .values(made.map(({ entry }) => auditColumns(entry)))
    .execute()
  return made.map(({ past, entry }) => ({
    version: entry.version_after,
    audit_count: entry.version_after,
    audit_head: Buffer.from(entry.hash, 'hex'),
    audit_anchor: Buffer.from(past.first_hash, 'hex'),
    audit_anchor_version: past.first_version,
  }))
}

/** Where the chains of these ids end and begin: by their rows, or where pruning took them all, by what it says. */
async function readPasts(db: Kysely<Database>, kind: ResourceKind, ids: readonly number[]): Promise<Map<number, Past>> {
  const { rows } = await sql<Past>`
    select resource_id, max(version_after) as last_version, min(version_before) as first_version,
      encode((array_agg(hash order by version_after desc))[1], 'hex') as last_hash,
      encode((array_agg(previous_hash order by version_after))[1], 'hex') as first_hash
    from audit where resource_kind = ${kind} and resource_id = any(${ids}::integer[])
    group by resource_id`.execute(db)
  const marks = await readMarks(
    db,
    ids.map(id => `${kind}:${id}`),
  )
  const pruned = ids.flatMap(id => {
    const mark = marks.get(`${kind}:${id}`)
    if (mark === undefined || mark.anchor_version === 0) return []
    const end = { last_version: mark.anchor_version, last_hash: mark.anchor_hash }
    return [{ resource_id: id, ...end, first_version: mark.anchor_version, first_hash: mark.anchor_hash }]
  })
  return new Map([...pruned, ...rows].map(row => [row.resource_id, row]))
}
