import { setTimeout as sleep } from 'node:timers/promises'
import { type Static, Type } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Config } from '../config.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import { anyOf, lit, on, recordsOf, val } from '../db/statements/queries.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { appendEvents, lockChains } from './access-events.js'
import { type Actor, GENESIS_HASH } from './audit.js'
import { beLong, patiently, RESOURCE_KINDS, resourcePages } from './resource-pages.js'
import { tryLockRow } from './write.js'

/** `bytesMax`: size of the old contents kept of one agent or tool; 64 MiB unless said otherwise. */
export type Retention = Config['history'] & { readonly bytesMax?: number }

const BYTES_MAX = 64 * 2 ** 20

const ROWS_AT_ONCE = 500
const DEFINITIONS_AT_ONCE = 100
/** Removing a large text takes its time, in which writers of definitions wait. */
const DEFINITION_BYTES_AT_ONCE = 8 * 2 ** 20

/** A writer of a definition is done in milliseconds. */
const LOCK_TRIES = 20
const LOCK_PAUSE_MS = 25

/**
 * Removes what is beyond the retention (DECISIONS section 10), in small transactions that wait for no lock. Each leaves chains that
 * verify, so it may be interrupted and run in several processes. `progress` hears how many resources were gone through. Answers how many
 * audit rows were removed and emptied of their difference, and definitions removed to which nothing refers.
 */
export async function pruneHistory(
  db: Kysely<Tables>,
  retention: Retention,
  progress: (resources: number) => void = () => undefined,
  actor: Actor = PRUNER,
): Promise<{ auditRows: number; differences: number; definitions: number }> {
  const pruned = { auditRows: 0, differences: 0, definitions: 0 }
  let resources = 0
  for (const kind of RESOURCE_KINDS) {
    for await (const ids of resourcePages(db, kind)) {
      pruned.auditRows += await pruneRows(db, kind, ids, retention.auditRetentionDays, actor)
      pruned.differences += await pruneDifferences(db, kind, ids, retention, actor)
      resources += ids.length
      progress(resources)
    }
  }
  pruned.definitions = await pruneDefinitions(db)
  await pruneKeys(db, retention.auditRetentionDays)
  return pruned
}

/** Removes the keys of updates that changed nothing, which are kept as long as audit rows. */
async function pruneKeys(db: Kysely<Tables>, days: number): Promise<void> {
  for (let removed = ROWS_AT_ONCE; removed === ROWS_AT_ONCE; ) {
    const rows = await patiently(db, trx => {
      const old = trx
        .selectFrom('unchanged_update')
        .select('idempotency_key')
        .where('at', '<', daysAgo(days))
        .limit(ROWS_AT_ONCE)
      return trx.deleteFrom('unchanged_update').where('idempotency_key', 'in', old).returning('version').execute()
    })
    removed = rows.length
  }
}

function daysAgo(days: number): RawBuilder<string> {
  return sql`clock_timestamp() - make_interval(days => ${days}::integer)`
}

/** What was stored of a resource in these minutes is looked at where it is more than this share of what may be kept. */
const LATELY_MINUTES = 2
const LATELY_SHARE = 64

/** Drops old contents of agents and tools that grew much lately, between two runs of `pruneHistory`; answers of how many versions. */
export async function pruneGrowing(db: Kysely<Tables>, retention: Retention): Promise<number> {
  const bytesMax = Math.floor((retention.bytesMax ?? BYTES_MAX) / LATELY_SHARE)
  const growing = await patiently(db, trx => {
    const grown = trx
      .selectFrom('audit')
      .select(['resource_kind as kind', 'resource_id as id'])
      .where('at', '>', sql<string>`clock_timestamp() - make_interval(mins => ${LATELY_MINUTES}::integer)`)
      .groupBy(['resource_kind', 'resource_id'])
      .having(({ eb, fn, or }) =>
        or([
          eb(fn.sum('difference_bytes'), '>', bytesMax),
          fn.agg<boolean>('bool_or', [eb('definition_before', 'is not', null)]),
        ]),
      )
    const ids = trx.selectFrom(grown.as('grown')).groupBy('kind')
    return ids.select(({ fn }) => ['kind', fn.agg<number[]>('array_agg', ['id']).as('ids')]).execute()
  })
  let differences = 0
  for (const { kind, ids } of growing) differences += await pruneDifferences(db, kind, ids, retention, PRUNER)
  return differences
}

/** The audit rows of a kind. */
function rowsOf(db: Kysely<Tables>, kind: ResourceKind) {
  return db.selectFrom('audit').where('resource_kind', '=', kind)
}

async function pruneRows(
  db: Kysely<Tables>,
  kind: ResourceKind,
  ids: readonly number[],
  days: number,
  actor: Actor,
): Promise<number> {
  const rows = await patiently(db, trx => {
    const old = rowsOf(trx, kind).where('resource_id', '=', anyOf(val(ids)))
    return old.where('at', '<', daysAgo(days)).select('resource_id').distinct().orderBy('resource_id').execute()
  })
  let removed = 0
  for (const { resource_id } of rows) {
    for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; removed += count) {
      count = await db.transaction().execute(trx => pruneChain(trx, kind, resource_id, days, actor))
    }
  }
  return removed
}

