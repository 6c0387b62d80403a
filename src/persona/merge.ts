import { sameValue } from '../updates/field-table.js'
import {
  CONTENT_FIELDS,
  compareIds,
  idOf,
  idsOf,
  isRelation,
  type PersonaContent,
  type Relation,
  type StoredLink,
} from './fields.js'

/** The content after a merge, and the fields that both sides changed, each to something else: they stay as they are stored. */
export interface Merged {
  content: PersonaContent
  conflicts: string[]
}

/**
 * Merges one person's change of an agent, from `before` to `mine`, into what others have made of the same `before`. A field
 * of which only one side changed the value gets that value; of a relation, what I added and removed is added and removed.
 */
export function mergeContent(before: PersonaContent, mine: PersonaContent, stored: PersonaContent): Merged {
  const content = { ...stored }
  const conflicts: string[] = []
  for (const field of CONTENT_FIELDS) {
    if (sameValue(before[field], mine[field])) continue
    if (isRelation(field)) Object.assign(content, { [field]: mergedLinks(field, before, mine, stored) })
    else if (sameValue(stored[field], before[field])) Object.assign(content, { [field]: mine[field] })
    else if (!sameValue(stored[field], mine[field])) conflicts.push(field)
  }
  return { content, conflicts }
}

/** A link that is stored stays as it is, with its level; the owner needs none. */
function mergedLinks(relation: Relation, before: PersonaContent, mine: PersonaContent, stored: PersonaContent) {
  const linksOf = (content: PersonaContent): StoredLink[] => content[relation]
  const setOf = (content: PersonaContent) => new Set(idsOf(content, relation))
  const [had, want, has] = [setOf(before), setOf(mine), setOf(stored)]
  const kept = linksOf(stored).filter(link => !had.has(idOf(link)) || want.has(idOf(link)))
  const added = linksOf(mine).filter(link => {
    const id = idOf(link)
    return !had.has(id) && !has.has(id) && !(relation === 'users' && id === stored.owner_id)
  })
  return [...kept, ...added].sort((a, b) => compareIds(idOf(a), idOf(b)))
}
