import type { Kysely } from 'kysely'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Executor } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { definitionsOf } from '../tool/definition-cache.js'
import type { Past } from '../updates/resource.js'
import { idOf, idsOf, linkOf, type PersonaContent, RELATIONS, type Relation, type StoredLink } from './fields.js'
import { contentOf, type References, sumOf } from './rules.js'
import { renderPersona } from './snapshot.js'
import type { PersonaState } from './state.js'
import { type RelationLists, readReferences } from './statements.js'

/**
 * Returns what of each relation exists and is visible to the viewer: what the agent has now, and what they could attach to it. Includes the
 * sizes of these tools.
 */
export async function visibleReferences(
  executor: Executor,
  state: PersonaState,
  asked: RelationLists,
  viewer: ViewerParameters,
): Promise<References> {
  const tools = viewer.tools && [...viewer.tools, ...state.tool_ids]
  const [row] = await readReferences.run(executor, { ...viewer, ...asked, tools })
  if (row === undefined) throw new Error('the references statement answered no row')
  const ofAgent = RELATIONS.filter(([relation]) => relation !== 'tool_ids').map(([relation]) => {
    const wanted = new Set<Referred>(asked[relation])
    const found = row.references[relation] as Referred[]
    const seen = new Set(found.map(referredId))
    const stored: Referred[] = relation in state.related ? state.related[relation as 'users'] : idsOf(state, relation)
    return [relation, [...found, ...stored.filter(one => wanted.has(referredId(one)) && !seen.has(referredId(one)))]]
  })
  return { ...row.references, ...Object.fromEntries(ofAgent) }
}

type Referred = number | string | { id: number | string }

function referredId(one: Referred): number | string {
  return typeof one === 'object' ? one.id : one
}

/** An earlier version of an agent, limited to related records that the viewer may see now. */
interface PastContent {
  content: PersonaContent
  references: References
  /** What is left out, in words. Without ids of files, which are private. */
  left: string[]
}

/** Reads the content of an earlier version for a viewer. */
export async function pastContent(
  executor: Executor,
  state: PersonaState,
  { values }: Past,
  viewer: ViewerParameters,
): Promise<PastContent> {
  const content: PersonaContent = { ...contentOf(state), ...values }
  const asked = Object.fromEntries(RELATIONS.map(([relation]) => [relation, idsOf(content, relation)])) as RelationLists
  const { owner_id } = content
  const users = owner_id === null ? asked.users : [...asked.users, owner_id]
  const references = await visibleReferences(executor, state, { ...asked, users }, viewer)
  const left: string[] = []
  for (const [relation] of RELATIONS) {
    const seen = new Set((references[relation] as Referred[]).map(referredId))
    left.push(
      ...inWords(
        relation,
        asked[relation].filter(id => !seen.has(id)),
      ),
    )
    const links: StoredLink[] = content[relation]
    Object.assign(content, { [relation]: links.filter(link => seen.has(idOf(link))) })
  }
  if (owner_id !== null && !references.users.some(({ id }) => id === owner_id)) left.push(`the owner, user ${owner_id}`)
  return { content, references, left }
}

/** Names related records. Ids of files are private, so files are only counted. */
export function inWords(relation: Relation, ids: readonly (number | string)[]): string[] {
  const noun = linkOf(relation).noun.toLowerCase()
  if (relation !== 'user_file_ids') return ids.map(id => `${noun} ${id}`)
  return ids.length === 0 ? [] : [ids.length === 1 ? '1 file' : `${ids.length} files`]
}

const NAMED_MAX = 20

function named(names: readonly string[]): string {
  const more = names.length - NAMED_MAX
  return `${names.slice(0, NAMED_MAX).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** Reads an earlier version of an agent, with related records as they are now. `notes` names those that are left out. */
export async function pastPersona(
  db: Kysely<Tables>,
  state: PersonaState,
  past: Past,
  viewer: ViewerParameters,
  requireSize: (bytes: number) => void,
  isRead = false,
): Promise<{ text: string; notes: string[] }> {
  const { content, references: related, left } = await pastContent(db, state, past, viewer)
  requireSize(sumOf(related.tool_ids))
  const definitions = await definitionsOf(
    db,
    related.tool_ids.map(tool => tool.definition_hash),
  )
  const owner = related.users.find(({ id }) => id === content.owner_id) ?? null
  const notes = left.length === 0 ? [] : [`left out, deleted since or not visible to you: ${named(left)}`]
  return { text: renderPersona({ id: state.id, owner, content, related }, definitions, isRead), notes }
}
