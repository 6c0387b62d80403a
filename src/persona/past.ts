import { type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { named as column, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { PersonaTable } from '../db/tables.js'
import { type CachedDefinitions, cachedTexts, leavingOut, withDefinitions } from '../tool/definition-cache.js'
import { AnswerText } from '../updates/answer-text.js'
import type { Past } from '../updates/past.js'
import { idOf, idsOf, linkOf, type PersonaContent, RELATIONS, type Relation, type StoredLink } from './fields.js'
import { contentOf, type References } from './rules.js'
import { personaSnapshot, type RelationIds } from './snapshot.js'
import type { PersonaState } from './state.js'
import { REFERENCE_TYPES, type RelationLists, readReferences } from './statements.js'

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
    const has = new Set(idsOf(state, relation))
    return [relation, [...row.references[relation as 'users'], ...asked[relation].filter(id => has.has(id))]]
  })
  return { ...row.references, ...Object.fromEntries(ofAgent) }
}

/** An earlier version of an agent, limited to related records that the viewer may see now. */
interface PastContent {
  content: PersonaContent
  tools: References['tool_ids']
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
    const visible: (number | string | { id: number })[] = references[relation]
    const seen = new Set(visible.map(one => (typeof one === 'object' ? one.id : one)))
    left.push(
      ...inWords(
        relation,
        asked[relation].filter(id => !seen.has(id)),
      ),
    )
    const links: StoredLink[] = content[relation]
    Object.assign(content, { [relation]: links.filter(link => seen.has(idOf(link))) })
  }
  if (owner_id !== null && !references.users.includes(owner_id)) left.push(`the owner, user ${owner_id}`)
  return { content, tools: references.tool_ids, left }
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
  executor: Executor,
  state: PersonaState,
  past: Past,
  viewer: ViewerParameters,
  requireSize: (bytes: number) => void,
): Promise<{ text: AnswerText; notes: string[] }> {
  const { content, tools, left } = await pastContent(executor, state, past, viewer)
  requireSize(tools.reduce((sum, { bytes }) => sum + bytes, 0))
  const cached = cachedTexts(tools.map(({ definition }) => definition))
  const ids = RELATIONS.map(([relation]) => [relation, idsOf(content, relation)])
  const [row] = await readPastSnapshot.run(executor, {
    ...viewer,
    ...(Object.fromEntries(ids) as RelationLists), // has one entry for each relation
    id: state.id,
    columns: JSON.stringify(past.values),
    ...leavingOut(cached),
  })
  if (row === undefined) throw new Error('the statement of an earlier agent answered no row')
  const notes = left.length === 0 ? [] : [`left out, deleted since or not visible to you: ${named(left)}`]
  return { text: new AnswerText(withDefinitions(row.snapshot, cached)), notes }
}

type PastParameters = ViewerParameters & CachedDefinitions & RelationLists & { id: number; columns: string }

/** Reads an agent's snapshot with these earlier columns and relations. */
export const readPastSnapshot = statement<PastParameters, { snapshot: string }>(
  'past_persona',
  { ...REFERENCE_TYPES, cached_definitions: 'bytea[]', id: 'integer', columns: 'json' },
  param => {
    const ids = Object.fromEntries(RELATIONS.map(([relation]) => [relation, param(relation)])) as unknown as RelationIds // has one entry for each
    return queries()
      .selectFrom('persona as stored')
      .crossJoinLateral(({ fn, table }) =>
        fn<PersonaTable>('json_populate_record', [table('stored'), param('columns')]).as('p'),
      )
      .select(column(personaSnapshot(ids, viewerOf(param), param('cached_definitions')), 'snapshot'))
      .where('stored.id', '=', param('id'))
  },
)
