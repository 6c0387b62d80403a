import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { type HistoryRow, type ShownChange, shownValue } from '../updates/history.js'
import { idOf, isRelation, RELATIONS, type Relation, type StoredLink } from './fields.js'
import type { PersonaState } from './state.js'
import { type RelationLists, readReferences } from './statements.js'

/** Tables with the names of linked records. */
const NAMED = { tool_ids: 'tool', document_set_ids: 'document_set', label_ids: 'label', groups: 'user_group' } as const

type Id = number | string

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
      const [before, after] = [inWords(field, from), inWords(field, to)]
      if (before !== from || after !== to) return { field, from: before, to: after }
      return { field, from: shownValue(from, state.id, version_before), to: shownValue(to, state.id, version) }
    }),
  )

  function inWords(field: string, value: unknown): unknown {
    if (field === 'owner_id') return value === null ? null : { id: value, email: names.get(`users ${value}`) ?? null }
    if (!isRelation(field) || field === 'user_file_ids') return value
    const key = field === 'users' ? 'email' : 'name'
    return (value as StoredLink[]).map(link => {
      const { id, ...level } = typeof link === 'object' ? link : { id: link }
      return { id, [key]: names.get(`${field} ${id}`) ?? null, ...level }
    })
  }
}

/** Reads names by field and id, only those that the viewer could read elsewhere: the names of some tools and document sets are restricted. */
async function readNames(
  db: Kysely<Tables>,
  state: PersonaState,
  rows: readonly HistoryRow[],
  viewer: ViewerParameters,
): Promise<Map<string, string>> {
  const ids = Object.fromEntries(RELATIONS.map(([relation]) => [relation, idsIn(rows, relation)])) as Record<
    Relation,
    Id[]
  >
  ids.users.push(...idsIn(rows, 'owner_id'))
  const names = new Map<string, string>()
  const note = (field: string, found: readonly { id: unknown; name: unknown }[]) => {
    for (const { id, name } of found) names.set(`${field} ${id}`, String(name))
  }
  const [row] = await readReferences.run(db, {
    ...viewer,
    ...(ids as RelationLists), // each list has its relation's type
    users: [],
    groups: [],
    label_ids: [],
    user_file_ids: [],
  })
  const seen: Partial<Record<Relation, Id[]>> = {
    tool_ids: row?.references.tool_ids.map(({ id }) => id) ?? [],
    document_set_ids: row?.references.document_set_ids ?? [],
  }
  for (const [field, table] of Object.entries(NAMED) as [keyof typeof NAMED, 'label'][]) {
    const known = new Set([...(seen[field] ?? ids[field]), ...state[field].map(idOf)])
    const wanted = ids[field].filter(id => known.has(id)) as number[] // file ids are texts, as in their table
    if (wanted.length > 0)
      note(field, await db.selectFrom(table).select(['id', 'name']).where('id', 'in', wanted).execute())
  }
  if (ids.users.length > 0) {
    const users = db.selectFrom('user_account').select(['id', 'email as name']).where('id', 'in', ids.users.map(String))
    note('users', await users.execute())
  }
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
