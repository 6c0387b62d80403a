import { OPERATOR, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { named as column, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { PersonaTable } from '../db/tables.js'
import { type CachedDefinitions, cachedTexts, leavingOut, withDefinitions } from '../tool/definition-cache.js'
import { pastRecords, pastToolSizes } from '../tool/statements.js'
import { AnswerText } from '../updates/answer-text.js'
import { CONTENT_SETTINGS, type Past, type Pasts, readPasts } from '../updates/past.js'
import { idOf, idsOf, type PersonaContent, RELATIONS, type Relation, type StoredLink } from './fields.js'
import { contentOf, type References } from './rules.js'
import { pastPersonaSnapshot, type RelationIds } from './snapshot.js'
import type { PersonaState } from './state.js'
import { REFERENCE_TYPES, type RelationLists, readReferences } from './statements.js'

/**
 * Reads an earlier version of an agent, limited to what still exists and the viewer's token may see. `notes` names what is missing,
 * `deleted` the deleted records, and `tools` the past tools and the lost ones.
 */
export async function pastContent(
  executor: Executor,
  state: PersonaState,
  { at, values }: Pick<Past, 'at' | 'values'>,
  { tools: visible }: Pick<ViewerParameters, 'tools'> = OPERATOR,
): Promise<{ content: PersonaContent; tools: Pasts; deleted: string[]; notes: string[] }> {
  const content: PersonaContent = { ...contentOf(state), ...values }
  const hidden = content.tool_ids.filter(
    id => visible !== null && !visible.includes(id) && !state.tool_ids.includes(id),
  )
  content.tool_ids = content.tool_ids.filter(id => !hidden.includes(id))
  const { owner_id } = content
  const tools = await readPasts(executor, 'tool', content.tool_ids, at)
  const asked = Object.fromEntries(RELATIONS.map(([relation]) => [relation, idsOf(content, relation)])) as RelationLists
  const users = owner_id === null ? asked.users : [...asked.users, owner_id]
  const [row] = await readReferences.run(executor, { ...OPERATOR, ...asked, users, tool_ids: [] })
  if (row === undefined) throw new Error('the references statement answered no row')
  const deleted: string[] = []
  for (const [relation, { link }] of RELATIONS) {
    const isThere = existenceOf(relation, tools, row.references)
    deleted.push(...asked[relation].filter(id => !isThere(id)).map(id => `${link.noun.toLowerCase()} ${id}`))
    const links: StoredLink[] = content[relation]
    Object.assign(content, { [relation]: links.filter(link => isThere(idOf(link))) })
  }
  if (owner_id !== null && !row.references.users.includes(owner_id)) deleted.push(`the owner, user ${owner_id}`)
  const notes = [
    ...(deleted.length > 0 ? [`left out, deleted since: ${named(deleted)}`] : []),
    ...(hidden.length > 0
      ? [`left out, as this token is bound to others: ${named(hidden.map(id => `tool ${id}`))}`]
      : []),
  ]
  return { content, tools, deleted, notes }
}

function existenceOf(relation: Relation, { lost }: Pasts, references: References): (id: number | string) => boolean {
  if (relation === 'tool_ids') return id => !lost.some(tool => tool.id === id && tool.reason === 'deleted')
  const existing = new Set<number | string>(references[relation])
  return id => existing.has(id)
}

const NAMED_MAX = 20

function named(names: readonly string[]): string {
  const more = names.length - NAMED_MAX
  return `${names.slice(0, NAMED_MAX).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** Reads an earlier version of an agent with its tools of then. `notes` names what was deleted or pruned since. */
export async function pastPersona(
  executor: Executor,
  state: PersonaState,
  past: Past,
  viewer: ViewerParameters,
  requireSize: (bytes: number) => void,
): Promise<{ text: AnswerText; notes: string[] }> {
  const { content, tools, notes } = await pastContent(executor, state, past, viewer)
  const { bytes, definitions, gone } = await pastToolSizes(executor, tools.pasts)
  requireSize(bytes)
  const cached = cachedTexts(definitions)
  const shown = tools.pasts.filter(({ id }) => !gone.includes(id))
  const unkept = content.tool_ids.filter(id => !shown.some(tool => tool.id === id))
  const ids = RELATIONS.map(([relation]) => [relation, idsOf(content, relation)])
  const [row] = await readPastSnapshot.run(executor, {
    ...viewer,
    ...(Object.fromEntries(ids) as RelationLists), // has one entry for each relation
    tool_ids: shown.map(({ id }) => id),
    id: state.id,
    columns: JSON.stringify(past.values),
    past_tools: pastRecords(shown),
    ...leavingOut(cached),
  })
  if (row === undefined) throw new Error('the statement of an earlier agent answered no row')
  const text = new AnswerText(withDefinitions(row.snapshot, cached))
  if (unkept.length === 0) return { text, notes }
  const names = named(unkept.map(id => `tool ${id}`))
  return { text, notes: [...notes, `left out, of then no longer kept (${CONTENT_SETTINGS}): ${names}`] }
}

type PastParameters = ViewerParameters &
  CachedDefinitions &
  RelationLists & { id: number; columns: string; past_tools: string }

/** Reads an agent's snapshot with these past columns, relations and tool values. */
export const readPastSnapshot = statement<PastParameters, { snapshot: string }>(
  'past_persona',
  { ...REFERENCE_TYPES, cached_definitions: 'bytea[]', id: 'integer', columns: 'json', past_tools: 'json' },
  param => {
    const ids = Object.fromEntries(RELATIONS.map(([relation]) => [relation, param(relation)])) as unknown as RelationIds // has one entry for each
    const cached = param('cached_definitions')
    return queries()
      .selectFrom('persona as stored')
      .crossJoinLateral(({ fn, table }) =>
        fn<PersonaTable>('json_populate_record', [table('stored'), param('columns')]).as('p'),
      )
      .select(column(pastPersonaSnapshot(ids, viewerOf(param), param('past_tools'), cached), 'snapshot'))
      .where('stored.id', '=', param('id'))
  },
)
