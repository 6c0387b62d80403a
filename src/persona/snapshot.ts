import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Viewer } from '../auth/access.js'
import type { Tables } from '../db/tables.js'
import { jsonWithText, pastToolSnapshots, toolSnapshots } from '../tool/snapshot.js'
import { jsonRow, jsonRows } from '../updates/statements.js'
import { RELATIONS, type Relation } from './fields.js'
import { DOCUMENT_SOURCES } from './nested-schemas.js'
import { SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'
import { storedIds } from './state.js'

/** Stored sources that the interface does not name, because the product has added them: they are answered as they stand. */
export async function addedSources(db: Kysely<Tables>): Promise<string[]> {
  const found = db.selectFrom('cc_pair').select('source').distinct().where('source', 'not in', DOCUMENT_SOURCES)
  return (await found.orderBy('source').execute()).map(({ source }) => source)
}

/** SQL expressions of the ids that each relation of an agent holds, as arrays. */
export type RelationIds = Record<Relation, RawBuilder<unknown>>

/** SQL: the stored relations of the agent `p`. */
export const storedRelations = Object.fromEntries(
  RELATIONS.map(([relation]) => [relation, storedIds(relation)]),
) as RelationIds

/** SQL: the PersonaSnapshot of `p` as text for `withDefinitions`, with relations as arrays: a statement does not see its own writes. */
export function personaSnapshot(ids: RelationIds, viewer: Viewer, cached: RawBuilder<unknown>): RawBuilder<unknown> {
  return snapshotWith(ids, toolSnapshots(ids.tool_ids, viewer, cached))
}

function snapshotWith(ids: RelationIds, tools: RawBuilder<unknown>): RawBuilder<unknown> {
  const parts: Record<SnapshotPart, RawBuilder<unknown>> = {
    id: sql`p.id`,
    user_file_ids: ids.user_file_ids,
    tools,
    labels: jsonRows(sql`select l.id, l.name from label l where l.id = any(${ids.label_ids}) order by l.id`),
    owner: jsonRow(sql`select u.id, u.email from user_account u where u.id = p.owner_id`),
    users: jsonRows(
      sql`select u.id, u.email from user_account u where u.id = any(${ids.users}) order by u.email collate "C"`,
    ),
    groups: ids.groups,
    document_sets: documentSets(ids.document_set_ids),
  }
  // Of their parts, the same messages are the same bytes, however they came into the row.
  const expressions: Record<string, RawBuilder<unknown>> = {
    ...parts,
    starter_messages: sql`case when json_typeof(p.starter_messages) = 'array' then ${jsonRows(
      sql`select m ->> 'name' as name, m ->> 'message' as message from json_array_elements(p.starter_messages) m`,
    )} end`,
  }
  const fields = SNAPSHOT_FIELDS.map(([name]): [string, RawBuilder<unknown>] => {
    return [name, expressions[name] ?? sql.raw(`p.${name}`)]
  })
  return jsonWithText(fields, 'tools')
}

/** SQL: the same of an agent as it was; `pastTools` is JSON of what was different of its tools. */
export function pastPersonaSnapshot(
  ids: RelationIds,
  viewer: Viewer,
  pastTools: RawBuilder<unknown>,
  cached: RawBuilder<unknown>,
): RawBuilder<unknown> {
  return snapshotWith(ids, pastToolSnapshots(ids.tool_ids, pastTools, viewer, cached))
}

function documentSets(ids: RawBuilder<unknown>): RawBuilder<unknown> {
  const connectors = jsonRows(sql`
        select c.id, c.name, c.source, c.access_type
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id where m.document_set_id = s.id order by c.id`)
  const federated = jsonRows(sql`
        select f.id, f.name, f.source, m.entities
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id order by f.id`)
  return jsonRows(sql`
      select s.id, s.name, s.description, ${connectors} as cc_pair_summaries, s.is_up_to_date, s.is_public,
        array(select user_id from document_set_user where document_set_id = s.id order by user_id) as users,
        array(select user_group_id from document_set_group where document_set_id = s.id order by 1) as groups,
        ${federated} as federated_connector_summaries
      from document_set s where s.id = any(${ids}) order by s.id`)
}
