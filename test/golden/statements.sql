-- caller
with input as materialized (
        select position::integer, "resource"::integer, "hash"::bytea
        from unnest($1::text[], $2::text[]) with ordinality listed ("resource", "hash", position)
        where position = position + 0)
    select input.position, caller.*, null::json as state,
      (select count(*)::integer from schema_requirement) as schema_steps
    from input
    cross join lateral (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.hash = "input"."hash"
      offset 0
    ) caller;

-- caller_and_persona
with input as materialized (
        select position::integer, "resource"::integer, "hash"::bytea
        from unnest($1::text[], $2::text[]) with ordinality listed ("resource", "hash", position)
        where position = position + 0)
    select input.position, caller.*, (select json_build_object(
    'id', p.id,
    'version', p.version,
    'audit_head', encode(p.audit_head, 'hex'),
    'field_versions', p.field_versions,
    'name', p."name", 'description', p."description", 'num_chunks', p."num_chunks", 'is_public', p."is_public", 'recency_bias', p."recency_bias", 'llm_filter_extraction', p."llm_filter_extraction", 'llm_relevance_filter', p."llm_relevance_filter", 'system_prompt', case when octet_length(p.system_prompt) <= 16384 then p."system_prompt" end, 'task_prompt', case when octet_length(p.task_prompt) <= 16384 then p."task_prompt" end, 'datetime_aware', p."datetime_aware", 'llm_model_provider_override', p."llm_model_provider_override", 'llm_model_version_override', p."llm_model_version_override", 'starter_messages', case when octet_length(p.starter_messages::text) <= 16384 then p."starter_messages" end, 'uploaded_image_id', p."uploaded_image_id", 'icon_name', p."icon_name", 'search_start_date', to_char(p."search_start_date" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'is_default_persona', p."is_default_persona", 'display_priority', p."display_priority", 'replace_base_system_prompt', p."replace_base_system_prompt", 'is_visible', p."is_visible", 'builtin_persona', p."builtin_persona", 'deleted', p."deleted", 'owner_id', p."owner_id", 'document_set_ids', array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id), 'tool_ids', array(select tool_id from persona_tool where persona_id = p.id order by tool_id), 'users', coalesce((select json_agg(json_build_object('id', user_id, 'level', level) order by user_id)
                       from persona_user where persona_id = p.id), '[]'), 'groups', coalesce((select json_agg(json_build_object('id', user_group_id, 'level', level) order by user_group_id)
                       from persona_group where persona_id = p.id), '[]'), 'label_ids', array(select label_id from persona_label where persona_id = p.id order by label_id), 'user_file_ids', array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C"), 'left_out_bytes', case when octet_length(p.system_prompt) > 16384 then octet_length(p.system_prompt) else 0 end + case when octet_length(p.task_prompt) > 16384 then octet_length(p.task_prompt) else 0 end + case when octet_length(p.starter_messages::text) > 16384 then octet_length(p.starter_messages::text) else 0 end, 'access', (case
    when p.owner_id = caller.user_id then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = caller.user_id
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = caller.user_id
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end), 'tool_sizes', coalesce((
      select json_agg(json_build_object('bytes', coalesce(d.size_bytes, 0) + octet_length(t.description), 'definition', encode(t.definition_hash, 'hex')) order by l.tool_id)
      from persona_tool l join (tool t left join tool_definition d on d.hash = t.definition_hash) on t.id = l.tool_id
      where l.persona_id = p.id), '[]'),
    'recent', coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("p".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'persona' and resource_id = "p".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from caller.user_id), '[]'),
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000) from persona p where p.id = "input"."resource") as state,
      (select count(*)::integer from schema_requirement) as schema_steps
    from input
    cross join lateral (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.hash = "input"."hash"
      offset 0
    ) caller;

-- caller_and_tool
with input as materialized (
        select position::integer, "resource"::integer, "hash"::bytea
        from unnest($1::text[], $2::text[]) with ordinality listed ("resource", "hash", position)
        where position = position + 0)
    select input.position, caller.*, (select json_build_object(
    'id', t.id,
    'version', t.version,
    'audit_head', encode(t.audit_head, 'hex'),
    'field_versions', t.field_versions,
    'name', t."name", 'display_name', t."display_name", 'description', t."description", 'in_code_tool_id', t."in_code_tool_id", 'passthrough_auth', t."passthrough_auth", 'mcp_server_id', t."mcp_server_id", 'user_id', t."user_id", 'oauth_config_id', t."oauth_config_id", 'enabled', t."enabled", 'chat_selectable', t."chat_selectable", 'agent_creation_selectable', t."agent_creation_selectable", 'default_enabled', t."default_enabled", 'definition_hash', encode(t.definition_hash, 'hex'),
    'secrets_generation', t.secrets_generation,
    'headers', coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]'),
    'definition_bytes', coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0),
    'managed_as', case when (t.in_code_tool_id is null and t.mcp_server_id is null and ((caller.permission >= 2) or (
    cardinality(caller.managed_groups) > 0 and (t.user_id = caller.user_id or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any(caller.managed_groups)))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from caller.user_id))))))) then
      case when (caller.permission >= 2) then 'all' when t.user_id = caller.user_id then 'owner' else 'group' end end,
    'recent', coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("t".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'tool' and resource_id = "t".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from caller.user_id), '[]'),
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000) from tool t where t.id = "input"."resource") as state,
      (select count(*)::integer from schema_requirement) as schema_steps
    from input
    cross join lateral (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.hash = "input"."hash"
      offset 0
    ) caller;

-- token_record
select t.scopes, coalesce((
      select json_agg(json_build_object('id', g.id, 'name', g.name) order by g.id)
      from user_group g where g.id = any($1::integer[])), '[]') as managed_groups
    from token t where t.id = $2::integer;

-- persona_lock
select id from persona where id = $1::integer for no key update;

-- persona_state
select json_build_object(
    'id', p.id,
    'version', p.version,
    'audit_head', encode(p.audit_head, 'hex'),
    'field_versions', p.field_versions,
    'name', p."name", 'description', p."description", 'num_chunks', p."num_chunks", 'is_public', p."is_public", 'recency_bias', p."recency_bias", 'llm_filter_extraction', p."llm_filter_extraction", 'llm_relevance_filter', p."llm_relevance_filter", 'system_prompt', p."system_prompt", 'task_prompt', p."task_prompt", 'datetime_aware', p."datetime_aware", 'llm_model_provider_override', p."llm_model_provider_override", 'llm_model_version_override', p."llm_model_version_override", 'starter_messages', p."starter_messages", 'uploaded_image_id', p."uploaded_image_id", 'icon_name', p."icon_name", 'search_start_date', to_char(p."search_start_date" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'is_default_persona', p."is_default_persona", 'display_priority', p."display_priority", 'replace_base_system_prompt', p."replace_base_system_prompt", 'is_visible', p."is_visible", 'builtin_persona', p."builtin_persona", 'deleted', p."deleted", 'owner_id', p."owner_id", 'document_set_ids', array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id), 'tool_ids', array(select tool_id from persona_tool where persona_id = p.id order by tool_id), 'users', coalesce((select json_agg(json_build_object('id', user_id, 'level', level) order by user_id)
                       from persona_user where persona_id = p.id), '[]'), 'groups', coalesce((select json_agg(json_build_object('id', user_group_id, 'level', level) order by user_group_id)
                       from persona_group where persona_id = p.id), '[]'), 'label_ids', array(select label_id from persona_label where persona_id = p.id order by label_id), 'user_file_ids', array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C"), 'access', (case
    when p.owner_id = $1::uuid then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = $1::uuid
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = $1::uuid
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end), 'tool_sizes', coalesce((
      select json_agg(json_build_object('bytes', coalesce(d.size_bytes, 0) + octet_length(t.description), 'definition', encode(t.definition_hash, 'hex')) order by l.tool_id)
      from persona_tool l join (tool t left join tool_definition d on d.hash = t.definition_hash) on t.id = l.tool_id
      where l.persona_id = p.id), '[]'),
    'recent', coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("p".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'persona' and resource_id = "p".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from $1::uuid), '[]'),
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000) as state from persona p where p.id = $2::integer;