/** Removes the oldest rows of one chain, up to the first within the retention, and moves the anchor to the last of them. */
async function pruneChain(
  trx: Transaction<Tables>,
  kind: ResourceKind,
  id: number,
  days: number,
  actor: Actor,
): Promise<number> {
  await beLong(trx)
  // The row's lock keeps writers of this resource out, so that head, count and anchor move together.
  const isThere = await trx.selectFrom(kind).select('id').where('id', '=', id).executeTakeFirst()
  if (isThere && !(await tryLockRow(trx, kind, id))) return 0 // somebody writes it: the next run finds it again
  const chain = () => rowsOf(trx, kind).where('resource_id', '=', id)
  const rows = await trx
    .with('old', () => {
      const kept = chain()
        .where('at', '>=', daysAgo(days))
        .select(({ fn }) => fn.min('version_after').as('version'))
      return chain()
        .select(['version_after', 'hash', 'content_hash', 'at'])
        .where(({ eb, fn }) => eb('version_after', '<', fn.coalesce(kept, lit(2 ** 31 - 1))))
        .orderBy('version_after')
        .limit(ROWS_AT_ONCE)
    })
    .with('removed', db =>
      db
        .deleteFrom('audit as a')
        .using('old')
        .where('a.resource_kind', '=', kind)
        .where('a.resource_id', '=', id)
        .whereRef('a.version_after', '=', 'old.version_after'),
    )
    .selectFrom('old')
    .selectAll()
    .orderBy('version_after', 'desc')
    .execute()
  const [last] = rows
  if (last === undefined) return 0
  await trx
    .updateTable(kind)
    .set({ audit_anchor: last.hash, audit_anchor_version: last.version_after, audit_anchor_at: last.at })
    .where('id', '=', id)
    .execute()
  const anchor = {
    anchor_version: last.version_after,
    anchor_hash: last.hash.toString('hex'),
    content_hash: last.content_hash?.toString('hex') ?? null,
  }
  await recordPruning(trx, new Map([[`${kind}:${id}`, anchor]]), actor)
  return rows.length
}

async function pruneDifferences(
  db: Kysely<Tables>,
  kind: ResourceKind,
  ids: readonly number[],
  { versionsMax, bytesMax = BYTES_MAX }: Retention,
  actor: Actor,
): Promise<number> {
  // The newest difference stays whatever its size: without it the last change could not be told or taken back.
  const rows = await patiently(db, trx => {
    const kept = trx
      .selectFrom('audit as a')
      .leftJoin('tool_definition as d', 'd.hash', 'a.definition_before')
      .where('a.resource_kind', '=', kind)
      .where('a.resource_id', '=', anyOf(val(ids)))
      .where('a.difference', 'is not', null)
      .select(({ cast, eb, fn, lit }) => {
        const bytes = eb(cast<number>('a.difference_bytes', 'bigint'), '+', fn.coalesce('d.size_bytes', lit(0)))
        return [
          ...(['a.resource_id', 'a.version_after'] as const),
          fn
            .agg<number>('row_number')
            .over(newest => newest.partitionBy('a.resource_id').orderBy('a.version_after', 'desc'))
            .as('place'),
          fn
            .sum(bytes)
            .over(newest => newest.partitionBy('a.resource_id').orderBy('a.version_after', 'desc'))
            .as('bytes'),
        ]
      })
    return trx
      .selectFrom(kept.as('kept'))
      .select(['resource_id', 'version_after'])
      .where('place', '>', 1)
      .where(({ eb, or }) => or([eb('place', '>', versionsMax), eb('bytes', '>', bytesMax)]))
      .orderBy('resource_id')
      .orderBy('version_after')
      .execute()
  })
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) {
    const page = rows.slice(from, from + ROWS_AT_ONCE)
    await db.transaction().execute(async trx => {
      await beLong(trx)
      const gone = cast(val(JSON.stringify(page)), 'jsonb')
      await trx
        .updateTable('audit as a')
        .from(
          recordsOf<(typeof page)[number], 'gone'>(gone, 'gone', { resource_id: 'integer', version_after: 'integer' }),
        )
        .set({ difference: null, definition_before: null })
        .where('a.resource_kind', '=', kind)
        .whereRef('a.resource_id', '=', 'gone.resource_id')
        .whereRef('a.version_after', '=', 'gone.version_after')
        .execute()
      // In the order of versions: the last of a resource counts.
      const marks = page.map(row => [`${kind}:${row.resource_id}`, { emptied_to: row.version_after }] as const)
      await recordPruning(trx, new Map(marks), actor)
    })
  }
  return rows.length
}

const MARK = Type.Object({
  anchor_version: Type.Integer(),
  anchor_hash: Type.String(),
  content_hash: Type.Union([Type.String(), Type.Null()]),
  emptied_to: Type.Integer(),
})
const MARK_CHECK = TypeCompiler.Compile(MARK)

