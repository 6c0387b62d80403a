import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import type { PastValues } from '../updates/resource.js'
import {
  type Id,
  idOf,
  idsOf,
  linkOf,
  type PersonaContent,
  RELATIONS,
  type Relation,
  type StoredLink,
} from './fields.js'
import { type Attached, attachedIds, contentOf, relatedWith } from './rules.js'
import type { PersonaState } from './state.js'
import { readReferences } from './statements.js'

/** Builds an earlier state of an agent, with related records as they are now: those that it has, and those that the viewer could attach. */
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
    return inWords(relation, links.filter(link => !isSeen(link)).map(idOf))
  })
  const owner = owner_id === state.owner_id ? state.owner : (related.users.find(({ id }) => id === owner_id) ?? null)
  const notes = left.length === 0 ? [] : [`left out, deleted since or not visible to you: ${named(left)}`]
  return { state: { ...state, ...content, owner, related }, notes }
}

/** Reads what the viewer sees of an agent's records and of others: their ids by relation, and the records themselves. */
export async function visibleRecords(
  db: Kysely<Tables>,
  state: PersonaState,
  others: Attached,
  viewer: ViewerParameters,
) {
  const found = await readReferences(db, others, viewer)
  const ids = RELATIONS.map(([relation]) => {
    const records: (Id | { id: Id })[] = found[relation]
    const more = records.map(record => (typeof record === 'object' ? record.id : record))
    return [relation, new Set([...idsOf(state, relation), ...more])]
  })
  const seen = Object.fromEntries(ids) as Record<Relation, Set<Id>> // has one entry for each
  return { related: relatedWith(state, found), seen }
}

/** Names related records. Ids of files are private, so files are only counted. */
function inWords(relation: Relation, ids: readonly Id[]): string[] {
  if (relation !== 'user_file_ids') return ids.map(id => `${linkOf(relation).noun.toLowerCase()} ${id}`)
  return ids.length === 0 ? [] : [ids.length === 1 ? '1 file' : `${ids.length} files`]
}

const NAMED_MAX = 20

function named(names: readonly string[]): string {
  const more = names.length - NAMED_MAX
  return `${names.slice(0, NAMED_MAX).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}
