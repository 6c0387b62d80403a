import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { type HistoryRow, type ShownChange, shownChange, sideOf } from '../updates/history.js'
import { type Id, idOf, isRelation, RELATIONS, type Relation, type StoredLink } from './fields.js'
import { visibleRecords } from './past.js'
import type { PersonaState } from './state.js'

/** Returns the changes of audit rows, with current names and emails for ids whose names the viewer may know. */
export async function personaChanges(
  db: Kysely<Tables>,
  state: PersonaState,
  rows: readonly HistoryRow[],
  viewer: ViewerParameters,
): Promise<ShownChange[][]> {
  const names = await readNames(db, state, rows, viewer)
  return rows.map(({ version, version_before, difference }) =>
    Object.entries(difference ?? {}).map(([field, { from, to }]) => {
      if (field === 'owner_id' || isRelation(field))
        return { field, from: inWords(field, from), to: inWords(field, to) }
      return shownChange(field, { from: sideOf(from, state.id, version_before), to: sideOf(to, state.id, version) })
    }),
  )

  function inWords(field: 'owner_id' | Relation, value: unknown): unknown {
    if (field === 'owner_id') return value === null ? null : { id: value, email: names.get(`users ${value}`) ?? null }
    if (field === 'user_file_ids') return (value as string[]).map(id => names.get(`${field} ${id}`) ?? null)
    const key = field === 'users' ? 'email' : 'name'
    return (value as StoredLink[]).map(link => {
      const { id, ...level } = typeof link === 'object' ? link : { id: link }
      return { id, [key]: names.get(`${field} ${id}`) ?? null, ...level }
    })
  }
}

/** Reads names by field and id, only those that the viewer could read elsewhere. The name of a file is its id, which is private. */
async function readNames(
  db: Kysely<Tables>,
  state: PersonaState,
  rows: readonly HistoryRow[],
  viewer: ViewerParameters,
): Promise<Map<string, string>> {
  const ids = Object.fromEntries(RELATIONS.map(([relation]) => [relation, idsIn(rows, relation)]))
  ids.users?.push(...idsIn(rows, 'owner_id'))
  const { related, seen } = await visibleRecords(db, state, ids, viewer)
  const names = new Map<string, string>()
  const note = (field: string, found: readonly { id: unknown; name: unknown }[]) => {
    for (const { id, name } of found) names.set(`${field} ${id}`, String(name))
  }
  for (const field of ['tool_ids', 'document_set_ids', 'label_ids'] as const) note(field, related[field])
  for (const { id, email } of related.users) names.set(`users ${id}`, email)
  for (const id of seen.user_file_ids) names.set(`user_file_ids ${id}`, String(id))
  const groups = [0, ...seen.groups].map(Number)
  note('groups', await db.selectFrom('user_group').select(['id', 'name']).where('id', 'in', groups).execute())
  return names
}

/** Returns the distinct ids of a field in these rows. */
function idsIn(rows: readonly HistoryRow[], field: string): Id[] {
  const values = rows.flatMap(({ difference }) => {
    const change = difference?.[field]
    return change === undefined ? [] : [change.from, change.to].flat()
  })
  return [...new Set(values.filter(value => value !== null).map(value => idOf(value as StoredLink)))]
}
