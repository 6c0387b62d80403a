import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { INT4_MAX } from '../../schema/vocabulary.js'
import { GENESIS_HASH, sha256 } from '../../updates/audit.js'
import { readRows } from '../../updates/audit-rows.js'
import { readMarks } from '../../updates/prune.js'
import type { Erasures } from '../erasure.js'
import { chainFindings, leafFindings, type Resource } from './chain.js'
import { contentFindings, readContents } from './content.js'
import { type AuditVerification, grouped, type Leaf, leavesBySubject, type VerifyOptions } from './findings.js'

const RESOURCES_AT_ONCE = 500

/** Verifies the chain, the content and the leaves of each agent or tool, and adds to the result. */
export async function verifyKind(
  db: Kysely<Database>,
  kind: ResourceKind,
  erasures: Erasures,
  { only, progress }: VerifyOptions,
  result: AuditVerification,
): Promise<void> {
  for await (const ids of only === undefined ? idPages(db, kind) : [[only.id]]) {
    const page = await readPage(db, kind, ids)
    for (const id of ids) {
      const mark = page.marks.get(`${kind}:${id}`)
      const leaves = page.leaves.get(String(id)) ?? new Map()
      const chain = { kind, id, resource: page.resources.get(id), rows: page.rows.get(id) ?? [], mark, leaves }
      result.chains++
      result.rows += chain.rows.length
      result.findings.push(
        ...chainFindings(chain, erasures),
        ...contentFindings(chain, page.contents.get(id)),
        ...leafFindings(chain),
      )
      const head = chain.resource?.audit_head ?? chain.rows.at(-1)?.hash ?? GENESIS_HASH
      result.head = only === undefined ? sha256(`${result.head}${kind}${id}${head}`) : head
    }
    progress?.(result.rows)
  }
}

/** The agents or tools that are there, have rows, or are known to the tree alone. */
async function* idPages(db: Kysely<Database>, kind: ResourceKind): AsyncGenerator<number[]> {
  const { rows: lost } = await sql<{ subject: string }>`
    select distinct subject from audit_leaf l where kind = ${kind}
      and not exists (select from ${sql.table(kind)} r where r.id::text = l.subject)
      and not exists (select from audit a where a.resource_kind = ${kind} and a.resource_id::text = l.subject)
    order by subject`.execute(db)
  // A leaf of what can be no id is told with the order of the leaves.
  const ids = lost.map(({ subject }) => Number(subject)).filter(id => Number.isInteger(id) && id > 0 && id <= INT4_MAX)
  if (ids.length > 0) yield ids
  for (let after = -INT4_MAX - 2; ; ) {
    const { rows } = await sql<{ id: number }>`
      select id from (
        select id from ${sql.table(kind)} where id > ${after}::bigint
        union select distinct resource_id from audit where resource_kind = ${kind} and resource_id > ${after}::bigint
      ) existing order by id limit ${RESOURCES_AT_ONCE}::integer`.execute(db)
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map(row => row.id)
    after = last.id
  }
}

async function readPage(db: Kysely<Database>, kind: ResourceKind, ids: readonly number[]) {
  const { rows: resources } = await sql<Resource>`
    select id, version, encode(audit_head, 'hex') as audit_head, audit_count, encode(audit_anchor, 'hex') as audit_anchor,
      audit_anchor_version
    from ${sql.table(kind)} where id = any(${ids}::integer[])`.execute(db)
  const stored = await readRows(db, sql`resource_kind = ${kind} and resource_id = any(${ids}::integer[])`)
  const subjects = ids.map(String)
  const { rows: leaves } = await sql<Leaf>`
    select subject, number, encode(hash, 'hex') as hash from audit_leaf
    where kind = ${kind} and subject = any(${subjects}::text[])`.execute(db)
  return {
    resources: new Map(resources.map(row => [row.id, row])),
    rows: grouped(stored, row => row.resource_id),
    marks: await readMarks(
      db,
      ids.map(id => `${kind}:${id}`),
    ),
    leaves: leavesBySubject(leaves),
    contents: await readContents(db, kind, ids),
  }
}
