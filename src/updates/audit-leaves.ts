import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { HashTree } from './hash-tree.js'
import { beLong, RESOURCE_KINDS, resourcePages } from './resource-pages.js'

/** Who adds leaves takes turns: each gets the next position. */
const LEAVES_LOCK = 7_153_003
const LEAVES_AT_ONCE = 5_000
const HASH_BYTES = 32

/** The hash of an audit row or access event at its place in the tree. An agent's kind is `persona`; `number` is the version. */
export interface AuditLeaf {
  position: number
  kind: string
  subject: string
  number: number
  hash: Buffer
}

/**
 * Adds what has no leaf yet to the tree over all audit rows and access events, outside of requests, and answers how many leaves
 * it has now. Of each chain the rows are added in their order; leaves stay when rows are pruned or people erased.
 */
export async function growTree(db: Kysely<Database>): Promise<number> {
  for (const kind of RESOURCE_KINDS) {
    for await (const ids of resourcePages(db, kind)) await addRowLeaves(db, kind, ids)
  }
  return await addLeaves(
    db,
    sql`
    select e.kind, e.subject, e.number, e.hash from access_chain c
    cross join lateral (${lastLeaf(sql`c.kind`, sql`c.subject`)}) leaf
    join access_event e on e.kind = c.kind and e.subject = c.subject and e.number > leaf.number
    where c.number > leaf.number`,
  )
}

/** The same for the audit rows of some agents or tools. */
export async function addRowLeaves(db: Kysely<Database>, kind: ResourceKind, ids: readonly number[]): Promise<number> {
  return await addLeaves(
    db,
    sql`
    select a.resource_kind as kind, a.resource_id::text as subject, a.version_after as number, a.hash
    from unnest(${ids}::integer[]) resource (id)
    cross join lateral (${lastLeaf(sql`${kind}`, sql`resource.id::text`)}) leaf
    join audit a on a.resource_kind = ${kind} and a.resource_id = resource.id and a.version_after > leaf.number`,
  )
}

function lastLeaf(kind: RawBuilder<unknown>, subject: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`select coalesce(max(l.number), 0) as number from audit_leaf l where l.kind = ${kind} and l.subject = ${subject}`
}

async function addLeaves(db: Kysely<Database>, missing: RawBuilder<unknown>): Promise<number> {
  for (;;) {
    const { added, size } = await db.transaction().execute(async trx => {
      await beLong(trx)
      await sql`select pg_advisory_xact_lock(${LEAVES_LOCK}::bigint)`.execute(trx)
      const tree = await readTree(trx)
      const { rows } = await sql<{ hash: Buffer }>`
        with missing as (
          select ${tree.size}::bigint + row_number() over (order by kind, subject, number) - 1 as position, m.*
          from (${missing} order by 1, 2, 3 limit ${LEAVES_AT_ONCE}::integer) m
        ), added as (
          insert into audit_leaf (position, kind, subject, number, hash)
          select position, kind, subject, number, hash from missing
        )
        select hash from missing order by position`.execute(trx)
      for (const { hash } of rows) tree.add(hash)
      if (rows.length > 0) await storeTree(trx, tree)
      return { added: rows.length, size: tree.size }
    })
    if (added < LEAVES_AT_ONCE) return size
  }
}

/** The tree as it was stored, by the roots of its perfect subtrees. */
export async function readTree(db: Kysely<Database>): Promise<HashTree> {
  const row = await db.selectFrom('audit_tree').select(['size', 'subtrees']).executeTakeFirst()
  if (row === undefined) return new HashTree()
  const subtrees = Array.from({ length: row.subtrees.length / HASH_BYTES }, (_, index) =>
    row.subtrees.subarray(index * HASH_BYTES, (index + 1) * HASH_BYTES),
  )
  return new HashTree(row.size, subtrees)
}

async function storeTree(trx: Transaction<Database>, { size, subtrees }: HashTree): Promise<void> {
  const values = { size, subtrees: Buffer.concat(subtrees) }
  await trx
    .insertInto('audit_tree')
    .values(values)
    .onConflict(conflict => conflict.column('one').doUpdateSet(values))
    .execute()
}

/** Every leaf from left to right, from position `start` on and before `end`. */
export async function* readLeaves(
  db: Kysely<Database>,
  end = Number.MAX_SAFE_INTEGER,
  start = 0,
): AsyncGenerator<AuditLeaf> {
  for (let from = start; ; ) {
    const page = await db
      .selectFrom('audit_leaf')
      .selectAll()
      .where('position', '>=', from)
      .where('position', '<', end)
      .orderBy('position')
      .limit(LEAVES_AT_ONCE)
      .execute()
    yield* page
    const last = page.at(-1)
    if (last === undefined) return
    from = last.position + 1
  }
}
