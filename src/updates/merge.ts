import type { Kysely } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { VersionGone } from '../errors.js'
import { type Past, readPastOf } from './past.js'

/* A stale update with `merge=fields` changes the present version, unless somebody else changed the same field since. */

/** What became of a resource since a version: what the fields that changed were then, and who made each later version. */
export interface MergeBase {
  values: Past['values']
  between: { version: number; by: string; fields: string[] }[]
}

const VERSIONS_MAX = 1_000

/** The base of a merge since a version, read under the row's lock; undefined where that is unknown or too much. */
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
    const { values } = await readPastOf(trx, kind, id, { version: since })
    return { values, between }
  } catch (error) {
    if (error instanceof VersionGone) return undefined
    throw error
  }
}

const AUTHORS_NAMED_MAX = 5
const AUTHOR_LENGTH_MAX = 64

/** Names the versions that were merged over, and for each field who changed it last. */
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