-- persona_references
select json_build_object('document_set_ids', array(
        select s.id from document_set s where s.id = any($1::integer[]) and ($2::boolean or s.is_public
          or exists (select from document_set_user m where m.document_set_id = s.id and m.user_id = $3::uuid)
          or exists (select from document_set_group m join user_group_member g using (user_group_id)
                     where m.document_set_id = s.id and g.user_id = $3::uuid))), 'tool_ids', coalesce((
      select json_agg(json_build_object('id', t.id, 'enabled', t.enabled, 'attachable', (t.mcp_server_id is null or $4::boolean or t.user_id = $3::uuid or exists (
    select from mcp_server m where m.id = t.mcp_server_id and m.owner_id = $3::uuid)), 'bytes', coalesce(d.size_bytes, 0) + octet_length(t.description)))
      from tool t left join tool_definition d on d.hash = t.definition_hash where t.id = any($5::integer[])), '[]'), 'users', array(select u.id from user_account u where u.id = any($6::uuid[])), 'groups', array(select g.id from user_group g where g.id = any($7::integer[])), 'label_ids', array(select l.id from label l where l.id = any($8::integer[])), 'user_file_ids', array(select f.id from user_file f where f.id = any($9::text[]) and ($2::boolean or f.owner_id = $3::uuid))) as references;

-- persona_snapshot
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "cached_definitions"::bytea[], "id"::integer, "version"::integer, "access"::text, "token"::integer, "standing"::text
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "cached_definitions", "id", "version", "access", "token", "standing", position)
        where position = position + 0)
      select input.position, p.version, left(json_build_object(
    'id', p.id,
    'name', p.name,
    'description', p.description,
    'is_public', p.is_public,
    'is_visible', p.is_visible,
    'uploaded_image_id', p.uploaded_image_id,
    'icon_name', p.icon_name,
    'user_file_ids', array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C"),
    'display_priority', p.display_priority,
    'is_default_persona', p.is_default_persona,
    'builtin_persona', p.builtin_persona,
    'starter_messages', p.starter_messages::jsonb,
    'llm_relevance_filter', p.llm_relevance_filter,
    'llm_filter_extraction', p.llm_filter_extraction)::text, -1) || ', "tools" : ' || '[' || coalesce((
    select string_agg(left(json_build_object(
    'id', t.id,
    'name', t.name,
    'description', t.description)::text, -1) || ', "definition" : ' || chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1)
    || ', ' || substr(json_build_object(
    'display_name', coalesce(t.display_name, t.name),
    'in_code_tool_id', t.in_code_tool_id,
    'custom_headers', case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))) then coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]') end,
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'oauth_config_name', o.name,
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled)::text, 2), ', ' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any(array(select tool_id from persona_tool where persona_id = p.id order by tool_id))), '') || ']'
    || ', ' || substr(json_build_object(
    'labels', coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any(array(select label_id from persona_label where persona_id = p.id order by label_id))), '[]'),
    'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
    'users', coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any(array(select user_id from persona_user where persona_id = p.id order by user_id))), '[]'),
    'groups', array(select user_group_id from persona_group where persona_id = p.id order by user_group_id),
    'document_sets', coalesce((
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
    from document_set s where s.id = any(array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id))), '[]'),
    'llm_model_provider_override', p.llm_model_provider_override,
    'llm_model_version_override', p.llm_model_version_override,
    'num_chunks', p.num_chunks,
    'system_prompt', p.system_prompt,
    'replace_base_system_prompt', p.replace_base_system_prompt,
    'task_prompt', p.task_prompt,
    'datetime_aware', p.datetime_aware)::text, 2) as snapshot
      from input join persona p on p.id = "input"."id" and p.version = "input"."version"
      where (case
    when p.owner_id = "input"."user" then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = "input"."user"
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = "input"."user"
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) = "input"."access" and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing"));

-- persona_write(+)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "document_set_ids"::integer[], "tool_ids"::integer[], "users"::uuid[], "groups"::integer[], "label_ids"::integer[], "user_file_ids"::text[], "id"::integer, "version"::integer, "access"::text, "token"::integer, "standing"::text, "idempotency_key"::text, "changed_columns"::jsonb, "field_versions"::jsonb, "hash"::text, "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text, "cached_definitions"::bytea[]
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[], $37::text[], $38::text[], $39::text[], $40::text[], $41::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "document_set_ids", "tool_ids", "users", "groups", "label_ids", "user_file_ids", "id", "version", "access", "token", "standing", "idempotency_key", "changed_columns", "field_versions", "hash", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", "cached_definitions", position)
        where position = position + 0), locked as materialized (
        select p.id, input.position
        from input join persona p on p.id = "input"."id" and p.version = "input"."version"
        where (case
    when p.owner_id = "input"."user" then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = "input"."user"
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = "input"."user"
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) = "input"."access" and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing"))
          and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)

        for no key update of p skip locked
      ), changed as (
        update persona p set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else p."name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else p."description" end, "num_chunks" = case when "input"."changed_columns" ? 'num_chunks' then ("input"."changed_columns" ->> 'num_chunks')::double precision else p."num_chunks" end, "is_public" = case when "input"."changed_columns" ? 'is_public' then ("input"."changed_columns" ->> 'is_public')::boolean else p."is_public" end, "recency_bias" = case when "input"."changed_columns" ? 'recency_bias' then ("input"."changed_columns" ->> 'recency_bias')::text else p."recency_bias" end, "llm_filter_extraction" = case when "input"."changed_columns" ? 'llm_filter_extraction' then ("input"."changed_columns" ->> 'llm_filter_extraction')::boolean else p."llm_filter_extraction" end, "llm_relevance_filter" = case when "input"."changed_columns" ? 'llm_relevance_filter' then ("input"."changed_columns" ->> 'llm_relevance_filter')::boolean else p."llm_relevance_filter" end, "system_prompt" = case when "input"."changed_columns" ? 'system_prompt' then ("input"."changed_columns" ->> 'system_prompt')::text else p."system_prompt" end, "task_prompt" = case when "input"."changed_columns" ? 'task_prompt' then ("input"."changed_columns" ->> 'task_prompt')::text else p."task_prompt" end, "datetime_aware" = case when "input"."changed_columns" ? 'datetime_aware' then ("input"."changed_columns" ->> 'datetime_aware')::boolean else p."datetime_aware" end, "llm_model_provider_override" = case when "input"."changed_columns" ? 'llm_model_provider_override' then ("input"."changed_columns" ->> 'llm_model_provider_override')::text else p."llm_model_provider_override" end, "llm_model_version_override" = case when "input"."changed_columns" ? 'llm_model_version_override' then ("input"."changed_columns" ->> 'llm_model_version_override')::text else p."llm_model_version_override" end, "starter_messages" = case when "input"."changed_columns" ? 'starter_messages' then nullif("input"."changed_columns" -> 'starter_messages', 'null')::json else p."starter_messages" end, "uploaded_image_id" = case when "input"."changed_columns" ? 'uploaded_image_id' then ("input"."changed_columns" ->> 'uploaded_image_id')::text else p."uploaded_image_id" end, "icon_name" = case when "input"."changed_columns" ? 'icon_name' then ("input"."changed_columns" ->> 'icon_name')::text else p."icon_name" end, "search_start_date" = case when "input"."changed_columns" ? 'search_start_date' then ("input"."changed_columns" ->> 'search_start_date')::timestamptz else p."search_start_date" end, "is_default_persona" = case when "input"."changed_columns" ? 'is_default_persona' then ("input"."changed_columns" ->> 'is_default_persona')::boolean else p."is_default_persona" end, "display_priority" = case when "input"."changed_columns" ? 'display_priority' then ("input"."changed_columns" ->> 'display_priority')::integer else p."display_priority" end, "replace_base_system_prompt" = case when "input"."changed_columns" ? 'replace_base_system_prompt' then ("input"."changed_columns" ->> 'replace_base_system_prompt')::boolean else p."replace_base_system_prompt" end, "is_visible" = case when "input"."changed_columns" ? 'is_visible' then ("input"."changed_columns" ->> 'is_visible')::boolean else p."is_visible" end, "builtin_persona" = case when "input"."changed_columns" ? 'builtin_persona' then ("input"."changed_columns" ->> 'builtin_persona')::boolean else p."builtin_persona" end, "deleted" = case when "input"."changed_columns" ? 'deleted' then ("input"."changed_columns" ->> 'deleted')::boolean else p."deleted" end, "owner_id" = case when "input"."changed_columns" ? 'owner_id' then ("input"."changed_columns" ->> 'owner_id')::uuid else p."owner_id" end,
          version = p.version + 1,
          field_versions = p.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = p.audit_count + 1
        from locked join input using (position) where p.id = locked.id
        returning p.*
      ), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed p join locked using (id) join input using (position))
      select input.position, p.version, left(json_build_object(
    'id', p.id,
    'name', p.name,
    'description', p.description,
    'is_public', p.is_public,
    'is_visible', p.is_visible,
    'uploaded_image_id', p.uploaded_image_id,
    'icon_name', p.icon_name,
    'user_file_ids', "input"."user_file_ids",
    'display_priority', p.display_priority,
    'is_default_persona', p.is_default_persona,
    'builtin_persona', p.builtin_persona,
    'starter_messages', p.starter_messages::jsonb,
    'llm_relevance_filter', p.llm_relevance_filter,
    'llm_filter_extraction', p.llm_filter_extraction)::text, -1) || ', "tools" : ' || '[' || coalesce((
    select string_agg(left(json_build_object(
    'id', t.id,
    'name', t.name,
    'description', t.description)::text, -1) || ', "definition" : ' || chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1)
    || ', ' || substr(json_build_object(
    'display_name', coalesce(t.display_name, t.name),
    'in_code_tool_id', t.in_code_tool_id,
    'custom_headers', case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))) then coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]') end,
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'oauth_config_name', o.name,
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled)::text, 2), ', ' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any("input"."tool_ids")), '') || ']'
    || ', ' || substr(json_build_object(
    'labels', coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any("input"."label_ids")), '[]'),
    'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
    'users', coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any("input"."users")), '[]'),
    'groups', "input"."groups",
    'document_sets', coalesce((
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
    from document_set s where s.id = any("input"."document_set_ids")), '[]'),
    'llm_model_provider_override', p.llm_model_provider_override,
    'llm_model_version_override', p.llm_model_version_override,
    'num_chunks', p.num_chunks,
    'system_prompt', p.system_prompt,
    'replace_base_system_prompt', p.replace_base_system_prompt,
    'task_prompt', p.task_prompt,
    'datetime_aware', p.datetime_aware)::text, 2) as snapshot
      from changed p join locked using (id) join input using (position);

