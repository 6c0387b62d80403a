import type { Kysely } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { VersionGone } from '../errors.js'
import { type Past, readPast } from './past.js'

/* A stale update with `merge=fields` is applied to the current version, unless someone else changed one of its fields since. */

/** The start of a merge: the values that changed fields had in the caller's version, and the author of each later version. */
export interface MergeBase {
  values: Past['values']
  between: { version: number; by: string; fields: string[] }[]
}

const VERSIONS_MAX = 1_000

/** Reads the start of a merge under the row's lock. Undefined if it is unknown, or if there are too many versions since. */
export async function readMergeBase(
  trx: Kysely<Tables>,
  kind: ResourceKind,
  id: number,
  since: number,
): Promise<MergeBase | undefined> {
  const between = await trx
    .selectFrom('audit')
    .select(['version_after as version', 'actor as by', 'fields'])
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', since)
    .orderBy('version_after', 'asc')
    .limit(VERSIONS_MAX + 1)
    .execute()
  if (between.length > VERSIONS_MAX) return undefined
  try {
    const { values } = await readPast(trx, kind, id, since)
    return { values, between }
  } catch (error) {
    if (error instanceof VersionGone) return undefined
    throw error
  }
}

const AUTHORS_NAMED_MAX = 5
const AUTHOR_LENGTH_MAX = 64

/** The note for the caller: the versions merged with, and the last author of each changed field. */
export function mergeNote({ between }: MergeBase): string {
  const last = new Map(between.flatMap(({ by, fields }) => fields.map(field => [field, by] as const)))
  const fieldsOf = new Map<string, string[]>()
  for (const [field, by] of last) {
    const author = fieldsOf.has(by) || fieldsOf.size < AUTHORS_NAMED_MAX ? by.slice(0, AUTHOR_LENGTH_MAX) : 'others'
    fieldsOf.set(author, [...(fieldsOf.get(author) ?? []), field])
  }
  const [from, to] = [between[0]?.version, between.at(-1)?.version]
  const changes = [...fieldsOf].map(([author, fields]) => `${fields.join(', ')} by ${author}`)
  return `merged with version${from === to ? '' : 's'} ${from}${from === to ? '' : ` to ${to}`}: ${changes.join('; ')}`
}