/** What pruning took of a resource: rows up to `anchor_version`, the last with these hashes, and differences up to `emptied_to`. */
export type PruningMark = Static<typeof MARK>

/** Whether an event of pruning can be read. */
export function isPruningMark(value: unknown): value is PruningMark {
  return MARK_CHECK.Check(value)
}

/** The server itself. */
export const PRUNER: Actor = {
  id: null,
  name: 'pruning',
  tokenId: null,
  requestId: 'pruning',
  clientAddress: 'local',
  command: null,
}

/** Nothing was taken yet. */
export const UNPRUNED: PruningMark = { anchor_version: 0, anchor_hash: GENESIS_HASH, content_hash: null, emptied_to: 0 }

/** The last mark of each resource, by `persona:12`. */
export async function readMarks(db: Kysely<Tables>, subjects: readonly string[]): Promise<Map<string, PruningMark>> {
  const rows = await db
    .selectFrom('access_chain as c')
    .innerJoin('access_event as e', join =>
      join.onRef('e.kind', '=', 'c.kind').onRef('e.subject', '=', 'c.subject').onRef('e.number', '=', 'c.number'),
    )
    .select(['e.subject', 'e.detail'])
    .where('c.kind', '=', 'prune')
    .where('c.subject', '=', anyOf(val(subjects)))
    .execute()
  return new Map(rows.flatMap(({ subject, detail }) => (isPruningMark(detail) ? [[subject, detail]] : [])))
}

/** Notes what was pruned in events of the resources. The last event says everything; earlier ones name the actor and the time. */
async function recordPruning(
  trx: Transaction<Tables>,
  pruned: ReadonlyMap<string, Partial<PruningMark>>,
  actor: Actor,
): Promise<void> {
  const chains = [...pruned.keys()].map(subject => ({ kind: 'prune' as const, subject, action: 'pruned' }))
  const heads = await lockChains(trx, chains)
  const before = await readMarks(trx, [...pruned.keys()])
  const changes = chains.map(change => {
    return { ...change, detail: { ...(before.get(change.subject) ?? UNPRUNED), ...pruned.get(change.subject) } }
  })
  await appendEvents(trx, actor, changes, heads)
}

/** Looks for definitions without a lock, and removes a few at a time under one, after looking at those few again. */
async function pruneDefinitions(db: Kysely<Tables>): Promise<number> {
  let removed = 0
  for (let after: Buffer | undefined = Buffer.alloc(0); after !== undefined; ) {
    const from = after
    const unused: { hash: Buffer }[] = await patiently(db, trx => {
      const some = trx
        .selectFrom('tool_definition as d')
        .select(['d.hash', 'd.size_bytes'])
        .where('d.hash', '>', from)
        .where(isUnused)
        .orderBy('d.hash')
        .limit(DEFINITIONS_AT_ONCE)
      const candidates = trx.selectFrom(some.as('some')).select(({ fn }) => [
        'hash',
        'size_bytes',
        fn
          .sum<number>('size_bytes')
          .over(by => by.orderBy('hash'))
          .as('bytes'),
      ])
      return trx
        .selectFrom(candidates.as('candidate'))
        .select('hash')
        .where(({ eb, fn, val }) =>
          eb('bytes', '<=', fn<number>('greatest', ['size_bytes', val(DEFINITION_BYTES_AT_ONCE)])),
        )
        .orderBy('hash')
        .execute()
    })
    const hashes = unused.map(({ hash }) => hash)
    if (hashes.length > 0) removed += await removeDefinitions(db, hashes)
    after = hashes.at(-1)
  }
  return removed
}

const { and, cast, exists, not, selectFrom } = on<{ d: 'tool_definition' }>()
const isUnused = and([
  not(exists(selectFrom('tool as t').whereRef('t.definition_hash', '=', 'd.hash'))),
  not(exists(selectFrom('audit as a').whereRef('a.definition_before', '=', 'd.hash'))),
])

/**
 * A writer refers to a stored definition without writing it. So the lock is taken when no writer is in work, without standing in line,
 * where everybody would wait behind.
 */
async function removeDefinitions(db: Kysely<Tables>, hashes: readonly Buffer[]): Promise<number> {
  for (let tries = 0; tries < LOCK_TRIES; tries++) {
    try {
      return await db.transaction().execute(async trx => {
        await sql`lock table tool_definition in share row exclusive mode nowait`.execute(trx)
        const { numDeletedRows } = await trx
          .deleteFrom('tool_definition as d')
          .where('d.hash', '=', anyOf(val(hashes)))
          .where(isUnused)
          .executeTakeFirstOrThrow()
        return Number(numDeletedRows)
      })
    } catch (error) {
      if (classifyDatabaseError(error).kind !== 'lock_timeout') throw error
      await sleep(LOCK_PAUSE_MS)
    }
  }
  return 0 // the next run finds them again
}