-- persona_write(document_set_ids,tool_ids,users,groups,label_ids,user_file_ids+document_set_ids,tool_ids,users,groups,label_ids,user_file_ids)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "document_set_ids"::integer[], "tool_ids"::integer[], "users"::uuid[], "groups"::integer[], "label_ids"::integer[], "user_file_ids"::text[], "document_set_ids_attached"::integer[], "tool_ids_attached"::integer[], "tool_bytes_left"::integer, "users_attached"::uuid[], "groups_attached"::integer[], "label_ids_attached"::integer[], "user_file_ids_attached"::text[], "id"::integer, "version"::integer, "access"::text, "token"::integer, "standing"::text, "idempotency_key"::text, "changed_columns"::jsonb, "field_versions"::jsonb, "hash"::text, "document_set_ids_removed"::integer[], "document_set_ids_put"::integer[], "tool_ids_removed"::integer[], "tool_ids_put"::integer[], "users_removed"::uuid[], "users_put"::jsonb, "groups_removed"::integer[], "groups_put"::jsonb, "label_ids_removed"::integer[], "label_ids_put"::integer[], "user_file_ids_removed"::text[], "user_file_ids_put"::text[], "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text, "cached_definitions"::bytea[]
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[], $37::text[], $38::text[], $39::text[], $40::text[], $41::text[], $42::text[], $43::text[], $44::text[], $45::text[], $46::text[], $47::text[], $48::text[], $49::text[], $50::text[], $51::text[], $52::text[], $53::text[], $54::text[], $55::text[], $56::text[], $57::text[], $58::text[], $59::text[], $60::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "document_set_ids", "tool_ids", "users", "groups", "label_ids", "user_file_ids", "document_set_ids_attached", "tool_ids_attached", "tool_bytes_left", "users_attached", "groups_attached", "label_ids_attached", "user_file_ids_attached", "id", "version", "access", "token", "standing", "idempotency_key", "changed_columns", "field_versions", "hash", "document_set_ids_removed", "document_set_ids_put", "tool_ids_removed", "tool_ids_put", "users_removed", "users_put", "groups_removed", "groups_put", "label_ids_removed", "label_ids_put", "user_file_ids_removed", "user_file_ids_put", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", "cached_definitions", position)
        where position = position + 0), locked as materialized (
        select p.id, input.position
        from input join persona p on p.id = "input"."id" and p.version = "input"."version"
        where (case
    when p.owner_id = "input"."user" then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = "input"."user"
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = "input"."user"
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) = "input"."access" and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing"))
          and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)
          and (select count(*) from (
        select s.id from document_set s where s.id = any("input"."document_set_ids_attached") and ("input"."is_admin" or s.is_public
          or exists (select from document_set_user m where m.document_set_id = s.id and m.user_id = "input"."user")
          or exists (select from document_set_group m join user_group_member g using (user_group_id)
                     where m.document_set_id = s.id and g.user_id = "input"."user"))) usable) = cardinality("input"."document_set_ids_attached") and (select count(*) from (select t.id from tool t where t.id = any("input"."tool_ids_attached") and t.enabled and (t.mcp_server_id is null or "input"."manages_all" or t.user_id = "input"."user" or exists (
    select from mcp_server m where m.id = t.mcp_server_id and m.owner_id = "input"."user"))) usable) = cardinality("input"."tool_ids_attached") and (select coalesce(sum(coalesce(d.size_bytes, 0) + octet_length(t.description)), 0) from tool t left join tool_definition d on d.hash = t.definition_hash where t.id = any("input"."tool_ids_attached")) <= "input"."tool_bytes_left" and (select count(*) from (select u.id from user_account u where u.id = any("input"."users_attached")) usable) = cardinality("input"."users_attached") and (select count(*) from (select g.id from user_group g where g.id = any("input"."groups_attached")) usable) = cardinality("input"."groups_attached") and (select count(*) from (select l.id from label l where l.id = any("input"."label_ids_attached")) usable) = cardinality("input"."label_ids_attached") and (select count(*) from (select f.id from user_file f where f.id = any("input"."user_file_ids_attached") and ("input"."is_admin" or f.owner_id = "input"."user")) usable) = cardinality("input"."user_file_ids_attached")
        for no key update of p skip locked
      ), changed as (
        update persona p set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else p."name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else p."description" end, "num_chunks" = case when "input"."changed_columns" ? 'num_chunks' then ("input"."changed_columns" ->> 'num_chunks')::double precision else p."num_chunks" end, "is_public" = case when "input"."changed_columns" ? 'is_public' then ("input"."changed_columns" ->> 'is_public')::boolean else p."is_public" end, "recency_bias" = case when "input"."changed_columns" ? 'recency_bias' then ("input"."changed_columns" ->> 'recency_bias')::text else p."recency_bias" end, "llm_filter_extraction" = case when "input"."changed_columns" ? 'llm_filter_extraction' then ("input"."changed_columns" ->> 'llm_filter_extraction')::boolean else p."llm_filter_extraction" end, "llm_relevance_filter" = case when "input"."changed_columns" ? 'llm_relevance_filter' then ("input"."changed_columns" ->> 'llm_relevance_filter')::boolean else p."llm_relevance_filter" end, "system_prompt" = case when "input"."changed_columns" ? 'system_prompt' then ("input"."changed_columns" ->> 'system_prompt')::text else p."system_prompt" end, "task_prompt" = case when "input"."changed_columns" ? 'task_prompt' then ("input"."changed_columns" ->> 'task_prompt')::text else p."task_prompt" end, "datetime_aware" = case when "input"."changed_columns" ? 'datetime_aware' then ("input"."changed_columns" ->> 'datetime_aware')::boolean else p."datetime_aware" end, "llm_model_provider_override" = case when "input"."changed_columns" ? 'llm_model_provider_override' then ("input"."changed_columns" ->> 'llm_model_provider_override')::text else p."llm_model_provider_override" end, "llm_model_version_override" = case when "input"."changed_columns" ? 'llm_model_version_override' then ("input"."changed_columns" ->> 'llm_model_version_override')::text else p."llm_model_version_override" end, "starter_messages" = case when "input"."changed_columns" ? 'starter_messages' then nullif("input"."changed_columns" -> 'starter_messages', 'null')::json else p."starter_messages" end, "uploaded_image_id" = case when "input"."changed_columns" ? 'uploaded_image_id' then ("input"."changed_columns" ->> 'uploaded_image_id')::text else p."uploaded_image_id" end, "icon_name" = case when "input"."changed_columns" ? 'icon_name' then ("input"."changed_columns" ->> 'icon_name')::text else p."icon_name" end, "search_start_date" = case when "input"."changed_columns" ? 'search_start_date' then ("input"."changed_columns" ->> 'search_start_date')::timestamptz else p."search_start_date" end, "is_default_persona" = case when "input"."changed_columns" ? 'is_default_persona' then ("input"."changed_columns" ->> 'is_default_persona')::boolean else p."is_default_persona" end, "display_priority" = case when "input"."changed_columns" ? 'display_priority' then ("input"."changed_columns" ->> 'display_priority')::integer else p."display_priority" end, "replace_base_system_prompt" = case when "input"."changed_columns" ? 'replace_base_system_prompt' then ("input"."changed_columns" ->> 'replace_base_system_prompt')::boolean else p."replace_base_system_prompt" end, "is_visible" = case when "input"."changed_columns" ? 'is_visible' then ("input"."changed_columns" ->> 'is_visible')::boolean else p."is_visible" end, "builtin_persona" = case when "input"."changed_columns" ? 'builtin_persona' then ("input"."changed_columns" ->> 'builtin_persona')::boolean else p."builtin_persona" end, "deleted" = case when "input"."changed_columns" ? 'deleted' then ("input"."changed_columns" ->> 'deleted')::boolean else p."deleted" end, "owner_id" = case when "input"."changed_columns" ? 'owner_id' then ("input"."changed_columns" ->> 'owner_id')::uuid else p."owner_id" end,
          version = p.version + 1,
          field_versions = p.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = p.audit_count + 1
        from locked join input using (position) where p.id = locked.id
        returning p.*
      ), "document_set_ids_removed" as (
        delete from "persona_document_set" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."document_set_id" = any("input"."document_set_ids_removed")), "document_set_ids_put" as (
        insert into "persona_document_set" (persona_id, "document_set_id")
        select p.id, unnest("input"."document_set_ids_put") from changed p join locked using (id) join input using (position)), "tool_ids_removed" as (
        delete from "persona_tool" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."tool_id" = any("input"."tool_ids_removed")), "tool_ids_put" as (
        insert into "persona_tool" (persona_id, "tool_id", attached_by)
        select p.id, unnest("input"."tool_ids_put"), "input"."user" from changed p join locked using (id) join input using (position)), "users_removed" as (
        delete from "persona_user" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."user_id" = any("input"."users_removed")), "users_put" as (
        insert into "persona_user" (persona_id, "user_id", level)
        select p.id, share.id, share.level
        from changed p join locked using (id) join input using (position)
        cross join jsonb_to_recordset("input"."users_put") share (id uuid, level text)
        on conflict (persona_id, "user_id") do update set level = excluded.level), "groups_removed" as (
        delete from "persona_group" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."user_group_id" = any("input"."groups_removed")), "groups_put" as (
        insert into "persona_group" (persona_id, "user_group_id", level)
        select p.id, share.id, share.level
        from changed p join locked using (id) join input using (position)
        cross join jsonb_to_recordset("input"."groups_put") share (id integer, level text)
        on conflict (persona_id, "user_group_id") do update set level = excluded.level), "label_ids_removed" as (
        delete from "persona_label" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."label_id" = any("input"."label_ids_removed")), "label_ids_put" as (
        insert into "persona_label" (persona_id, "label_id")
        select p.id, unnest("input"."label_ids_put") from changed p join locked using (id) join input using (position)), "user_file_ids_removed" as (
        delete from "persona_user_file" link using changed p join locked using (id) join input using (position)
        where link.persona_id = p.id and link."user_file_id" = any("input"."user_file_ids_removed")), "user_file_ids_put" as (
        insert into "persona_user_file" (persona_id, "user_file_id")
        select p.id, unnest("input"."user_file_ids_put") from changed p join locked using (id) join input using (position)), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed p join locked using (id) join input using (position))
      select input.position, p.version, left(json_build_object(
    'id', p.id,
    'name', p.name,
    'description', p.description,
    'is_public', p.is_public,
    'is_visible', p.is_visible,
    'uploaded_image_id', p.uploaded_image_id,
    'icon_name', p.icon_name,
    'user_file_ids', "input"."user_file_ids",
    'display_priority', p.display_priority,
    'is_default_persona', p.is_default_persona,
    'builtin_persona', p.builtin_persona,
    'starter_messages', p.starter_messages::jsonb,
    'llm_relevance_filter', p.llm_relevance_filter,
    'llm_filter_extraction', p.llm_filter_extraction)::text, -1) || ', "tools" : ' || '[' || coalesce((
    select string_agg(left(json_build_object(
    'id', t.id,
    'name', t.name,
    'description', t.description)::text, -1) || ', "definition" : ' || chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1)
    || ', ' || substr(json_build_object(
    'display_name', coalesce(t.display_name, t.name),
    'in_code_tool_id', t.in_code_tool_id,
    'custom_headers', case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))) then coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]') end,
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'oauth_config_name', o.name,
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled)::text, 2), ', ' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any("input"."tool_ids")), '') || ']'
    || ', ' || substr(json_build_object(
    'labels', coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any("input"."label_ids")), '[]'),
    'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
    'users', coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any("input"."users")), '[]'),
    'groups', "input"."groups",
    'document_sets', coalesce((
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
    from document_set s where s.id = any("input"."document_set_ids")), '[]'),
    'llm_model_provider_override', p.llm_model_provider_override,
    'llm_model_version_override', p.llm_model_version_override,
    'num_chunks', p.num_chunks,
    'system_prompt', p.system_prompt,
    'replace_base_system_prompt', p.replace_base_system_prompt,
    'task_prompt', p.task_prompt,
    'datetime_aware', p.datetime_aware)::text, 2) as snapshot
      from changed p join locked using (id) join input using (position);

