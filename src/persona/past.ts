import { sql } from 'kysely'
import { type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { VersionGone } from '../errors.js'
import { type CachedDefinitions, cachedTexts, leavingOut, withDefinitions } from '../tool/definition-cache.js'
import { pastRecords, pastToolSizes } from '../tool/past.js'
import { AnswerText } from '../updates/answer-text.js'
import { type Past, readPasts } from '../updates/past.js'
import { type PersonaContent, RELATIONS, type Relation } from './fields.js'
import { idsOf } from './links.js'
import { contentOf } from './rules.js'
import { pastPersonaSnapshot, type RelationIds } from './snapshot.js'
import type { PersonaState } from './state.js'

/**
 * The snapshot of an agent as it was, with its tools as they were. Throws `VersionGone` where one of them was
 * deleted, or its definition is no longer kept.
 */
export async function pastPersona(
  executor: Executor,
  state: PersonaState,
  { at, values }: Past,
  viewer: ViewerParameters,
  reserve: (bytes: number) => void,
): Promise<AnswerText> {
  const content: PersonaContent = { ...contentOf(state), ...values }
  const tools = await readPasts(executor, 'tool', content.tool_ids, { at })
  const gone = content.tool_ids.find(id => !tools.some(tool => tool.id === id))
  if (gone !== undefined) throw new VersionGone('deleted', `Tool ${gone}, which the agent had then, was deleted.`)
  const { bytes, definitions } = await pastToolSizes(executor, tools)
  reserve(bytes)
  const cached = cachedTexts(definitions)
  const ids = RELATIONS.map(([relation]) => [relation, idsOf(content, relation)])
  const [row] = await readPastSnapshot.run(executor, {
    ...viewer,
    ...(Object.fromEntries(ids) as Record<Relation, (number | string)[]>), // one for each relation
    id: state.id,
    columns: JSON.stringify(values),
    past_tools: pastRecords(tools),
    ...leavingOut(cached),
  })
  if (row === undefined) throw new Error('the statement of an earlier agent answered no row')
  return new AnswerText(await withDefinitions(row.snapshot, cached))
}

type PastParameters = ViewerParameters &
  CachedDefinitions &
  Record<Relation, (number | string)[]> & { id: number; columns: string; past_tools: string }

/** Answers an agent as it was: with these columns in place of the stored ones, these relations, and tools that differed so. */
export const readPastSnapshot = statement<PastParameters, { snapshot: string }>('past_persona', param => {
  const viewer = viewerOf(param)
  const ids = Object.fromEntries(
    RELATIONS.map(([relation, { link }]) => [relation, sql`${param(relation)}::${sql.raw(link.idType)}[]`]),
  ) as RelationIds
  return sql`
    select ${pastPersonaSnapshot(ids, viewer, sql`${param('past_tools')}::json`, sql`${param('cached_definitions')}::bytea[]`)} as snapshot
    from persona stored cross join lateral json_populate_record(stored, ${param('columns')}::json) p
    where stored.id = ${param('id')}::integer`
})
