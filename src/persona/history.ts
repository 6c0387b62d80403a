import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import type { Change, ChangedRow, PastValues } from '../updates/resource.js'
import {
  type Id,
  idOf,
  idsOf,
  isRelation,
  linkOf,
  type PersonaContent,
  RELATIONS,
  type Relation,
  type StoredLink,
} from './fields.js'
import { type Attached, attachedIds, contentOf, relatedWith } from './rules.js'
import type { PersonaState } from './state.js'
import { readReferences } from './statements.js'

/** Returns the changes in `rows`, with the current names and emails of the records that the viewer can see. */
export async function personaChanges(
  db: Kysely<Tables>,
  state: PersonaState,
  rows: readonly ChangedRow[],
  viewer: ViewerParameters,
): Promise<Change[][]> {
  const names = await readNames(db, state, rows, viewer)
  return rows.map(({ difference }) =>
    Object.entries(difference ?? {}).map(([field, { from, to }]) => ({
      field,
      from: inWords(field, from),
      to: inWords(field, to),
    })),
  )

  function inWords(field: string, value: unknown): unknown {
    if (field !== 'owner_id' && !isRelation(field)) return value
    if (field === 'owner_id') return value === null ? null : { id: value, email: names.get(`users ${value}`) ?? null }
    if (field === 'user_file_ids') return (value as string[]).map(id => names.get(`${field} ${id}`) ?? null)
    const key = field === 'users' ? 'email' : 'name'
    return (value as StoredLink[]).map(link => {
      const { id, ...level } = typeof link === 'object' ? link : { id: link }
      return { id, [key]: names.get(`${field} ${id}`) ?? null, ...level }
    })
  }
}

/** Reads the names of all records in `rows` that the viewer can see. The name of a file is its id. */
async function readNames(
  db: Kysely<Tables>,
  state: PersonaState,
  rows: readonly ChangedRow[],
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

function idsIn(rows: readonly ChangedRow[], field: string): Id[] {
  const values = rows.flatMap(({ difference }) => {
    const change = difference?.[field]
    return change === undefined ? [] : [change.from, change.to].flat()
  })
  return [...new Set(values.filter(value => value !== null).map(value => idOf(value as StoredLink)))]
}

/**
 * Builds an earlier state of an agent, with related records as they are now. Omits a record if the agent no longer has it and the viewer cannot see
 * it. `notes` names the omitted records.
 */
export async function pastPersona(
  db: Kysely<Tables>,
  state: PersonaState,
  values: PastValues,
  viewer: ViewerParameters,
) {
  const content: PersonaContent = { ...contentOf(state), ...values }
  const { owner_id } = content
  const attached = attachedIds(state, content)
  if (owner_id !== null && owner_id !== state.owner_id) attached.users = [...(attached.users ?? []), owner_id]
  const { related, seen } = await visibleRecords(db, state, attached, viewer)
  const left = RELATIONS.flatMap(([relation]) => {
    const links: StoredLink[] = content[relation]
    const isSeen = (link: StoredLink) => seen[relation].has(idOf(link))
    Object.assign(content, { [relation]: links.filter(isSeen) })
    return namesOf(relation, links.filter(link => !isSeen(link)).map(idOf))
  })
  const owner = owner_id === state.owner_id ? state.owner : (related.users.find(({ id }) => id === owner_id) ?? null)
  const notes = left.length === 0 ? [] : [`records that are deleted or hidden from you are omitted: ${named(left)}`]
  return { state: { ...state, ...content, owner, related }, notes }
}

/** Returns the records that the agent has now, and the records in `others` that the viewer can see. `seen` has the ids of all returned records. */
async function visibleRecords(db: Kysely<Tables>, state: PersonaState, others: Attached, viewer: ViewerParameters) {
  const found = await readReferences(db, others, viewer)
  const ids = RELATIONS.map(([relation]) => {
    const records: (Id | { id: Id })[] = found[relation]
    return [relation, new Set([...idsOf(state, relation), ...records.map(idOf)])]
  })
  const seen = Object.fromEntries(ids) as Record<Relation, Set<Id>>
  return { related: relatedWith(state, found), seen }
}

/** Names related records for a warning. Files are only counted, because their ids are private. */
function namesOf(relation: Relation, ids: readonly Id[]): string[] {
  if (relation !== 'user_file_ids') return ids.map(id => `${linkOf(relation).noun.toLowerCase()} ${id}`)
  return ids.length === 0 ? [] : [ids.length === 1 ? '1 file' : `${ids.length} files`]
}

const NAMED_MAX = 20

function named(names: readonly string[]): string {
  const more = names.length - NAMED_MAX
  return `${names.slice(0, NAMED_MAX).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}