-- persona_write(+ minimal)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "document_set_ids"::integer[], "tool_ids"::integer[], "users"::uuid[], "groups"::integer[], "label_ids"::integer[], "user_file_ids"::text[], "id"::integer, "version"::integer, "access"::text, "token"::integer, "standing"::text, "idempotency_key"::text, "changed_columns"::jsonb, "field_versions"::jsonb, "hash"::text, "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[], $37::text[], $38::text[], $39::text[], $40::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "document_set_ids", "tool_ids", "users", "groups", "label_ids", "user_file_ids", "id", "version", "access", "token", "standing", "idempotency_key", "changed_columns", "field_versions", "hash", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", position)
        where position = position + 0), locked as materialized (
        select p.id, input.position
        from input join persona p on p.id = "input"."id" and p.version = "input"."version"
        where (case
    when p.owner_id = "input"."user" then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = "input"."user"
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = "input"."user"
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) = "input"."access" and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing"))
          and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)

        for no key update of p skip locked
      ), changed as (
        update persona p set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else p."name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else p."description" end, "num_chunks" = case when "input"."changed_columns" ? 'num_chunks' then ("input"."changed_columns" ->> 'num_chunks')::double precision else p."num_chunks" end, "is_public" = case when "input"."changed_columns" ? 'is_public' then ("input"."changed_columns" ->> 'is_public')::boolean else p."is_public" end, "recency_bias" = case when "input"."changed_columns" ? 'recency_bias' then ("input"."changed_columns" ->> 'recency_bias')::text else p."recency_bias" end, "llm_filter_extraction" = case when "input"."changed_columns" ? 'llm_filter_extraction' then ("input"."changed_columns" ->> 'llm_filter_extraction')::boolean else p."llm_filter_extraction" end, "llm_relevance_filter" = case when "input"."changed_columns" ? 'llm_relevance_filter' then ("input"."changed_columns" ->> 'llm_relevance_filter')::boolean else p."llm_relevance_filter" end, "system_prompt" = case when "input"."changed_columns" ? 'system_prompt' then ("input"."changed_columns" ->> 'system_prompt')::text else p."system_prompt" end, "task_prompt" = case when "input"."changed_columns" ? 'task_prompt' then ("input"."changed_columns" ->> 'task_prompt')::text else p."task_prompt" end, "datetime_aware" = case when "input"."changed_columns" ? 'datetime_aware' then ("input"."changed_columns" ->> 'datetime_aware')::boolean else p."datetime_aware" end, "llm_model_provider_override" = case when "input"."changed_columns" ? 'llm_model_provider_override' then ("input"."changed_columns" ->> 'llm_model_provider_override')::text else p."llm_model_provider_override" end, "llm_model_version_override" = case when "input"."changed_columns" ? 'llm_model_version_override' then ("input"."changed_columns" ->> 'llm_model_version_override')::text else p."llm_model_version_override" end, "starter_messages" = case when "input"."changed_columns" ? 'starter_messages' then nullif("input"."changed_columns" -> 'starter_messages', 'null')::json else p."starter_messages" end, "uploaded_image_id" = case when "input"."changed_columns" ? 'uploaded_image_id' then ("input"."changed_columns" ->> 'uploaded_image_id')::text else p."uploaded_image_id" end, "icon_name" = case when "input"."changed_columns" ? 'icon_name' then ("input"."changed_columns" ->> 'icon_name')::text else p."icon_name" end, "search_start_date" = case when "input"."changed_columns" ? 'search_start_date' then ("input"."changed_columns" ->> 'search_start_date')::timestamptz else p."search_start_date" end, "is_default_persona" = case when "input"."changed_columns" ? 'is_default_persona' then ("input"."changed_columns" ->> 'is_default_persona')::boolean else p."is_default_persona" end, "display_priority" = case when "input"."changed_columns" ? 'display_priority' then ("input"."changed_columns" ->> 'display_priority')::integer else p."display_priority" end, "replace_base_system_prompt" = case when "input"."changed_columns" ? 'replace_base_system_prompt' then ("input"."changed_columns" ->> 'replace_base_system_prompt')::boolean else p."replace_base_system_prompt" end, "is_visible" = case when "input"."changed_columns" ? 'is_visible' then ("input"."changed_columns" ->> 'is_visible')::boolean else p."is_visible" end, "builtin_persona" = case when "input"."changed_columns" ? 'builtin_persona' then ("input"."changed_columns" ->> 'builtin_persona')::boolean else p."builtin_persona" end, "deleted" = case when "input"."changed_columns" ? 'deleted' then ("input"."changed_columns" ->> 'deleted')::boolean else p."deleted" end, "owner_id" = case when "input"."changed_columns" ? 'owner_id' then ("input"."changed_columns" ->> 'owner_id')::uuid else p."owner_id" end,
          version = p.version + 1,
          field_versions = p.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = p.audit_count + 1
        from locked join input using (position) where p.id = locked.id
        returning p.*
      ), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed p join locked using (id) join input using (position)) select input.position, p.version from changed p join locked using (id) join input using (position);

