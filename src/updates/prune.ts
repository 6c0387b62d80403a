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

/** `bytesMax` limits the old contents of one agent or tool; 64 MiB by default. */
export type Retention = Config['history'] & { readonly bytesMax?: number }

const BYTES_MAX = 64 * 2 ** 20

const ROWS_AT_ONCE = 500
const DEFINITIONS_AT_ONCE = 100
/** Writers of definitions wait while large texts are deleted, so limit the bytes per transaction. */
const DEFINITION_BYTES_AT_ONCE = 8 * 2 ** 20

/** 20 tries are enough, because a writer of a definition holds its lock only for milliseconds. */
const LOCK_TRIES = 20
const LOCK_PAUSE_MS = 25

/**
 * Removes history beyond the retention (DECISIONS section 10) in small transactions that wait for no lock. Each leaves valid chains, so
 * pruning may be interrupted and may run in several processes. `progress` receives the number of resources done. Returns how many audit
 * rows were removed, how many lost their difference, and how many unused definitions were removed.
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

/** Removes old keys of requests. They are kept as long as audit rows. */
async function pruneKeys(db: Kysely<Tables>, days: number): Promise<void> {
  for (let removed = ROWS_AT_ONCE; removed === ROWS_AT_ONCE; ) {
    const rows = await patiently(db, trx => {
      const old = trx.selectFrom('request_key').select('key').where('at', '<', daysAgo(days)).limit(ROWS_AT_ONCE)
      return trx.deleteFrom('request_key').where('key', 'in', old).returning('version').execute()
    })
    removed = rows.length
  }
}

function daysAgo(days: number): RawBuilder<string> {
  return sql`clock_timestamp() - make_interval(days => ${days}::integer)`
}

/** A resource is checked if it grew by more than 1/64 of its limit in the last two minutes. */
const LATELY_MINUTES = 2
const LATELY_SHARE = 64

/** Prunes old contents of agents and tools that grew much lately, between two runs of `pruneHistory`. Returns the number of versions pruned. */
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

/** Removes the rows of one chain that are older than the retention, and moves the anchor to the last of them. */
async function pruneChain(
  trx: Transaction<Tables>,
  kind: ResourceKind,
  id: number,
  days: number,
  actor: Actor,
): Promise<number> {
  await beLong(trx)
  // The lock keeps writers out, so that head, count and anchor change together.
  const isThere = await trx.selectFrom(kind).select('id').where('id', '=', id).executeTakeFirst()
  const free = trx.selectFrom(kind).select('id').where('id', '=', id).forNoKeyUpdate().skipLocked()
  if (isThere && (await free.execute()).length === 0) return 0 // a writer holds the row: the next run will prune it
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
  // The newest difference stays whatever its size: the last change can always be shown and reverted.
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
      // Sorted by version, so the map keeps the last mark of each resource.
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

/** What was pruned of a resource: rows up to `anchor_version`, whose last row had these hashes, and differences up to `emptied_to`. */
export type PruningMark = Static<typeof MARK>

export function isPruningMark(value: unknown): value is PruningMark {
  return MARK_CHECK.Check(value)
}

/** The author of pruning by the service itself. */
export const PRUNER: Actor = {
  id: null,
  name: 'pruning',
  tokenId: null,
  requestId: 'pruning',
  clientAddress: 'local',
  command: null,
}

/** The mark of a resource that was never pruned. */
export const UNPRUNED: PruningMark = { anchor_version: 0, anchor_hash: GENESIS_HASH, content_hash: null, emptied_to: 0 }

/** The newest mark of each subject, such as `persona:12`. */
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

/** Records the pruning as an event of each resource. The newest event has the complete mark; earlier ones keep author and time. */
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

/** Finds unused definitions without a lock, then removes a few at a time under the lock after checking them again. */
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
 * A writer may refer to a stored definition without writing its row, so removal locks the table. `nowait`: a queued lock would make all
 * writers wait too.
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
