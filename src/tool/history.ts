import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { SHOWN_BYTES_MAX } from '../updates/history.js'
import type { Change, ChangedRow } from '../updates/resource.js'
import { storedDefinitions } from './definition-cache.js'
import type { ToolState } from './snapshot.js'

/** Returns the changes in `rows`, with current emails and names. Names an OAuth configuration only if the viewer may link it or the tool has it. */
export async function toolChanges(
  db: Kysely<Tables>,
  state: Pick<ToolState, 'id' | 'managed_as' | 'oauth_config_id'>,
  rows: readonly ChangedRow[],
  { user, manages_all }: ViewerParameters,
): Promise<Change[][]> {
  const valuesOf = (field: string) =>
    rows.flatMap(({ difference }) => {
      const change = difference?.[field]
      return change === undefined ? [] : [change.from, change.to].filter(value => value !== null)
    })
  const definitions = await storedDefinitions(db, valuesOf('definition').map(String))
  const users = [NOBODY, ...valuesOf('user_id').map(String)]
  const people = await db.selectFrom('user_account').select(['id', 'email']).where('id', 'in', users).execute()
  const configs = await db
    .selectFrom('oauth_config')
    .select(['id', 'name'])
    .where('id', 'in', [0, ...valuesOf('oauth_config_id').map(Number)])
    .$if(!manages_all, query =>
      query.where(({ eb, or }) => or([eb('owner_id', '=', user), eb('id', '=', state.oauth_config_id)])),
    )
    .execute()
  return rows.map(({ difference }) =>
    Object.entries(difference ?? {}).map(([field, { from, to }]) => ({
      field,
      from: shown(field, from),
      to: shown(field, to),
    })),
  )

  function shown(field: string, value: unknown): unknown {
    if (value === null) return null
    if (field === 'user_id') return { id: value, email: people.find(({ id }) => id === value)?.email ?? null }
    if (field === 'oauth_config_id') return { id: value, name: configs.find(({ id }) => id === value)?.name ?? null }
    if (field === 'custom_headers') return state.managed_as === null ? null : value
    if (field !== 'definition') return value
    const text = definitions.get(String(value))?.text
    return text !== undefined && Buffer.byteLength(text) <= SHOWN_BYTES_MAX ? JSON.parse(text) : undefined
  }
}

const NOBODY = '00000000-0000-0000-0000-000000000000'