-- persona_past
select r.id, r.version as current, r.audit_anchor_version as kept_from,
      coalesce($1::timestamptz > clock_timestamp(), false) as is_future,
      coalesce($2::integer > r.version or $2::integer < 1, false) as is_asked_later,
      made.version, made.at, coalesce(since.values, '{}') as values, coalesce(since.is_pruned, false) as is_pruned
    from persona r
    left join lateral (
      (select a.version_after as version, a.at from audit a where a.resource_kind = 'persona' and a.resource_id = r.id and (a.version_after = $2::integer or a.at <= $1::timestamptz)
       order by a.version_after desc limit 1)
      union all
      select r.audit_anchor_version, r.audit_anchor_at
      where r.audit_anchor_version > 0 and (r.audit_anchor_version = $2::integer or r.audit_anchor_at <= $1::timestamptz)
      order by 1 desc limit 1
    ) made on true
    left join lateral (
      select
        (select json_object_agg(first.field, first.value) from (
          select distinct on (change.key) change.key as field, change.value -> 'from' as value
          from audit a cross join lateral json_each(a.difference) change
          where a.resource_kind = 'persona' and a.resource_id = r.id and a.version_after > made.version
          order by change.key, a.version_after) first) as values,
        exists (select from audit a where a.resource_kind = 'persona' and a.resource_id = r.id and a.version_after > made.version and a.difference is null) as is_pruned
    ) since on made.version is not null
    where r.id = any($3::integer[])
    order by r.id;

