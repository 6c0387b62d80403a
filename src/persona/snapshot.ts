import { type RawBuilder, sql } from 'kysely'
import type { Viewer } from '../auth/access.js'
import { toolSnapshots } from '../tool/snapshot.js'
import type { Relation } from './plan.js'

/** SQL expressions of the ids that each relation of an agent holds, as arrays. */
export type RelationIds = Record<Relation, RawBuilder<unknown>>

/** SQL: the stored relations of the agent `p`. */
export const storedRelations: RelationIds = {
  tool_ids: sql`array(select tool_id from persona_tool where persona_id = p.id)`,
  document_set_ids: sql`array(select document_set_id from persona_document_set where persona_id = p.id)`,
  label_ids: sql`array(select label_id from persona_label where persona_id = p.id)`,
  user_file_ids: sql`array(select user_file_id from persona_user_file where persona_id = p.id
                           order by user_file_id collate "C")`,
  users: sql`array(select user_id from persona_user where persona_id = p.id)`,
  groups: sql`array(select user_group_id from persona_group where persona_id = p.id order by user_group_id)`,
}

/**
 * SQL: the wire's PersonaSnapshot of the agent `p`, fields in the order of the interface document.
 * The relations come as arrays of ids, so that a statement which changes them can show what they become: a statement
 * never sees its own writes. What they refer to is read from tables that an update does not write.
 */
export function personaSnapshot(relations: RelationIds, viewer: Viewer): RawBuilder<unknown> {
  return sql`json_build_object(
    'id', p.id,
    'name', p.name,
    'description', p.description,
    'is_public', p.is_public,
    'is_visible', p.is_visible,
    'uploaded_image_id', p.uploaded_image_id,
    'icon_name', p.icon_name,
    'user_file_ids', ${relations.user_file_ids},
    'display_priority', p.display_priority,
    'is_default_persona', p.is_default_persona,
    'builtin_persona', p.builtin_persona,
    'starter_messages', p.starter_messages,
    'llm_relevance_filter', p.llm_relevance_filter,
    'llm_filter_extraction', p.llm_filter_extraction,
    'tools', ${toolSnapshots(relations.tool_ids, viewer)},
    'labels', coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any(${relations.label_ids})), '[]'),
    'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
    'users', coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any(${relations.users})), '[]'),
    'groups', ${relations.groups},
    'document_sets', ${documentSets(relations.document_set_ids)},
    'llm_model_provider_override', p.llm_model_provider_override,
    'llm_model_version_override', p.llm_model_version_override,
    'num_chunks', p.num_chunks,
    'system_prompt', p.system_prompt,
    'replace_base_system_prompt', p.replace_base_system_prompt,
    'task_prompt', p.task_prompt,
    'datetime_aware', p.datetime_aware)`
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
