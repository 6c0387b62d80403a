import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { auditHash, commitment, GENESIS_HASH, sha256 } from '../updates/audit.js'

/** Something wrong with the audit trail of one resource. `version` is that of the row concerned. */
export interface AuditFinding {
  resource_kind: ResourceKind
  resource_id: number
  version: number
  problem: 'edited' | 'deleted' | 'reordered' | 'head_mismatch' | 'resource_missing'
  msg: string
}

export interface AuditVerification {
  resources: number
  rows: number
  findings: AuditFinding[]
  /** The hash over the heads of all chains, to be exported and compared later; hex. */
  head: string
}

interface Row {
  resource_kind: ResourceKind
  resource_id: number
  version_before: number
  version_after: number
  at: string
  actor_id: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  salt: string | null
  identity_hash: string | null
  fields: string[]
  difference: string | null
  difference_bytes: number
  difference_hash: string
  definition_before: string | null
  content_hash: string | null
  previous_hash: string
  hash: string
}

interface Resource {
  id: number
  version: number
  audit_head: string
  audit_count: number
  audit_anchor: string
  audit_anchor_version: number
}

const RESOURCES_AT_ONCE = 500
const KINDS = ['persona', 'tool'] as const

/**
 * Recomputes the chain of every agent and tool, or of one, from its anchor, in one snapshot of the database. Finds rows that
 * were edited, deleted (the last one too: the resource row holds head and count) or reordered, and says which.
 * With one resource, `head` is the hash of its last row.
 */
export async function verifyAudit(
  db: Kysely<Database>,
  only?: { kind: ResourceKind; id: number },
  progress: (rows: number) => void = () => undefined,
): Promise<AuditVerification> {
  return await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(async trx => {
      const result: AuditVerification = { resources: 0, rows: 0, findings: [], head: GENESIS_HASH }
      const kinds = only ? [only.kind] : KINDS
      for (const kind of kinds) await verifyKind(trx, kind, only?.id, result, progress)
      return result
    })
}

async function verifyKind(
  db: Kysely<Database>,
  kind: ResourceKind,
  only: number | undefined,
  result: AuditVerification,
  progress: (rows: number) => void,
) {
  for (let after = 0; ; ) {
    const ids = only === undefined ? await nextIds(db, kind, after) : [only]
    const last = ids.at(-1)
    if (last === undefined) return
    const resources = await readResources(db, kind, ids)
    const chains = await readRows(db, kind, ids)
    for (const id of ids) {
      const rows = chains.get(id) ?? []
      const resource = resources.get(id)
      result.resources++
      result.rows += rows.length
      result.findings.push(...chainFindings(kind, id, resource, rows))
      const head = resource?.audit_head ?? rows.at(-1)?.hash ?? GENESIS_HASH
      result.head = only === undefined ? sha256(`${result.head}${kind}${id}${head}`) : head
    }
    progress(result.rows)
    if (only !== undefined || ids.length < RESOURCES_AT_ONCE) return
    after = last
  }
}

async function nextIds(db: Kysely<Database>, kind: ResourceKind, after: number): Promise<number[]> {
  const { rows } = await sql<{ id: number }>`
    select id from (
      select id from ${sql.table(kind)} where id > ${after}
      union select distinct resource_id from audit where resource_kind = ${kind} and resource_id > ${after}
    ) known order by id limit ${RESOURCES_AT_ONCE}::integer`.execute(db)
  return rows.map(row => row.id)
}

async function readResources(
  db: Kysely<Database>,
  kind: ResourceKind,
  ids: readonly number[],
): Promise<Map<number, Resource>> {
  const { rows } = await sql<Resource>`
    select id, version, encode(audit_head, 'hex') as audit_head, audit_count, encode(audit_anchor, 'hex') as audit_anchor,
      audit_anchor_version
    from ${sql.table(kind)} where id = any(${ids}::integer[])`.execute(db)
  return new Map(rows.map(row => [row.id, row]))
}

async function readRows(db: Kysely<Database>, kind: ResourceKind, ids: readonly number[]): Promise<Map<number, Row[]>> {
  const { rows } = await sql<Row>`
    select resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id,
      client_address, command, salt, encode(identity_hash, 'hex') as identity_hash, fields, difference::text as difference,
      difference_bytes, encode(difference_hash, 'hex') as difference_hash,
      encode(definition_before, 'hex') as definition_before, encode(content_hash, 'hex') as content_hash,
      encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash
    from audit where resource_kind = ${kind} and resource_id = any(${ids}::integer[])
    order by resource_id, version_after`.execute(db)
  const chains = new Map<number, Row[]>()
  for (const row of rows) {
    const chain = chains.get(row.resource_id)
    if (chain) chain.push(row)
    else chains.set(row.resource_id, [row])
  }
  return chains
}

function chainFindings(
  kind: ResourceKind,
  id: number,
  resource: Resource | undefined,
  rows: readonly Row[],
): AuditFinding[] {
  const findings: AuditFinding[] = []
  const note = (version: number, problem: AuditFinding['problem'], msg: string) =>
    findings.push({ resource_kind: kind, resource_id: id, version, problem, msg })
  const [first] = rows
  let version = resource?.audit_anchor_version ?? first?.version_before ?? 0
  let head = resource?.audit_anchor ?? first?.previous_hash ?? GENESIS_HASH
  let followsWhole = true
  for (const row of rows) {
    const isWhole = rowIsWhole(row)
    if (!isWhole) note(row.version_after, 'edited', 'the row does not have the content that its hash was made of')
    if (row.version_before > version) {
      const gone = row.version_before - version
      note(
        version + 1,
        'deleted',
        `${gone === 1 ? 'a row is' : `${gone} rows are`} missing before version ${row.version_after}`,
      )
    } else if (row.previous_hash !== head && isWhole && followsWhole) {
      note(
        row.version_after,
        'reordered',
        'the row does not follow the one before it: one of the two was replaced or moved',
      )
    }
    followsWhole = isWhole
    version = row.version_after
    head = row.hash
  }
  if (resource === undefined) {
    if (rows.at(-1)?.fields.includes('removed') !== true) {
      note(
        version,
        'resource_missing',
        `the ${kind === 'tool' ? 'tool' : 'agent'} is gone, and no row says that it was removed`,
      )
    }
    return findings
  }
  endFindings(resource, version, head, note)
  return findings
}

function endFindings(
  resource: Resource,
  version: number,
  head: string,
  note: (version: number, problem: AuditFinding['problem'], msg: string) => void,
): void {
  if (version < resource.version) {
    const gone = resource.version - version
    note(
      version + 1,
      'deleted',
      `the last ${gone === 1 ? 'row is' : `${gone} rows are`} missing, up to version ${resource.version}`,
    )
  } else if (head !== resource.audit_head) {
    note(version, 'head_mismatch', 'the last row is not the one that the resource names as its head')
  }
  if (resource.audit_count !== resource.version) {
    note(
      resource.version,
      'head_mismatch',
      `the resource counts ${resource.audit_count} changes at version ${resource.version}`,
    )
  }
}

/** Whether a row's hash and that of its difference are those of its content. A pruned difference stands by its hash. */
function rowIsWhole(row: Row): boolean {
  if (auditHash(row) !== row.hash) return false
  if (row.salt !== null && commitment(row.salt, row.actor, row.client_address) !== row.identity_hash) return false
  if (row.difference === null) return row.definition_before === null
  if (sha256(row.difference) !== row.difference_hash) return false
  const difference = JSON.parse(row.difference) as Record<string, { from: unknown }> // its hash is right: we wrote it
  return (difference.definition?.from ?? null) === row.definition_before
}