-- past_persona
select left(json_build_object(
    'id', p.id,
    'name', p.name,
    'description', p.description,
    'is_public', p.is_public,
    'is_visible', p.is_visible,
    'uploaded_image_id', p.uploaded_image_id,
    'icon_name', p.icon_name,
    'user_file_ids', $1::text[],
    'display_priority', p.display_priority,
    'is_default_persona', p.is_default_persona,
    'builtin_persona', p.builtin_persona,
    'starter_messages', p.starter_messages::jsonb,
    'llm_relevance_filter', p.llm_relevance_filter,
    'llm_filter_extraction', p.llm_filter_extraction)::text, -1) || ', "tools" : ' || '[' || coalesce((
    select string_agg(json_build_object(
    'id', t.id,
    'name', t.name,
    'description', t.description,
    'definition', d.content,
    'display_name', coalesce(t.display_name, t.name),
    'in_code_tool_id', t.in_code_tool_id,
    'custom_headers', case when stored.manageable then case
  when stored.past -> 'custom_headers' is null then coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]')
  else coalesce((
    select json_agg(json_build_object('key', h.value ->> 'key', 'value', h.value ->> 'value') order by h.place)
    from json_array_elements(stored.past -> 'custom_headers') with ordinality h (value, place)), '[]') end end,
    'passthrough_auth', t.passthrough_auth,
    'mcp_server_id', t.mcp_server_id,
    'user_id', t.user_id,
    'oauth_config_id', t.oauth_config_id,
    'oauth_config_name', o.name,
    'enabled', t.enabled,
    'chat_selectable', t.chat_selectable,
    'agent_creation_selectable', t.agent_creation_selectable,
    'default_enabled', t.default_enabled)::text, ', ' order by t.id)
    from (
      select t as stored_row, (t.in_code_tool_id is null and t.mcp_server_id is null and ($2::boolean or (
    cardinality($3::integer[]) > 0 and (t.user_id = $4::uuid or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($3::integer[])))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from $4::uuid))))))) as manageable, $5::json -> t.id::text as past
      from tool t where t.id = any($6::integer[])) stored
    cross join lateral json_populate_record(stored.stored_row, coalesce(stored.past, '{}')) t
    left join tool_definition d on d.hash = t.definition_hash
    left join oauth_config o on o.id = t.oauth_config_id), '') || ']'
    || ', ' || substr(json_build_object(
    'labels', coalesce((
      select json_agg(json_build_object('id', l.id, 'name', l.name) order by l.id)
      from label l where l.id = any($7::integer[])), '[]'),
    'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
    'users', coalesce((
      select json_agg(json_build_object('id', u.id, 'email', u.email) order by u.email collate "C")
      from user_account u where u.id = any($8::uuid[])), '[]'),
    'groups', $9::integer[],
    'document_sets', coalesce((
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
    from document_set s where s.id = any($10::integer[])), '[]'),
    'llm_model_provider_override', p.llm_model_provider_override,
    'llm_model_version_override', p.llm_model_version_override,
    'num_chunks', p.num_chunks,
    'system_prompt', p.system_prompt,
    'replace_base_system_prompt', p.replace_base_system_prompt,
    'task_prompt', p.task_prompt,
    'datetime_aware', p.datetime_aware)::text, 2)::text as snapshot
    from persona stored cross join lateral json_populate_record(stored, $11::json) p
    where stored.id = $12::integer;

-- past_tool
select t.version, t.id as id, t.name as name, t.description as description, d.content::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, case when stored.manageable then case
  when stored.past -> 'custom_headers' is null then coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]')
  else coalesce((
    select json_agg(json_build_object('key', h.value ->> 'key', 'value', h.value ->> 'value') order by h.place)
    from json_array_elements(stored.past -> 'custom_headers') with ordinality h (value, place)), '[]') end end as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled from (
      select t as stored_row, (t.in_code_tool_id is null and t.mcp_server_id is null and ($1::boolean or (
    cardinality($2::integer[]) > 0 and (t.user_id = $3::uuid or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($2::integer[])))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from $3::uuid))))))) as manageable, $4::json -> t.id::text as past
      from tool t where t.id = any($5::integer[])) stored
    cross join lateral json_populate_record(stored.stored_row, coalesce(stored.past, '{}')) t
    left join tool_definition d on d.hash = t.definition_hash;

-- tool_lock
select id from tool where id = $1::integer for no key update;

-- tool_state
select json_build_object(
    'id', t.id,
    'version', t.version,
    'audit_head', encode(t.audit_head, 'hex'),
    'field_versions', t.field_versions,
    'name', t."name", 'display_name', t."display_name", 'description', t."description", 'in_code_tool_id', t."in_code_tool_id", 'passthrough_auth', t."passthrough_auth", 'mcp_server_id', t."mcp_server_id", 'user_id', t."user_id", 'oauth_config_id', t."oauth_config_id", 'enabled', t."enabled", 'chat_selectable', t."chat_selectable", 'agent_creation_selectable', t."agent_creation_selectable", 'default_enabled', t."default_enabled", 'definition_hash', encode(t.definition_hash, 'hex'),
    'secrets_generation', t.secrets_generation,
    'headers', coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]'),
    'definition_bytes', coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0),
    'managed_as', case when (t.in_code_tool_id is null and t.mcp_server_id is null and ($1::boolean or (
    cardinality($2::integer[]) > 0 and (t.user_id = $3::uuid or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($2::integer[])))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from $3::uuid))))))) then
      case when $1::boolean then 'all' when t.user_id = $3::uuid then 'owner' else 'group' end end,
    'recent', coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("t".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'tool' and resource_id = "t".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from $3::uuid), '[]'),
    'read_at_ms', extract(epoch from clock_timestamp()) * 1000) as state from tool t where t.id = $4::integer;

-- oauth_config
select o.id from oauth_config o where o.id = $1::integer and ($2::boolean or o.owner_id = $3::uuid);

-- tool_row
with input as materialized (
        select position::integer, "id"::integer, "version"::integer, "token"::integer, "standing"::text, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) with ordinality listed ("id", "version", "token", "standing", "user", "manages_all", "managed_groups", "is_admin", position)
        where position = position + 0)
    select input.position, t.version, t.id as id, t.name as name, t.description as description, d.content::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, coalesce((
  select json_agg(json_build_object('key', h.name, 'value', '****#' || left(encode(h.fingerprint, 'hex'), 12))
                  order by h.position)
  from tool_header h where h.tool_id = t.id), '[]') as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled
    from input join tool t on t.id = "input"."id" and t.version = "input"."version"
    left join tool_definition d on d.hash = t.definition_hash
    where ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and ("input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))));

-- tool_row_without_headers
with input as materialized (
        select position::integer, "id"::integer, "version"::integer, "token"::integer, "standing"::text, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) with ordinality listed ("id", "version", "token", "standing", "user", "manages_all", "managed_groups", "is_admin", position)
        where position = position + 0)
    select input.position, t.version, t.id as id, t.name as name, t.description as description, d.content::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, null::json as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled
    from input join tool t on t.id = "input"."id" and t.version = "input"."version"
    left join tool_definition d on d.hash = t.definition_hash
    where ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing"));

-- tool_write(+)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "id"::integer, "version"::integer, "secrets_generation"::integer, "idempotency_key"::text, "token"::integer, "standing"::text, "oauth_config_id"::integer, "changed_columns"::jsonb, "definition_hash"::text, "field_versions"::jsonb, "hash"::text, "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text, "shown_headers"::json
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[], $37::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "id", "version", "secrets_generation", "idempotency_key", "token", "standing", "oauth_config_id", "changed_columns", "definition_hash", "field_versions", "hash", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", "shown_headers", position)
        where position = position + 0), locked as materialized (
        select t.id, input.position
        from input join tool t on t.id = "input"."id" and t.version = "input"."version"
        where t.secrets_generation = "input"."secrets_generation" and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)
          and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and ("input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))))
          and ("input"."oauth_config_id" is null or exists (
            select from oauth_config o where o.id = "input"."oauth_config_id"
              and (o.id = t.oauth_config_id or ("input"."manages_all" or o.owner_id = "input"."user"))))
        for no key update of t skip locked
      ), changed as (
        update tool t set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else t."name" end, "display_name" = case when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text else t."display_name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else t."description" end, "in_code_tool_id" = case when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text else t."in_code_tool_id" end, "passthrough_auth" = case when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean else t."passthrough_auth" end, "mcp_server_id" = case when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer else t."mcp_server_id" end, "user_id" = case when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid else t."user_id" end, "oauth_config_id" = case when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer else t."oauth_config_id" end, "enabled" = case when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean else t."enabled" end, "chat_selectable" = case when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean else t."chat_selectable" end, "agent_creation_selectable" = case when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean else t."agent_creation_selectable" end, "default_enabled" = case when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean else t."default_enabled" end,
          definition_hash = decode("input"."definition_hash", 'hex'),
          version = t.version + 1,
          field_versions = t.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = t.audit_count + 1
        from locked join input using (position) where t.id = locked.id
        returning t.*), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed t join locked using (id) join input using (position))
      select input.position, t.version, t.id as id, t.name as name, t.description as description, d.content::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, "input"."shown_headers" as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled
      from changed t join locked using (id) join input using (position) left join tool_definition d on d.hash = t.definition_hash;

