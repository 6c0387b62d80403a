import { type RawBuilder, sql } from 'kysely'
import type { Viewer } from '../auth/access.js'
import { jsonWithText, pastToolSnapshots, toolSnapshots } from '../tool/snapshot.js'
import { RELATIONS, type Relation } from './fields.js'
import { SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'
import { storedIds } from './state.js'

/** SQL expressions of the ids that each relation of an agent holds, as arrays. */
export type RelationIds = Record<Relation, RawBuilder<unknown>>

/** SQL: the stored relations of the agent `p`. */
export const storedRelations = Object.fromEntries(
  RELATIONS.map(([relation]) => [relation, storedIds(relation)]),
) as RelationIds

/**
 * SQL: the wire's PersonaSnapshot of the agent `p` as text for `withDefinitions`, fields in the order of the interface document.
 * The relations come as arrays of ids, so that a statement which changes them can show what they become: a statement
 * never sees its own writes. What they refer to is read from tables that an update does not write.
 */
export function personaSnapshot(ids: RelationIds, viewer: Viewer, cached: RawBuilder<unknown>): RawBuilder<unknown> {
  return snapshotWith(ids, toolSnapshots(ids.tool_ids, viewer, cached))
}

function snapshotWith(ids: RelationIds, tools: RawBuilder<unknown>): RawBuilder<unknown> {
  const parts: Record<SnapshotPart, RawBuilder<unknown>> = {
    id: sql`p.id`,
    user_file_ids: ids.user_file_ids,
    tools,
    labels: sql`coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any(${ids.label_ids})), '[]')`,
    owner: sql`(select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id)`,
    users: sql`coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any(${ids.users})), '[]')`,
    groups: ids.groups,
    document_sets: documentSets(ids.document_set_ids),
  }
  // As jsonb the same messages are the same bytes, however they came into the row.
  const expressions: Record<string, RawBuilder<unknown>> = {
    ...parts,
    starter_messages: sql`p.starter_messages::jsonb`,
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
  return sql`coalesce((
    select json_agg(json_build_object(
      'id', s.id,
      'name', s.name,
      'description', s.description,
      'cc_pair_summaries', coalesce((
        select json_agg(json_build_object(
          'id', c.id, 'name', c.name, 'source', c.source, 'access_type', c.access_type) order by c.id)
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id
        where m.document_set_id = s.id), '[]'),
      'is_up_to_date', s.is_up_to_date,
      'is_public', s.is_public,
      'users', array(select user_id from document_set_user where document_set_id = s.id order by user_id),
      'groups', array(select user_group_id from document_set_group where document_set_id = s.id order by 1),
      'federated_connector_summaries', coalesce((
        select json_agg(json_build_object(
          'id', f.id, 'name', f.name, 'source', f.source, 'entities', m.entities) order by f.id)
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id), '[]')) order by s.id)
    from document_set s where s.id = any(${ids})), '[]')`
}
