import type { Expression, Kysely } from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import type { Viewer } from '../auth/access.js'
import { anyOf, arrayOf, elementsOf, jsonRows, lit, memberText, on, queries } from '../db/statements/queries.js'
import type { Tables } from '../db/tables.js'
import { jsonWithText, toolSnapshots } from '../tool/snapshot.js'
import { isIn } from '../updates/field-table.js'
import { type IdOf, RELATIONS, type Relation } from './fields.js'
import { DOCUMENT_SOURCES } from './nested-schemas.js'
import { SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'
import { storedIds } from './state.js'

/** Returns stored sources that the product added after the interface document. They are answered unchanged. */
export async function addedSources(db: Kysely<Tables>): Promise<string[]> {
  const found = db.selectFrom('cc_pair').select('source').distinct().where('source', 'not in', DOCUMENT_SOURCES)
  return (await found.orderBy('source').execute()).map(({ source }) => source)
}

/** SQL: the array of ids of each relation of an agent. */
export type RelationIds = { [R in Relation]: Expression<IdOf<R>[]> }

/** SQL: the stored relations of the agent `p`. */
export const storedRelations = Object.fromEntries(
  RELATIONS.map(([relation]) => [relation, storedIds(relation)]),
) as unknown as RelationIds // has one entry for each

/** Expressions on the alias `p` of the enclosing query: an agent. */
const { case: choose, fn, ref, selectFrom } = on<{ p: 'persona' }>()

/** SQL: the PersonaSnapshot of `p` as text for `withDefinitions`. Relations are passed in, because a statement does not see its own writes. */
export function personaSnapshot(ids: RelationIds, viewer: Viewer, cached: Expression<string[]>): Expression<string> {
  const people = selectFrom('user_account as u').select(['u.id', 'u.email'])
  const parts: Record<SnapshotPart, Expression<unknown>> = {
    id: ref('p.id'),
    user_file_ids: ids.user_file_ids,
    tools: toolSnapshots(ids.tool_ids, viewer, cached),
    labels: jsonRows(
      selectFrom('label as l').select(['l.id', 'l.name']).where('l.id', '=', anyOf(ids.label_ids)).orderBy('l.id'),
    ),
    owner: jsonObjectFrom(people.whereRef('u.id', '=', 'p.owner_id')),
    users: jsonRows(people.where('u.id', '=', anyOf(ids.users)).orderBy('u.email', by => by.collate('C'))),
    groups: ids.groups,
    document_sets: documentSets(ids.document_set_ids),
  }
  const expressions = { ...parts, starter_messages: starterMessages }
  const fields = SNAPSHOT_FIELDS.map(([name]): [string, Expression<unknown>] => {
    return [name, isIn(expressions, name) ? expressions[name] : ref(`p.${name}`)]
  })
  return jsonWithText(fields, 'tools')
}

/** SQL: the starter messages rebuilt from their parts, so that equal messages have equal bytes. */
const starterMessages = startersOf(ref('p.starter_messages'))

function startersOf(stored: Expression<unknown>): Expression<unknown> {
  const part = (name: string) => memberText(on<{ m: { value: string } }>().ref('m.value'), lit(name)).as(name)
  const messages = selectFrom(elementsOf(stored, 'm'))
    .select([part('name'), part('message')])
    .orderBy('m.place')
  return choose()
    .when(fn('json_typeof', [stored]), '=', lit('array'))
    .then(jsonRows(messages))
    .end()
}

function documentSets(ids: Expression<number[]>): Expression<unknown> {
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
  return jsonRows(
    queries()
      .selectFrom('document_set as s')
      .select(['s.id', 's.name', 's.description', jsonRows(connectors).as('cc_pair_summaries')])
      .select(['s.is_up_to_date', 's.is_public'])
      .select(arrayOf(users.orderBy('m.user_id')).as('users'))
      .select(arrayOf(groups.orderBy('m.user_group_id')).as('groups'))
      .select(jsonRows(federated).as('federated_connector_summaries'))
      .where('s.id', '=', anyOf(ids))
      .orderBy('s.id'),
  )
}