-- tool_write(single definition+headers)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "id"::integer, "version"::integer, "secrets_generation"::integer, "idempotency_key"::text, "token"::integer, "standing"::text, "oauth_config_id"::integer, "definition_hash"::text, "definition_bytes"::integer, "changed_columns"::jsonb, "field_versions"::jsonb, "hash"::text, "headers"::json, "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text, "shown_headers"::json
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[], $37::text[], $38::text[], $39::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "id", "version", "secrets_generation", "idempotency_key", "token", "standing", "oauth_config_id", "definition_hash", "definition_bytes", "changed_columns", "field_versions", "hash", "headers", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", "shown_headers", position)
        where position = position + 0), locked as materialized (
        select t.id, input.position
        from input join tool t on t.id = "input"."id" and t.version = "input"."version"
        where t.secrets_generation = "input"."secrets_generation" and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)
          and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and ("input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))))
          and ("input"."oauth_config_id" is null or exists (
            select from oauth_config o where o.id = "input"."oauth_config_id"
              and (o.id = t.oauth_config_id or ("input"."manages_all" or o.owner_id = "input"."user"))))
        for no key update of t skip locked
      ), stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode("input"."definition_hash", 'hex'), $40::text::json, "input"."definition_bytes"
        from locked join input using (position)
        where not exists (select from tool_definition where hash = decode("input"."definition_hash", 'hex'))
        order by 1
        on conflict (hash) do nothing), changed as (
        update tool t set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else t."name" end, "display_name" = case when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text else t."display_name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else t."description" end, "in_code_tool_id" = case when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text else t."in_code_tool_id" end, "passthrough_auth" = case when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean else t."passthrough_auth" end, "mcp_server_id" = case when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer else t."mcp_server_id" end, "user_id" = case when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid else t."user_id" end, "oauth_config_id" = case when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer else t."oauth_config_id" end, "enabled" = case when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean else t."enabled" end, "chat_selectable" = case when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean else t."chat_selectable" end, "agent_creation_selectable" = case when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean else t."agent_creation_selectable" end, "default_enabled" = case when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean else t."default_enabled" end,
          definition_hash = decode("input"."definition_hash", 'hex'),
          version = t.version + 1,
          field_versions = t.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = t.audit_count + 1
        from locked join input using (position) where t.id = locked.id
        returning t.*), new_headers as (
        select t.id as tool_id, (g.position - 1)::integer as position, g.value ->> 'name' as name,
          g.value ->> 'fingerprint' as fingerprint, (g.value ->> 'kept')::integer as kept, g.value ->> 'key_id' as key_id,
          g.value ->> 'nonce' as nonce, g.value ->> 'ciphertext' as ciphertext
        from changed t join locked using (id) join input using (position) cross join json_array_elements("input"."headers") with ordinality g (value, position)), removed_headers as (
        delete from tool_header h using changed t join locked using (id) join input using (position)
        where h.tool_id = t.id and h.position >= json_array_length("input"."headers")), put_headers as (
        insert into tool_header (tool_id, position, name, key_id, nonce, ciphertext, fingerprint)
        select g.tool_id, g.position, g.name, coalesce(g.key_id, kept.key_id),
          coalesce(decode(g.nonce, 'base64'), kept.nonce), coalesce(decode(g.ciphertext, 'base64'), kept.ciphertext),
          decode(g.fingerprint, 'hex')
        from new_headers g
        left join tool_header kept on kept.tool_id = g.tool_id and kept.position = g.kept
        on conflict (tool_id, position) do update set name = excluded.name, key_id = excluded.key_id,
          nonce = excluded.nonce, ciphertext = excluded.ciphertext, fingerprint = excluded.fingerprint), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed t join locked using (id) join input using (position))
      select input.position, t.version, t.id as id, t.name as name, t.description as description, null::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, "input"."shown_headers" as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled
      from changed t join locked using (id) join input using (position);

-- tool_write(+ minimal)
with input as materialized (
        select position::integer, "user"::uuid, "manages_all"::boolean, "managed_groups"::integer[], "is_admin"::boolean, "id"::integer, "version"::integer, "secrets_generation"::integer, "idempotency_key"::text, "token"::integer, "standing"::text, "oauth_config_id"::integer, "changed_columns"::jsonb, "definition_hash"::text, "field_versions"::jsonb, "hash"::text, "resource_kind"::text, "resource_id"::integer, "version_before"::integer, "version_after"::integer, "at"::timestamptz, "actor_id"::uuid, "actor"::text, "token_id"::integer, "request_id"::text, "client_address"::text, "command"::text, "salt"::text, "identity_hash"::text, "fields"::text[], "difference"::json, "difference_bytes"::integer, "difference_hash"::text, "definition_before"::text, "content_hash"::text, "previous_hash"::text, "request_fingerprint"::text
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[]) with ordinality listed ("user", "manages_all", "managed_groups", "is_admin", "id", "version", "secrets_generation", "idempotency_key", "token", "standing", "oauth_config_id", "changed_columns", "definition_hash", "field_versions", "hash", "resource_kind", "resource_id", "version_before", "version_after", "at", "actor_id", "actor", "token_id", "request_id", "client_address", "command", "salt", "identity_hash", "fields", "difference", "difference_bytes", "difference_hash", "definition_before", "content_hash", "previous_hash", "request_fingerprint", position)
        where position = position + 0), locked as materialized (
        select t.id, input.position
        from input join tool t on t.id = "input"."id" and t.version = "input"."version"
        where t.secrets_generation = "input"."secrets_generation" and coalesce(pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint), true)
          and ("input"."token" is null or exists (select from (
      select t.id as token_id, u.id as user_id, u.email, u.kind, u.active,
        to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
        coalesce(t.expires_at <= clock_timestamp(), false) as expired,
        t.revoked_at is not null as revoked,
        coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
        t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
        row(granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
      from token t
      cross join lateral (select * from user_account where id = t.user_id offset 0) u
      cross join lateral (
        select coalesce(max(case when 'admin' = any(g.permissions) then 3 when 'manage:actions' = any(g.permissions) then 2 else 1 end), 1) as permission,
          coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
        from user_group_member m
        join user_group g on g.id = m.user_group_id
        where m.user_id = u.id
      ) held
      cross join lateral (
        select least(greatest(case when 'admin' = any(u.permissions) then 3 when 'manage:actions' = any(u.permissions) then 2 else 1 end, held.permission), case when t.scopes is null then 3 else case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end end) as permission,
          case when t.scopes is null or case when 'admin' = any(t.scopes) then 3 when 'manage:actions' = any(t.scopes) then 2 else 1 end >= 2 then held.managed else '{}' end as managed_groups
      ) granted
      where t.id = "input"."token"
      offset 0
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and ("input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or (
      not exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups")))
      and not exists (select from persona_tool where tool_id = t.id offset 1000)
      and exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id limit 1000) used
      join persona a on a.id = used.persona_id and not a.deleted where not (coalesce(used.attached_by, a.owner_id) is not distinct from "input"."user"))))))))
          and ("input"."oauth_config_id" is null or exists (
            select from oauth_config o where o.id = "input"."oauth_config_id"
              and (o.id = t.oauth_config_id or ("input"."manages_all" or o.owner_id = "input"."user"))))
        for no key update of t skip locked
      ), changed as (
        update tool t set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else t."name" end, "display_name" = case when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text else t."display_name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else t."description" end, "in_code_tool_id" = case when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text else t."in_code_tool_id" end, "passthrough_auth" = case when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean else t."passthrough_auth" end, "mcp_server_id" = case when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer else t."mcp_server_id" end, "user_id" = case when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid else t."user_id" end, "oauth_config_id" = case when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer else t."oauth_config_id" end, "enabled" = case when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean else t."enabled" end, "chat_selectable" = case when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean else t."chat_selectable" end, "agent_creation_selectable" = case when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean else t."agent_creation_selectable" end, "default_enabled" = case when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean else t."default_enabled" end,
          definition_hash = decode("input"."definition_hash", 'hex'),
          version = t.version + 1,
          field_versions = t.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = t.audit_count + 1
        from locked join input using (position) where t.id = locked.id
        returning t.*), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select "input"."resource_kind", "input"."resource_id", "input"."version_before", "input"."version_after", "input"."at", "input"."actor_id", "input"."actor", "input"."token_id", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed t join locked using (id) join input using (position)) select input.position, t.version from changed t join locked using (id) join input using (position);

