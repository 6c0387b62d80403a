import { type Kysely, sql } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import type { FieldChange } from '../errors.js'
import type { Change } from './audit.js'
import type { UpdateRequest, VersionedState } from './resource.js'

/**
 * What changed since a version, by whom and when (the last change of each field); null when that is no longer known. `applied` is the
 * version in which the caller's own content was stored since, if it was, and if that is still known.
 */
interface Since {
  changed: FieldChange[] | null
  applied: number | 'none' | 'unknown'
}

const NEVER: Since = { changed: null, applied: 'none' }
const UNKNOWN: Since = { changed: null, applied: 'unknown' }

/**
 * What happened after version `since`, as far as the audit rows tell. The caller's own update was stored when the row after `since` is
 * theirs and the state after it had every value that the request asks for: its answer was lost.
 */
export async function changesSince(
  db: Kysely<Tables>,
  { kind, actor, fields }: Pick<UpdateRequest, 'kind' | 'actor' | 'fields'>,
  { id, version }: Pick<VersionedState, 'id' | 'version'>,
  since: number | undefined,
  asked: readonly Change[],
): Promise<Since> {
  if (since === undefined || since >= version) return NEVER
  const rows = await db
    .selectFrom('audit')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(CHANGES_READ_AT_MOST)
    .select(['version_before', 'version_after', 'fields', 'actor', 'actor_id', 'at'])
    .select(eb => eb('difference', 'is', null).as('is_pruned'))
    .execute()
  const [first, ...later] = rows
  if (first?.version_before !== since || rows.length === CHANGES_READ_AT_MOST) return UNKNOWN
  const last = new Map<string, FieldChange>()
  for (const row of rows) for (const field of row.fields) last.set(field, { field, by: row.actor, at: row.at })
  const changed = [...last.values()]
  if (actor.id === null || first.actor_id !== actor.id) return { changed, applied: 'none' }
  if (rows.some(row => row.is_pruned)) return { changed, applied: 'unknown' }
  const questions = questionsOf([first, ...later], Object.keys(fields), asked)
  const wasStored = questions !== undefined && (await areSame(db, kind, id, questions))
  return { changed, applied: wasStored ? first.version_after : 'none' }
}

/** More changes since a version are not worth listing. */
const CHANGES_READ_AT_MOST = 1000

/** A row of the audit trail, without its contents: a resource may have 64 MiB of them. */
interface Row {
  version_after: number
  fields: readonly string[]
}

/** Whether a field had a value: what a row says that it was made to, or was before; as JSON, or as a later row says that it was made to. */
interface Question {
  field: string
  version: number
  side: 'from' | 'to'
  expected: string | null
  later: number | null
}

/** The questions whose answers tell if the first row made every value that was asked for; undefined where it is known that it did not. */
function questionsOf(
  [first, ...later]: [Row, ...Row[]],
  fields: readonly string[],
  changes: readonly Change[],
): Question[] | undefined {
  const questions: Question[] = []
  for (const field of new Set([...fields, ...changes.map(each => each.field)])) {
    const change = changes.find(each => each.field === field)
    const touching = later.filter(row => row.fields.includes(field))
    const own = first.fields.includes(field) ? first : undefined
    const [next] = touching
    if (own === undefined && next === undefined) {
      if (change !== undefined) return undefined // nobody touched it: it never had the value that is asked for now
      continue
    }
    // What was asked for without a change is what is stored now.
    const [version, side] =
      own === undefined ? ([next?.version_after ?? 0, 'from'] as const) : ([own.version_after, 'to'] as const)
    const now = touching.at(-1)?.version_after ?? null
    if (change !== undefined) questions.push({ field, version, side, expected: JSON.stringify(change.to), later: null })
    else if (now !== null) questions.push({ field, version, side, expected: null, later: now })
  }
  return questions
}

/** Asks where the values are, of which none travels. Differences are stored as `JSON.stringify` wrote them. */
async function areSame(db: Kysely<Tables>, kind: ResourceKind, id: number, questions: Question[]): Promise<boolean> {
  const ofResource = (row: string) =>
    sql`${sql.ref(`${row}.resource_kind`)} = ${kind} and ${sql.ref(`${row}.resource_id`)} = ${id}`
  const { rows } = await sql<{ isSame: boolean }>`
    select not exists (
      select from json_to_recordset(${JSON.stringify(questions)}::json)
        as q(field text, version integer, side text, expected text, later integer)
      where (select (a.difference -> q.field -> q.side)::text from audit a where ${ofResource('a')} and a.version_after = q.version)
        is distinct from coalesce(q.expected,
          (select (a.difference -> q.field -> 'to')::text from audit a where ${ofResource('a')} and a.version_after = q.later))
    ) as "isSame"`.execute(db)
  return rows[0]?.isSame === true
}
