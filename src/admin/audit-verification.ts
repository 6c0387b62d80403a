import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { inOneSnapshot } from '../updates/read.js'
import { auditHash } from '../updates/statements.js'

/** A fault in the audit trail. `version` is the version that `msg` is about. It is 0 if the fault is in a definition. */
export interface AuditFinding {
  kind: ResourceKind | 'tool_definition'
  subject: string
  version: number
  problem: 'edited' | 'deleted' | 'reordered' | 'head_mismatch' | 'resource_missing'
  msg: string
}

export interface AuditVerification {
  /** The number of chains verified (one for each agent or tool). */
  chains: number
  rows: number
  /** The number of rows that versions before 3.0 wrote. These rows are not in a chain. */
  unchained_rows: number
  /** The time of the oldest verified row; null if no row was verified. */
  since: string | null
  findings: AuditFinding[]
}

/** Verifies the hash chains of all agents and tools, and the hashes of definitions, in one database snapshot. Returns the findings. */
export async function verifyAudit(db: Kysely<Tables>): Promise<AuditVerification> {
  const verify = async (trx: Transaction<Tables>) => {
    const result: AuditVerification = { chains: 0, rows: 0, unchained_rows: 0, since: null, findings: [] }
    for (const kind of ['persona', 'tool'] as const) await verifyChains(trx, kind, result)
    result.findings.push(...(await definitionFindings(trx)))
    return result
  }
  return await (db.isTransaction ? verify(db as Transaction<Tables>) : inOneSnapshot({ db }, verify))
}

/**
 * An audit row with its agent or tool. The audit columns are null if the agent or tool has no audit rows. `head` is the hash of the last
 * audit row, and `anchor` is the hash of the last pruned audit row. Both are stored with the agent or tool.
 */
interface Row {
  id: number
  version: number | null
  /** Null if the agent or tool no longer exists. */
  head: string | null
  anchor: string | null
  version_after: number | null
  version_before: number
  at: string
  is_removal: boolean
  previous: string | null
  hash: string | null
  is_whole: boolean | null
}

const ROWS_AT_ONCE = 500

/** Reads the rows of a query through a cursor. The query must not have parameters. */
async function* scan(trx: Transaction<Tables>, query: RawBuilder<Row>): AsyncGenerator<Row> {
  await sql`declare audit_rows no scroll cursor for ${query}`.execute(trx)
  for (;;) {
    const { rows } = await sql<Row>`fetch ${sql.lit(ROWS_AT_ONCE)} from audit_rows`.execute(trx)
    if (rows.length === 0) break
    yield* rows
  }
  await sql`close audit_rows`.execute(trx)
}

async function verifyChains(trx: Transaction<Tables>, kind: ResourceKind, result: AuditVerification): Promise<void> {
  const rows = scan(
    trx,
    sql<Row>`
      select coalesce(r.id, a.resource_id) as id, r.version, encode(r.audit_head, 'hex') as head,
        encode(r.audit_anchor, 'hex') as anchor, a.version_after, a.version_before, a.at, 'removed' = any(a.fields) as is_removal,
        encode(a.previous_hash, 'hex') as previous, encode(a.hash, 'hex') as hash,
        a.hash = ${auditHash(name => sql.ref(`a.${name}`))} and (a.difference is null or
          sha256(convert_to(a.difference::text, 'UTF8')) = a.difference_hash) as is_whole
      from (select * from audit where resource_kind = ${sql.lit(kind)}) a
      full join ${sql.table(kind)} r on r.id = a.resource_id order by 1, a.version_after`,
  )
  let last: Row | undefined
  const note = (row: Row, version: number, problem: AuditFinding['problem'], msg: string) =>
    result.findings.push({ kind, subject: String(row.id), version, problem, msg })
  const end = (row: Row | undefined) => {
    if (row !== undefined) verifyEnd(row, (...finding) => note(row, ...finding))
  }
  for await (const row of rows) {
    const before = last?.id === row.id ? last : undefined
    if (before === undefined) end(last)
    last = row
    if (row.version_after === null) continue
    verifyRow(row, before, (...finding) => note(row, ...finding))
    if (row.hash === null) {
      result.unchained_rows++
      continue
    }
    result.rows++
    if (!before?.hash) result.chains++
    if (result.since === null || row.at < result.since) result.since = row.at
  }
  end(last)
}

type Note = (version: number, problem: AuditFinding['problem'], msg: string) => void

/** Verifies the hash of `row`, and that its `previous` is the hash of `before`. In the first row, `previous` must be the anchor. */
function verifyRow(row: Row, before: Row | undefined, note: Note): void {
  const version = row.version_after ?? 0
  const missing = before !== undefined && row.version_before !== before.version_after
  if (missing)
    note(before.version_after ?? 0, 'deleted', `rows are missing between this version and version ${version}`)
  if (row.hash === null) {
    if (before?.hash) note(version, 'edited', 'the row has no hash, so it was edited or added by hand')
    return
  }
  if (!row.is_whole) note(version, 'edited', 'the row was edited: its content does not match its hash')
  const isFirst = before === undefined || before.hash === null
  const previous = isFirst ? row.anchor : before.hash
  if (missing || previous === null || row.previous === previous) return
  if (isFirst) note(version, 'deleted', 'earlier rows were not pruned, but they are missing or have no hash')
  else note(version, 'reordered', 'this row or the previous row was replaced or moved: their hashes do not match')
}

/** Verifies that the last row has the version and hash of the agent or tool. After a removal, the last row must record the removal. */
function verifyEnd({ version, head, anchor, version_after, hash, is_removal }: Row, note: Note): void {
  if (version === null || head === null) {
    if (!is_removal) note(version_after ?? 0, 'resource_missing', 'the agent or tool was removed without an audit row')
  } else if (version_after !== null && version_after < version) {
    note(version_after, 'deleted', `rows are missing after this version, up to version ${version}`)
  } else if ((hash ?? anchor) !== head || (version_after ?? version) > version) {
    note(version, 'head_mismatch', 'the last audit row is missing or does not match the stored agent or tool')
  }
}

/** Verifies that each definition is stored under the SHA-256 of its text. */
async function definitionFindings(trx: Transaction<Tables>): Promise<AuditFinding[]> {
  const { rows } = await sql<{ subject: string }>`
    select encode(hash, 'hex') as subject from tool_definition
    where hash <> sha256(convert_to(content::text, 'UTF8')) order by 1`.execute(trx)
  const msg = 'the definition was edited: its text does not match its hash'
  const finding = { kind: 'tool_definition', version: 0, problem: 'edited', msg } as const
  return rows.map(row => ({ ...finding, ...row }))
}