-- persona_page(all)
select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from persona p
      where p.id > $1::integer and not p.deleted
      order by p.id limit 101
    ) page limit $2::integer;

-- persona_page(all of a name)
select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from persona p
      where p.id > $1::integer and not p.deleted and p.name between $2::text and $2::text
      order by p.name, p.id limit 101
    ) page limit $3::integer;

-- persona_page(bound)
select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from persona p
      where p.id > $1::integer and not p.deleted and p.id = any($2::integer[]) and ($3::boolean or (case
    when p.owner_id = $4::uuid then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = $4::uuid
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = $4::uuid
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) <> 'none')
      order by p.id limit 101
    ) page limit $5::integer;

-- persona_page(bound of a name)
select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from persona p
      where p.id > $1::integer and not p.deleted and p.name between $2::text and $2::text and p.id = any($3::integer[]) and ($4::boolean or (case
    when p.owner_id = $5::uuid then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = $5::uuid
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = $5::uuid
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) <> 'none')
      order by p.name, p.id limit 101
    ) page limit $6::integer;

-- persona_page(seen)
with candidate as materialized (
      select id from (
        (select c.id from persona c where c.owner_id = $1::uuid and not c.deleted and c.id > $2::integer order by c.id limit 101)
        union (select c.id from persona c where c.is_public and not c.deleted and c.id > $2::integer order by c.id limit 101)
        union (
          select s.persona_id from persona_user s join persona c on c.id = s.persona_id and not c.deleted
          where s.user_id = $1::uuid and s.persona_id > $2::integer order by s.persona_id limit 101)
        union (
          select s.persona_id from user_group_member m
          cross join lateral (
            select s.persona_id from persona_group s join persona c on c.id = s.persona_id and not c.deleted
            where s.user_group_id = m.user_group_id and s.persona_id > $2::integer order by s.persona_id limit 101
          ) s where m.user_id = $1::uuid)
      ) one order by id limit 101)
    select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from candidate cross join lateral (select * from persona where id = candidate.id offset 0) p
      where p.id > $2::integer and not p.deleted
      order by p.id limit 101
    ) page limit $3::integer;

-- persona_page(seen of a name)
with few as materialized (
      select c.id from persona c where c.name between $1::text and $1::text and c.id > $2::integer and not c.deleted
      order by c.name, c.id limit 1000 + 1
    ), own as materialized (
      select c.id from persona c where c.owner_id between $3::uuid and $3::uuid and c.id > $2::integer
      union select s.persona_id from persona_user s where s.user_id = $3::uuid and s.persona_id > $2::integer
      union select s.persona_id from user_group_member m join persona_group s using (user_group_id)
        where m.user_id = $3::uuid and s.persona_id > $2::integer
    ), candidate as materialized (
      select id from few where (select count(*) from few) <= 1000
      union (
        select c.id from persona c
        where c.name between $1::text and $1::text and c.id > $2::integer and c.is_public and not c.deleted
          and (select count(*) from few) > 1000
        order by c.name, c.id limit 101)
      union (
        select own.id from own cross join lateral (
          select from persona c where c.id = own.id and c.name = $1::text and not c.deleted offset 0) named
        where (select count(*) from few) > 1000
        order by own.id limit 101)
    )
    select id, record from (
      select p.id, json_build_object(
      'id', p.id, 'name', p.name, 'description', p.description,
      'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = p.owner_id),
      'is_public', p.is_public, 'is_visible', p.is_visible, 'is_default_persona', p.is_default_persona,
      'builtin_persona', p.builtin_persona, 'etag', format('"persona-%s-%s"', p.id, p.version))::text as record
      from candidate cross join lateral (select * from persona where id = candidate.id offset 0) p
      where p.id > $2::integer and not p.deleted and p.name between $1::text and $1::text and ($4::boolean or (case
    when p.owner_id = $3::uuid then 'owner'
    else coalesce(
      (select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
       from (select level from persona_user where persona_id = p.id and user_id = $3::uuid
             union all
             select s.level from persona_group s
             join user_group_member m on m.user_group_id = s.user_group_id and m.user_id = $3::uuid
             where s.persona_id = p.id) share
       having count(*) > 0),
      case when p.is_public then 'viewer' else 'none' end)
    end) <> 'none')
      order by p.name, p.id limit 101
    ) page limit $5::integer;

-- tool_page(all)
select id, record from (
      select t.id, json_build_object(
        'id', t.id, 'name', t.name, 'display_name', coalesce(t.display_name, t.name), 'description', t.description,
        'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = t.user_id),
        'in_code_tool_id', t.in_code_tool_id, 'mcp_server_id', t.mcp_server_id, 'enabled', t.enabled,
        'passthrough_auth', t.passthrough_auth, 'etag', format('"tool-%s-%s"', t.id, t.version))::text as record
      from tool t where t.id > $1::integer
      order by t.id limit 101
    ) page limit $2::integer;

-- tool_page(all of a name)
select id, record from (
      select t.id, json_build_object(
        'id', t.id, 'name', t.name, 'display_name', coalesce(t.display_name, t.name), 'description', t.description,
        'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = t.user_id),
        'in_code_tool_id', t.in_code_tool_id, 'mcp_server_id', t.mcp_server_id, 'enabled', t.enabled,
        'passthrough_auth', t.passthrough_auth, 'etag', format('"tool-%s-%s"', t.id, t.version))::text as record
      from tool t where t.id > $1::integer and t.name between $2::text and $2::text
      order by t.name, t.id limit 101
    ) page limit $3::integer;

-- tool_page(bound)
select id, record from (
      select t.id, json_build_object(
        'id', t.id, 'name', t.name, 'display_name', coalesce(t.display_name, t.name), 'description', t.description,
        'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = t.user_id),
        'in_code_tool_id', t.in_code_tool_id, 'mcp_server_id', t.mcp_server_id, 'enabled', t.enabled,
        'passthrough_auth', t.passthrough_auth, 'etag', format('"tool-%s-%s"', t.id, t.version))::text as record
      from tool t where t.id > $1::integer  and t.id = any($2::integer[])
      order by t.id limit 101
    ) page limit $3::integer;

-- tool_page(bound of a name)
select id, record from (
      select t.id, json_build_object(
        'id', t.id, 'name', t.name, 'display_name', coalesce(t.display_name, t.name), 'description', t.description,
        'owner', (select json_build_object('id', u.id, 'email', u.email) from user_account u where u.id = t.user_id),
        'in_code_tool_id', t.in_code_tool_id, 'mcp_server_id', t.mcp_server_id, 'enabled', t.enabled,
        'passthrough_auth', t.passthrough_auth, 'etag', format('"tool-%s-%s"', t.id, t.version))::text as record
      from tool t where t.id > $1::integer and t.name between $2::text and $2::text and t.id = any($3::integer[])
      order by t.name, t.id limit 101
    ) page limit $4::integer;
