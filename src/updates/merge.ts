import type { Kysely } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { VersionGone } from '../errors.js'
import { type Past, readPastOf } from './past.js'

/*
 * An update that names a version of the past in `If-Match` and prefers `merge=fields`: what it changes of that version is
 * changed in the present one, unless somebody else changed the same since.
 */

/** What became of a resource since a version: what the fields that changed were then, and who made each later version. */
export interface MergeBase {
  values: Past['values']
  between: { version: number; by: string; fields: string[] }[]
}

/** Beyond so many versions nothing is merged. */
const VERSIONS_MAX = 1_000

/**
 * The base of a merge over everything since version `since`, in the transaction that holds the row. Undefined where that is
 * no longer known, or was too much.
 */
export async function readMergeBase(
  trx: Kysely<Database>,
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

/** What the caller is told of each version that was merged over. */
export function mergeNotes({ between }: MergeBase): string[] {
  return between.map(({ version, by, fields }) => `merged with version ${version} by ${by}: ${fields.join(', ')}`)
}
