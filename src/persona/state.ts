import type { AliasableExpression, Expression } from 'kysely'
import { jsonArrayFrom, jsonBuildObject, jsonObjectFrom } from 'kysely/helpers/postgres'
import { type PersonaAccess, personaAccess, type Viewer } from '../auth/access.js'
import { anyOf, arrayOf, columnsOf, on, queries } from '../db/statements/queries.js'
import type { Definitions } from '../tool/definition-cache.js'
import { members, renderTool, type ShownTool, shownTools } from '../tool/snapshot.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, readsOf, versionedState } from '../updates/statements.js'
import { COLUMNS, compareIds, idsOf, linkOf, type PersonaContent, RELATIONS, type Relation } from './fields.js'
import { type PersonaSnapshot, READ_FIELDS, SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'

interface Person {
  id: string
  email: string
}

/** The records that an agent refers to, in the form that answers show. */
export interface Related {
  tool_ids: ShownTool[]
  document_set_ids: PersonaSnapshot['document_sets']
  label_ids: PersonaSnapshot['labels']
  users: Person[]
}

/** The state of an agent, with the caller's access by ownership and shares. */
export interface PersonaState extends PersonaContent, VersionedState {
  access: PersonaAccess
  owner: Person | null
  related: Related
}

const persona = on<{ p: 'persona' }>()
const { ref } = persona

/** SQL: the fields of the agent `p` and the viewer's access to it, without related records. */
export function personaFields(viewer: Viewer): Record<string, Expression<unknown>> {
  const columns = COLUMNS.map(([name, { column }]) => [name, columnValue(ref(`p.${name}`), column)])
  const relations = RELATIONS.map(([name, { link }]) => [name, link.isShare ? storedShares(name) : storedIds(name)])
  return { ...Object.fromEntries([...columns, ...relations]), access: personaAccess(viewer.user) }
}

/** SQL: the agent `p` as a `PersonaState` for the viewer. */
export function personaState(viewer: Viewer): AliasableExpression<PersonaState> {
  const owner = persona.selectFrom('user_account as u').select(['u.id', 'u.email']).whereRef('u.id', '=', 'p.owner_id')
  return versionedState<PersonaState>('p', {
    ...personaFields(viewer),
    owner: jsonObjectFrom(owner),
    related: jsonBuildObject({
      tool_ids: jsonArrayFrom(shownTools(storedIds('tool_ids'), viewer)),
      document_set_ids: RECORDS.document_set_ids(storedIds('document_set_ids')),
      label_ids: RECORDS.label_ids(storedIds('label_ids')),
      users: RECORDS.users(storedIds('users')),
    }),
  })
}

/** SQL: the links `l` of agent `p` in one relation, and the column with their ids. */
function storedLinks(relation: Relation) {
  const { table, column } = linkOf(relation)
  const links = persona
    .selectFrom(`${table as 'persona_user'} as l`) // all link tables have these columns
    .where('l.persona_id', '=', ref('p.id'))
  return { links, id: columnsOf<Record<string, never>>('l')(column) }
}

/** SQL: the sorted ids of one relation of agent `p`. Texts are sorted by their bytes. */
export function storedIds(relation: Relation): Expression<never[]> {
  const { links, id } = storedLinks(relation)
  const ids = links.select(id.as('id'))
  return arrayOf(linkOf(relation).idType === 'text' ? ids.orderBy(id, by => by.collate('C')) : ids.orderBy(id))
}

function storedShares(relation: Relation): Expression<unknown> {
  const { links, id } = storedLinks(relation)
  return jsonArrayFrom(links.select([id.as('id'), 'l.level']).orderBy(id))
}

/** SQL: the labels, people and document sets with these ids, in the form that answers show. */
export const RECORDS = {
  label_ids: (ids: Expression<number[]>) =>
    jsonArrayFrom(queries().selectFrom('label').select(['id', 'name']).where('id', '=', anyOf(ids)).orderBy('id')),
  users: (ids: Expression<string[]>) =>
    jsonArrayFrom(
      queries().selectFrom('user_account').select(['id', 'email']).where('id', '=', anyOf(ids)).orderBy('id'),
    ),
  document_set_ids: (ids: Expression<number[]>) => jsonArrayFrom(documentSets(ids)),
}

function documentSets(ids: Expression<number[]>) {
  const set = on<{ s: 'document_set' }>()
  const connectors = set
    .selectFrom('document_set_cc_pair as m')
    .innerJoin('cc_pair as c', 'c.id', 'm.cc_pair_id')
    .select(['c.id', 'c.name', 'c.source', 'c.access_type'])
    .whereRef('m.document_set_id', '=', 's.id')
    .orderBy('c.id')
  const federated = set
    .selectFrom('document_set_federated_connector as m')
    .innerJoin('federated_connector as f', 'f.id', 'm.federated_connector_id')
    .select(['f.id', 'f.name', 'f.source', 'm.entities'])
    .whereRef('m.document_set_id', '=', 's.id')
    .orderBy('f.id')
  const users = set.selectFrom('document_set_user as m').select('m.user_id').whereRef('m.document_set_id', '=', 's.id')
  const groups = set
    .selectFrom('document_set_group as m')
    .select('m.user_group_id')
    .whereRef('m.document_set_id', '=', 's.id')
  return queries()
    .selectFrom('document_set as s')
    .select(['s.id', 's.name', 's.description', jsonArrayFrom(connectors).as('cc_pair_summaries')])
    .select(['s.is_up_to_date', 's.is_public'])
    .select(arrayOf(users.orderBy('m.user_id')).as('users'))
    .select(arrayOf(groups.orderBy('m.user_group_id')).as('groups'))
    .select(jsonArrayFrom(federated).as('federated_connector_summaries'))
    .where('s.id', '=', anyOf(ids))
    .orderBy('s.id')
}

/** The statements that read the state of one agent. */
export const PERSONA_READS = readsOf<PersonaState>('persona', (viewer, id) =>
  queries().selectFrom('persona as p').select(personaState(viewer).as('state')).where('p.id', '=', id),
)

const NAMES = SNAPSHOT_FIELDS.map(([name]) => name)
const [BEFORE, AFTER] = [NAMES.slice(0, NAMES.indexOf('tools')), NAMES.slice(NAMES.indexOf('tools') + 1)]
const READ_NAMES = READ_FIELDS.map(([name]) => name)

/** Renders a `PersonaSnapshot` or, with `isRead`, a `PersonaRecord`. Inserts the stored text of each definition unchanged. */
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
  // V8 spreads an object much faster after a named property.
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
