import { sql } from 'kysely'
import { jsonArrayFrom, jsonBuildObject } from 'kysely/helpers/postgres'
import { type PersonaAccess, personaAccess, type Viewer } from '../auth/viewer.js'
import { anyOf, named, on, queries } from '../db/statements/queries.js'
import type { Definitions } from '../tool/definition-cache.js'
import { members, renderTool, type ToolState, toolStates } from '../tool/snapshot.js'
import type { VersionedState } from '../updates/resource.js'
import { readsOf } from '../updates/statements.js'
import { compareIds, idsOf, type PersonaContent } from './fields.js'
import { type PersonaSnapshot, READ_FIELDS, SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'

interface Person {
  id: string
  email: string
}

/** The records that an agent refers to, in the form that answers show. */
export interface Related {
  tool_ids: ToolState[]
  document_set_ids: PersonaSnapshot['document_sets']
  label_ids: PersonaSnapshot['labels']
  users: Person[]
}

/** The state of an agent, with the viewer's access to the agent. */
export interface PersonaState extends PersonaContent, VersionedState {
  access: PersonaAccess
  owner: Person | null
  related: Related
}

/** SQL: all agents as rows of `PersonaState`, with the access of the viewer. The alias of the agents is `p`. */
export function personaStates(viewer: Viewer) {
  const { ref } = on<{ p: 'shown_persona' }>()
  const tools = toolStates(viewer)
    .where('t.id', '=', anyOf(ref('p.tool_ids')))
    .orderBy('t.id')
  const related = jsonBuildObject({
    tool_ids: jsonArrayFrom(tools),
    document_set_ids: sql.ref('r.document_sets'),
    label_ids: sql.ref('r.labels'),
    users: sql.ref('r.people'),
  })
  const agents = queries()
    .selectFrom(['shown_persona as p', sql`persona_related(p.id)`.as('r')])
    .selectAll('p')
    .select([named(personaAccess(viewer.user), 'access'), related.as('related')])
  return agents.$castTo<PersonaState>()
}

/** The statements that read the state of one agent. */
export const PERSONA_READS = readsOf<PersonaState>('persona', (viewer, id) =>
  personaStates(viewer).where('p.id', '=', id),
)

const NAMES = SNAPSHOT_FIELDS.map(([name]) => name)
const [BEFORE, AFTER] = [NAMES.slice(0, NAMES.indexOf('tools')), NAMES.slice(NAMES.indexOf('tools') + 1)]
const READ_NAMES = READ_FIELDS.map(([name]) => name)

/** Renders a `PersonaSnapshot` or, if `isRead`, a `PersonaRecord`. Inserts the stored text of each definition unchanged. */
export function renderPersona(
  agent: PersonaContent & Pick<PersonaState, 'id' | 'owner' | 'related'>,
  definitions: Definitions,
  isRead = false,
): string {
  const { related } = agent
  const ofIds = <Record extends { id: number | string }>(records: readonly Record[], ids: readonly unknown[]) => {
    const wanted = new Set(ids)
    return records.filter(record => wanted.has(record.id)).sort((a, b) => compareIds(a.id, b.id))
  }
  const people = ofIds(related.users, idsOf(agent, 'users'))
  // V8 spreads an object much faster if a named property comes first.
  const values: Record<Exclude<SnapshotPart, 'tools'>, unknown> & Readonly<Record<string, unknown>> = {
    labels: ofIds(related.label_ids, agent.label_ids),
    document_sets: ofIds(related.document_set_ids, agent.document_set_ids),
    ...agent,
    users: people.sort((a, b) => compareIds(a.email, b.email)),
    groups: idsOf(agent, 'groups'),
    starter_messages: agent.starter_messages?.map(({ name, message }) => ({ name, message })) ?? null,
  }
  const tools = ofIds(related.tool_ids, agent.tool_ids).map(tool => renderTool(tool, definitions.of(tool)))
  const after = isRead ? `${members(values, AFTER)},${members(values, READ_NAMES)}` : members(values, AFTER)
  return `{${members(values, BEFORE)},"tools":[${tools.join()}],${after}}`
}
