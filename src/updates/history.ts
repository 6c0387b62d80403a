import { sql } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { INT4_MAX } from '../db/tables.js'
import { inOneSnapshot, readState } from './read.js'
import type { Change, ChangedRow, Job, ReadRequest, ResourceTypes } from './resource.js'

/* The history of an agent or a tool, read from its audit rows, newest first. */

export interface HistoryRow extends ChangedRow {
  version: number
  at: string
  author: string
  actor_id: string | null
  command: string | null
  request_id: string
  fields: string[]
  action: (typeof ACTIONS)[number]
  proposal: { id: number; author: { id: string; email: string } } | null
}

/** The size limit for the audit rows of a page and the definitions that they replaced. The row that exceeds the limit ends the page. */
const PAGE_BYTES_MAX = 4 * 2 ** 20

/**
 * Reads the newest `limit` entries of a history. With `before`, reads only entries of earlier versions. Omits the entries of a removed tool that
 * had the same id. `keptFrom` is the first version that can be read and restored. Throws `ResourceNotFound`.
 */
export async function historyOf<T extends ResourceTypes>(
  { database, resource, request }: Job<T, ReadRequest>,
  id: number,
  { limit, before = INT4_MAX }: { limit: number; before?: number | undefined },
) {
  const { kind } = resource
  const viewer = viewerParameters(request.caller)
  return await inOneSnapshot(database, async trx => {
    const state = await readState(trx, resource, id, viewer)
    const all = trx.selectFrom('audit_entry as a').where('a.resource_kind', '=', kind).where('a.resource_id', '=', id)
    const { oldest, pruned, removed } = await all
      .select(({ eb, fn }) => [
        fn.min('a.version_before').as('oldest'),
        fn.max('a.version_after').filterWhere('a.difference', 'is', null).as('pruned'),
        fn
          .max('a.version_after')
          .filterWhere(eb(eb.val('removed'), '=', fn.any('a.fields')))
          .as('removed'),
      ])
      .executeTakeFirstOrThrow()
    const first = Math.max(oldest ?? state.version, removed ?? 0)
    // For each row, the size of all newer rows on the page.
    const newer = sql<number>`sum(a.difference_bytes + coalesce(d.size_bytes, 0)) over (
      order by a.version_after desc rows between unbounded preceding and 1 preceding)`
    const page = all
      .leftJoin('tool_definition as d', 'd.hash', 'a.definition_before')
      .select(['a.version_after as version', 'a.version_before', 'a.at', 'a.actor_id', 'a.command', 'a.request_id'])
      .select(['a.fields', 'a.difference', 'a.author', 'a.action', PROPOSAL.as('proposal')])
      .select(newer.as('newer'))
      .where('a.version_after', '>', removed ?? 0)
      .where('a.version_after', '<', before)
      .orderBy('a.version_after', 'desc')
      .limit(limit)
    const rows = await trx
      .selectFrom(page.as('page'))
      .selectAll()
      .where(({ eb, fn }) => eb(fn.coalesce('newer', eb.lit(0)), '<=', PAGE_BYTES_MAX))
      .orderBy('version', 'desc')
      .execute()
    const keptFrom = Math.max(pruned ?? 0, first, (removed ?? 0) + 1)
    const hasMore = (rows.at(-1)?.version_before ?? 0) > first
    return { rows, hasMore, keptFrom, changes: await resource.changesOf(trx, state, rows, viewer) }
  })
}

export const ACTIONS = ['created', 'updated', 'deleted', 'restored', 'applied'] as const

/** SQL: the proposal whose approval wrote the audit row `a`. The row's command contains the ids of the proposal and of its author. */
const PROPOSAL = sql<HistoryRow['proposal']>`(
  select json_build_object('id', named[1]::integer, 'author', json_build_object('id', u.id, 'email', u.email))
  from regexp_match(a.command, '^approve --proposal (\\d+) --author (\\S+)$') named join user_account u on u.id = named[2]::uuid)`

/** The size limit of a value in the history. To get a longer value, a client must read the version. */
export const SHOWN_BYTES_MAX = 4 * 1024

/** Returns a `HistoryEntry` without values larger than `SHOWN_BYTES_MAX`. The result's `changes` is null if `difference` was pruned. */
export function historyEntry(row: HistoryRow, changes: readonly Change[] = []) {
  const { version, at, action, request_id, proposal, fields, difference } = row
  const short = (value: unknown) =>
    Buffer.byteLength(JSON.stringify(value) ?? '') <= SHOWN_BYTES_MAX ? value : undefined
  const shown = changes.map(({ field, from, to }) => ({ field, from: short(from), to: short(to) }))
  const approved = proposal && { proposal }
  return { version, at, action, actor: authorOf(row), ...approved, request_id, fields, changes: difference && shown }
}

export function authorOf({ author, actor_id: id, command }: Pick<HistoryRow, 'author' | 'actor_id' | 'command'>) {
  return id === null ? { id, command: command ?? author } : { id, email: author }
}
