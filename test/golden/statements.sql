-- caller
with input as materialized (
        select position::integer, ($1::text[])[position]::integer as "resource", ($2::text[])[position]::bytea as "hash"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, caller.*, (null::json)::text as state,
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
        select position::integer, ($1::text[])[position]::integer as "resource", ($2::text[])[position]::bytea as "hash"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, caller.*, ((select (select row_to_json(state) from (select
    p.id as "id",
    p.version as "version",
    encode(p.audit_head, 'hex') as "audit_head",
    p.field_versions as "field_versions",
    to_char(greatest(p.audit_anchor_at, (
      select a.at from audit a
      where a.resource_kind = 'persona' and a.resource_id = p.id and a.version_after = p.version)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "made_at",
    coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("p".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'persona' and resource_id = "p".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from caller.user_id), '[]') as "recent",
    extract(epoch from clock_timestamp()) * 1000 as "read_at_ms",
    p."name" as "name",
    p."description" as "description",
    p."num_chunks" as "num_chunks",
    p."is_public" as "is_public",
    p."recency_bias" as "recency_bias",
    p."llm_filter_extraction" as "llm_filter_extraction",
    p."llm_relevance_filter" as "llm_relevance_filter",
    case when large.bytes <= 16384 then p."system_prompt" end as "system_prompt",
    case when large.bytes <= 16384 then p."task_prompt" end as "task_prompt",
    p."datetime_aware" as "datetime_aware",
    p."llm_model_provider_override" as "llm_model_provider_override",
    p."llm_model_version_override" as "llm_model_version_override",
    case when large.bytes <= 16384 then p."starter_messages" end as "starter_messages",
    p."uploaded_image_id" as "uploaded_image_id",
    p."icon_name" as "icon_name",
    to_char(p."search_start_date" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "search_start_date",
    p."is_default_persona" as "is_default_persona",
    p."display_priority" as "display_priority",
    p."replace_base_system_prompt" as "replace_base_system_prompt",
    p."is_visible" as "is_visible",
    p."builtin_persona" as "builtin_persona",
    p."deleted" as "deleted",
    p."owner_id" as "owner_id",
    array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id) as "document_set_ids",
    array(select tool_id from persona_tool where persona_id = p.id order by tool_id) as "tool_ids",
    coalesce((select json_agg(json_build_object('id', share.id, 'level', share.level) order by share.id)
                       from (select user_id as id, level from persona_user where persona_id = p.id) share), '[]') as "users",
    coalesce((select json_agg(json_build_object('id', share.id, 'level', share.level) order by share.id)
                       from (select user_group_id as id, level from persona_group where persona_id = p.id) share), '[]') as "groups",
    array(select label_id from persona_label where persona_id = p.id order by label_id) as "label_ids",
    array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C") as "user_file_ids",
    case when large.bytes > 16384 then large.bytes else 0 end as "left_out_bytes",
    (case
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
    end) as "access",
    coalesce((
      select json_agg(json_build_object('bytes', coalesce(d.size_bytes, 0) + octet_length(t.description), 'definition', encode(t.definition_hash, 'hex')) order by l.tool_id)
      from persona_tool l join (tool t left join tool_definition d on d.hash = t.definition_hash) on t.id = l.tool_id where l.persona_id = p.id), '[]') as "tool_sizes") state)
    from persona p cross join lateral (select coalesce(octet_length(p.system_prompt), 0) + coalesce(octet_length(p.task_prompt), 0) + coalesce(octet_length(p.starter_messages::text), 0) as bytes offset 0) large where p.id = "input"."resource"))::text as state,
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
        select position::integer, ($1::text[])[position]::integer as "resource", ($2::text[])[position]::bytea as "hash"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, caller.*, ((select (select row_to_json(state) from (select
    t.id as "id",
    t.version as "version",
    encode(t.audit_head, 'hex') as "audit_head",
    t.field_versions as "field_versions",
    to_char(greatest(t.audit_anchor_at, (
      select a.at from audit a
      where a.resource_kind = 'tool' and a.resource_id = t.id and a.version_after = t.version)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "made_at",
    coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("t".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'tool' and resource_id = "t".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from caller.user_id), '[]') as "recent",
    extract(epoch from clock_timestamp()) * 1000 as "read_at_ms",
    t."name" as "name",
    t."display_name" as "display_name",
    t."description" as "description",
    t."in_code_tool_id" as "in_code_tool_id",
    t."passthrough_auth" as "passthrough_auth",
    t."mcp_server_id" as "mcp_server_id",
    t."user_id" as "user_id",
    t."oauth_config_id" as "oauth_config_id",
    t."enabled" as "enabled",
    t."chat_selectable" as "chat_selectable",
    t."agent_creation_selectable" as "agent_creation_selectable",
    t."default_enabled" as "default_enabled",
    encode(t.definition_hash, 'hex') as "definition_hash",
    t.secrets_generation as "secrets_generation",
    coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]') as "headers",
    coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0) as "definition_bytes",
    case when (t.in_code_tool_id is null and t.mcp_server_id is null and ((caller.permission >= 2) or (
    cardinality(caller.managed_groups) > 0 and (t.user_id = caller.user_id or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any(caller.managed_groups))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any(caller.managed_groups))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from caller.user_id
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> caller.user_id and persona_id in (select id from inside where lives) end))))))) then
      case when (caller.permission >= 2) then 'all' when t.user_id = caller.user_id then 'owner' else 'group' end end as "managed_as") state) from tool t where t.id = "input"."resource"))::text as state,
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
with input as materialized (
        select position::integer, ($1::text[])[position]::integer[] as "groups", ($2::text[])[position]::integer as "token"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, t.scopes, coalesce((
      select json_agg(json_build_object('id', g.id, 'name', g.name) order by g.id)
      from user_group g where g.id = any("input"."groups")), '[]') as managed_groups
    from input join token t on t.id = "input"."token";

-- persona_lock
select id from persona where id = $1::integer for no key update;

-- persona_state
select (select row_to_json(state) from (select
    p.id as "id",
    p.version as "version",
    encode(p.audit_head, 'hex') as "audit_head",
    p.field_versions as "field_versions",
    to_char(greatest(p.audit_anchor_at, (
      select a.at from audit a
      where a.resource_kind = 'persona' and a.resource_id = p.id and a.version_after = p.version)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "made_at",
    coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("p".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'persona' and resource_id = "p".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from $1::uuid), '[]') as "recent",
    extract(epoch from clock_timestamp()) * 1000 as "read_at_ms",
    p."name" as "name",
    p."description" as "description",
    p."num_chunks" as "num_chunks",
    p."is_public" as "is_public",
    p."recency_bias" as "recency_bias",
    p."llm_filter_extraction" as "llm_filter_extraction",
    p."llm_relevance_filter" as "llm_relevance_filter",
    p."system_prompt" as "system_prompt",
    p."task_prompt" as "task_prompt",
    p."datetime_aware" as "datetime_aware",
    p."llm_model_provider_override" as "llm_model_provider_override",
    p."llm_model_version_override" as "llm_model_version_override",
    p."starter_messages" as "starter_messages",
    p."uploaded_image_id" as "uploaded_image_id",
    p."icon_name" as "icon_name",
    to_char(p."search_start_date" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "search_start_date",
    p."is_default_persona" as "is_default_persona",
    p."display_priority" as "display_priority",
    p."replace_base_system_prompt" as "replace_base_system_prompt",
    p."is_visible" as "is_visible",
    p."builtin_persona" as "builtin_persona",
    p."deleted" as "deleted",
    p."owner_id" as "owner_id",
    array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id) as "document_set_ids",
    array(select tool_id from persona_tool where persona_id = p.id order by tool_id) as "tool_ids",
    coalesce((select json_agg(json_build_object('id', share.id, 'level', share.level) order by share.id)
                       from (select user_id as id, level from persona_user where persona_id = p.id) share), '[]') as "users",
    coalesce((select json_agg(json_build_object('id', share.id, 'level', share.level) order by share.id)
                       from (select user_group_id as id, level from persona_group where persona_id = p.id) share), '[]') as "groups",
    array(select label_id from persona_label where persona_id = p.id order by label_id) as "label_ids",
    array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C") as "user_file_ids",
    (case
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
    end) as "access",
    coalesce((
      select json_agg(json_build_object('bytes', coalesce(d.size_bytes, 0) + octet_length(t.description), 'definition', encode(t.definition_hash, 'hex')) order by l.tool_id)
      from persona_tool l join (tool t left join tool_definition d on d.hash = t.definition_hash) on t.id = l.tool_id where l.persona_id = p.id), '[]') as "tool_sizes") state) as state from persona p where p.id = $2::integer;

-- persona_references
select json_build_object('document_set_ids', array(
        select s.id from document_set s where s.id = any($1::integer[]) and ($2::boolean or s.is_public
          or exists (select from document_set_user m where m.document_set_id = s.id and m.user_id = $3::uuid)
          or exists (select from document_set_group m join user_group_member g using (user_group_id)
                     where m.document_set_id = s.id and g.user_id = $3::uuid))), 'tool_ids', coalesce((
      select json_agg(json_build_object('id', t.id, 'enabled', t.enabled, 'attachable', (t.mcp_server_id is null or $4::boolean or t.user_id = $3::uuid or exists (
    select from mcp_server m where m.id = t.mcp_server_id and m.owner_id = $3::uuid)), 'bytes', coalesce(d.size_bytes, 0) + octet_length(t.description), 'definition', encode(t.definition_hash, 'hex')))
      from tool t left join tool_definition d on d.hash = t.definition_hash where t.id = any($5::integer[])), '[]'), 'users', array(select u.id from user_account u where u.id = any($6::uuid[])), 'groups', array(select g.id from user_group g where g.id = any($7::integer[])), 'label_ids', array(select l.id from label l where l.id = any($8::integer[])), 'user_file_ids', array(select f.id from user_file f where f.id = any($9::text[]) and ($2::boolean or f.owner_id = $3::uuid))) as references;

-- persona_snapshot
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::bytea[] as "cached_definitions", ($6::text[])[position]::integer as "id", ($7::text[])[position]::integer as "version", ($8::text[])[position]::text as "access", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
      select input.position, p.version, concat(
    '{"id":', coalesce(to_json(p.id), 'null'),
    ',"name":', coalesce(to_json(p.name), 'null'),
    ',"description":', coalesce(to_json(p.description), 'null'),
    ',"is_public":', coalesce(to_json(p.is_public), 'null'),
    ',"is_visible":', coalesce(to_json(p.is_visible), 'null'),
    ',"uploaded_image_id":', coalesce(to_json(p.uploaded_image_id), 'null'),
    ',"icon_name":', coalesce(to_json(p.icon_name), 'null'),
    ',"user_file_ids":', coalesce(to_json(array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C")), 'null'),
    ',"display_priority":', coalesce(to_json(p.display_priority), 'null'),
    ',"is_default_persona":', coalesce(to_json(p.is_default_persona), 'null'),
    ',"builtin_persona":', coalesce(to_json(p.builtin_persona), 'null'),
    ',"starter_messages":', coalesce(to_json(case when json_typeof(p.starter_messages) = 'array' then array_to_json(array(select json_row from (select m ->> 'name' as name, m ->> 'message' as message from json_array_elements(p.starter_messages) m) json_row)) end), 'null'),
    ',"llm_relevance_filter":', coalesce(to_json(p.llm_relevance_filter), 'null'),
    ',"llm_filter_extraction":', coalesce(to_json(p.llm_filter_extraction), 'null'),
    ',"tools":', '[' || coalesce((
    select string_agg(concat(
    '{"id":', coalesce(to_json(t.id), 'null'),
    ',"name":', coalesce(to_json(t.name), 'null'),
    ',"description":', coalesce(to_json(t.description), 'null'),
    ',"definition":', chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1),
    ',"display_name":', coalesce(to_json(coalesce(t.display_name, t.name)), 'null'),
    ',"in_code_tool_id":', coalesce(to_json(t.in_code_tool_id), 'null'),
    ',"custom_headers":', coalesce(to_json(case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array(select tool_id from persona_tool where persona_id = p.id order by tool_id)) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))) then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row)) end), 'null'),
    ',"passthrough_auth":', coalesce(to_json(t.passthrough_auth), 'null'),
    ',"mcp_server_id":', coalesce(to_json(t.mcp_server_id), 'null'),
    ',"user_id":', coalesce(to_json(t.user_id), 'null'),
    ',"oauth_config_id":', coalesce(to_json(t.oauth_config_id), 'null'),
    ',"oauth_config_name":', coalesce(to_json(o.name), 'null'),
    ',"enabled":', coalesce(to_json(t.enabled), 'null'),
    ',"chat_selectable":', coalesce(to_json(t.chat_selectable), 'null'),
    ',"agent_creation_selectable":', coalesce(to_json(t.agent_creation_selectable), 'null'),
    ',"default_enabled":', coalesce(to_json(t.default_enabled), 'null'), '}'), ',' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any(array(select tool_id from persona_tool where persona_id = p.id order by tool_id))), '') || ']',
    ',"labels":', coalesce(to_json(array_to_json(array(select json_row from (select l.id, l.name from label l where l.id = any(array(select label_id from persona_label where persona_id = p.id order by label_id)) order by l.id) json_row))), 'null'),
    ',"owner":', coalesce(to_json((select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row)), 'null'),
    ',"users":', coalesce(to_json(array_to_json(array(select json_row from (select u.id, u.email from user_account u where u.id = any(array(select user_id from persona_user where persona_id = p.id order by user_id)) order by u.email collate "C") json_row))), 'null'),
    ',"groups":', coalesce(to_json(array(select user_group_id from persona_group where persona_id = p.id order by user_group_id)), 'null'),
    ',"document_sets":', coalesce(to_json(array_to_json(array(select json_row from (
      select s.id, s.name, s.description, array_to_json(array(select json_row from (
        select c.id, c.name, c.source, c.access_type
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id where m.document_set_id = s.id order by c.id) json_row)) as cc_pair_summaries, s.is_up_to_date, s.is_public,
        array(select user_id from document_set_user where document_set_id = s.id order by user_id) as users,
        array(select user_group_id from document_set_group where document_set_id = s.id order by 1) as groups,
        array_to_json(array(select json_row from (
        select f.id, f.name, f.source, m.entities
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id order by f.id) json_row)) as federated_connector_summaries
      from document_set s where s.id = any(array(select document_set_id from persona_document_set where persona_id = p.id order by document_set_id)) order by s.id) json_row))), 'null'),
    ',"llm_model_provider_override":', coalesce(to_json(p.llm_model_provider_override), 'null'),
    ',"llm_model_version_override":', coalesce(to_json(p.llm_model_version_override), 'null'),
    ',"num_chunks":', coalesce(to_json(p.num_chunks), 'null'),
    ',"system_prompt":', coalesce(to_json(p.system_prompt), 'null'),
    ',"replace_base_system_prompt":', coalesce(to_json(p.replace_base_system_prompt), 'null'),
    ',"task_prompt":', coalesce(to_json(p.task_prompt), 'null'),
    ',"datetime_aware":', coalesce(to_json(p.datetime_aware), 'null'), '}') as snapshot
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

-- persona_version
with input as materialized (
        select position::integer, ($1::text[])[position]::integer as "id", ($2::text[])[position]::integer as "version", ($3::text[])[position]::uuid as "user", ($4::text[])[position]::boolean as "manages_all", ($5::text[])[position]::integer[] as "managed_groups", ($6::text[])[position]::boolean as "is_admin", ($7::text[])[position]::text as "access", ($8::text[])[position]::integer as "token", ($9::text[])[position]::text as "standing"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
      select input.position, p.version
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

-- persona_write(none)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::text as "access", ($8::text[])[position]::integer as "token", ($9::text[])[position]::text as "standing", ($10::text[])[position]::text as "idempotency_key", ($11::text[])[position]::jsonb as "changed_columns", ($12::text[])[position]::jsonb as "field_versions", ($13::text[])[position]::text as "hash", ($14::text[])[position]::integer[] as "document_set_ids", ($15::text[])[position]::integer[] as "tool_ids", ($16::text[])[position]::uuid[] as "users", ($17::text[])[position]::integer[] as "groups", ($18::text[])[position]::integer[] as "label_ids", ($19::text[])[position]::text[] as "user_file_ids", ($20::text[])[position]::bytea[] as "cached_definitions", ($21::text[])[position]::timestamptz as "at", ($22::text[])[position]::text as "actor", ($23::text[])[position]::text as "request_id", ($24::text[])[position]::text as "client_address", ($25::text[])[position]::text as "command", ($26::text[])[position]::text as "salt", ($27::text[])[position]::text as "identity_hash", ($28::text[])[position]::text[] as "fields", ($29::text[])[position]::json as "difference", ($30::text[])[position]::integer as "difference_bytes", ($31::text[])[position]::text as "difference_hash", ($32::text[])[position]::text as "definition_before", ($33::text[])[position]::text as "content_hash", ($34::text[])[position]::text as "previous_hash", ($35::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
        from locked input where p.id = "input"."id"
        returning input.position, p.version, concat(
    '{"id":', coalesce(to_json(p.id), 'null'),
    ',"name":', coalesce(to_json(p.name), 'null'),
    ',"description":', coalesce(to_json(p.description), 'null'),
    ',"is_public":', coalesce(to_json(p.is_public), 'null'),
    ',"is_visible":', coalesce(to_json(p.is_visible), 'null'),
    ',"uploaded_image_id":', coalesce(to_json(p.uploaded_image_id), 'null'),
    ',"icon_name":', coalesce(to_json(p.icon_name), 'null'),
    ',"user_file_ids":', coalesce(to_json("input"."user_file_ids"), 'null'),
    ',"display_priority":', coalesce(to_json(p.display_priority), 'null'),
    ',"is_default_persona":', coalesce(to_json(p.is_default_persona), 'null'),
    ',"builtin_persona":', coalesce(to_json(p.builtin_persona), 'null'),
    ',"starter_messages":', coalesce(to_json(case when json_typeof(p.starter_messages) = 'array' then array_to_json(array(select json_row from (select m ->> 'name' as name, m ->> 'message' as message from json_array_elements(p.starter_messages) m) json_row)) end), 'null'),
    ',"llm_relevance_filter":', coalesce(to_json(p.llm_relevance_filter), 'null'),
    ',"llm_filter_extraction":', coalesce(to_json(p.llm_filter_extraction), 'null'),
    ',"tools":', '[' || coalesce((
    select string_agg(concat(
    '{"id":', coalesce(to_json(t.id), 'null'),
    ',"name":', coalesce(to_json(t.name), 'null'),
    ',"description":', coalesce(to_json(t.description), 'null'),
    ',"definition":', chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1),
    ',"display_name":', coalesce(to_json(coalesce(t.display_name, t.name)), 'null'),
    ',"in_code_tool_id":', coalesce(to_json(t.in_code_tool_id), 'null'),
    ',"custom_headers":', coalesce(to_json(case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest("input"."tool_ids") t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))) then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row)) end), 'null'),
    ',"passthrough_auth":', coalesce(to_json(t.passthrough_auth), 'null'),
    ',"mcp_server_id":', coalesce(to_json(t.mcp_server_id), 'null'),
    ',"user_id":', coalesce(to_json(t.user_id), 'null'),
    ',"oauth_config_id":', coalesce(to_json(t.oauth_config_id), 'null'),
    ',"oauth_config_name":', coalesce(to_json(o.name), 'null'),
    ',"enabled":', coalesce(to_json(t.enabled), 'null'),
    ',"chat_selectable":', coalesce(to_json(t.chat_selectable), 'null'),
    ',"agent_creation_selectable":', coalesce(to_json(t.agent_creation_selectable), 'null'),
    ',"default_enabled":', coalesce(to_json(t.default_enabled), 'null'), '}'), ',' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any("input"."tool_ids")), '') || ']',
    ',"labels":', coalesce(to_json(array_to_json(array(select json_row from (select l.id, l.name from label l where l.id = any("input"."label_ids") order by l.id) json_row))), 'null'),
    ',"owner":', coalesce(to_json((select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row)), 'null'),
    ',"users":', coalesce(to_json(array_to_json(array(select json_row from (select u.id, u.email from user_account u where u.id = any("input"."users") order by u.email collate "C") json_row))), 'null'),
    ',"groups":', coalesce(to_json("input"."groups"), 'null'),
    ',"document_sets":', coalesce(to_json(array_to_json(array(select json_row from (
      select s.id, s.name, s.description, array_to_json(array(select json_row from (
        select c.id, c.name, c.source, c.access_type
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id where m.document_set_id = s.id order by c.id) json_row)) as cc_pair_summaries, s.is_up_to_date, s.is_public,
        array(select user_id from document_set_user where document_set_id = s.id order by user_id) as users,
        array(select user_group_id from document_set_group where document_set_id = s.id order by 1) as groups,
        array_to_json(array(select json_row from (
        select f.id, f.name, f.source, m.entities
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id order by f.id) json_row)) as federated_connector_summaries
      from document_set s where s.id = any("input"."document_set_ids") order by s.id) json_row))), 'null'),
    ',"llm_model_provider_override":', coalesce(to_json(p.llm_model_provider_override), 'null'),
    ',"llm_model_version_override":', coalesce(to_json(p.llm_model_version_override), 'null'),
    ',"num_chunks":', coalesce(to_json(p.num_chunks), 'null'),
    ',"system_prompt":', coalesce(to_json(p.system_prompt), 'null'),
    ',"replace_base_system_prompt":', coalesce(to_json(p.replace_base_system_prompt), 'null'),
    ',"task_prompt":', coalesce(to_json(p.task_prompt), 'null'),
    ',"datetime_aware":', coalesce(to_json(p.datetime_aware), 'null'), '}') as snapshot
      ), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'persona', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- persona_write(all)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer[] as "document_set_ids_attached", ($6::text[])[position]::integer[] as "tool_ids_attached", ($7::text[])[position]::integer as "tool_bytes_left", ($8::text[])[position]::uuid[] as "users_attached", ($9::text[])[position]::integer[] as "groups_attached", ($10::text[])[position]::integer[] as "label_ids_attached", ($11::text[])[position]::text[] as "user_file_ids_attached", ($12::text[])[position]::integer as "id", ($13::text[])[position]::integer as "version", ($14::text[])[position]::text as "access", ($15::text[])[position]::integer as "token", ($16::text[])[position]::text as "standing", ($17::text[])[position]::text as "idempotency_key", ($18::text[])[position]::jsonb as "changed_columns", ($19::text[])[position]::jsonb as "field_versions", ($20::text[])[position]::text as "hash", ($21::text[])[position]::integer[] as "document_set_ids", ($22::text[])[position]::integer[] as "tool_ids", ($23::text[])[position]::uuid[] as "users", ($24::text[])[position]::integer[] as "groups", ($25::text[])[position]::integer[] as "label_ids", ($26::text[])[position]::text[] as "user_file_ids", ($27::text[])[position]::bytea[] as "cached_definitions", ($28::text[])[position]::integer[] as "document_set_ids_removed", ($29::text[])[position]::integer[] as "document_set_ids_put", ($30::text[])[position]::integer[] as "tool_ids_removed", ($31::text[])[position]::integer[] as "tool_ids_put", ($32::text[])[position]::uuid[] as "users_removed", ($33::text[])[position]::jsonb as "users_put", ($34::text[])[position]::integer[] as "groups_removed", ($35::text[])[position]::jsonb as "groups_put", ($36::text[])[position]::integer[] as "label_ids_removed", ($37::text[])[position]::integer[] as "label_ids_put", ($38::text[])[position]::text[] as "user_file_ids_removed", ($39::text[])[position]::text[] as "user_file_ids_put", ($40::text[])[position]::timestamptz as "at", ($41::text[])[position]::text as "actor", ($42::text[])[position]::text as "request_id", ($43::text[])[position]::text as "client_address", ($44::text[])[position]::text as "command", ($45::text[])[position]::text as "salt", ($46::text[])[position]::text as "identity_hash", ($47::text[])[position]::text[] as "fields", ($48::text[])[position]::json as "difference", ($49::text[])[position]::integer as "difference_bytes", ($50::text[])[position]::text as "difference_hash", ($51::text[])[position]::text as "definition_before", ($52::text[])[position]::text as "content_hash", ($53::text[])[position]::text as "previous_hash", ($54::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
        from locked input where p.id = "input"."id"
        returning input.position, p.version, concat(
    '{"id":', coalesce(to_json(p.id), 'null'),
    ',"name":', coalesce(to_json(p.name), 'null'),
    ',"description":', coalesce(to_json(p.description), 'null'),
    ',"is_public":', coalesce(to_json(p.is_public), 'null'),
    ',"is_visible":', coalesce(to_json(p.is_visible), 'null'),
    ',"uploaded_image_id":', coalesce(to_json(p.uploaded_image_id), 'null'),
    ',"icon_name":', coalesce(to_json(p.icon_name), 'null'),
    ',"user_file_ids":', coalesce(to_json("input"."user_file_ids"), 'null'),
    ',"display_priority":', coalesce(to_json(p.display_priority), 'null'),
    ',"is_default_persona":', coalesce(to_json(p.is_default_persona), 'null'),
    ',"builtin_persona":', coalesce(to_json(p.builtin_persona), 'null'),
    ',"starter_messages":', coalesce(to_json(case when json_typeof(p.starter_messages) = 'array' then array_to_json(array(select json_row from (select m ->> 'name' as name, m ->> 'message' as message from json_array_elements(p.starter_messages) m) json_row)) end), 'null'),
    ',"llm_relevance_filter":', coalesce(to_json(p.llm_relevance_filter), 'null'),
    ',"llm_filter_extraction":', coalesce(to_json(p.llm_filter_extraction), 'null'),
    ',"tools":', '[' || coalesce((
    select string_agg(concat(
    '{"id":', coalesce(to_json(t.id), 'null'),
    ',"name":', coalesce(to_json(t.name), 'null'),
    ',"description":', coalesce(to_json(t.description), 'null'),
    ',"definition":', chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1),
    ',"display_name":', coalesce(to_json(coalesce(t.display_name, t.name)), 'null'),
    ',"in_code_tool_id":', coalesce(to_json(t.in_code_tool_id), 'null'),
    ',"custom_headers":', coalesce(to_json(case when (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest("input"."tool_ids") t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))) then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row)) end), 'null'),
    ',"passthrough_auth":', coalesce(to_json(t.passthrough_auth), 'null'),
    ',"mcp_server_id":', coalesce(to_json(t.mcp_server_id), 'null'),
    ',"user_id":', coalesce(to_json(t.user_id), 'null'),
    ',"oauth_config_id":', coalesce(to_json(t.oauth_config_id), 'null'),
    ',"oauth_config_name":', coalesce(to_json(o.name), 'null'),
    ',"enabled":', coalesce(to_json(t.enabled), 'null'),
    ',"chat_selectable":', coalesce(to_json(t.chat_selectable), 'null'),
    ',"agent_creation_selectable":', coalesce(to_json(t.agent_creation_selectable), 'null'),
    ',"default_enabled":', coalesce(to_json(t.default_enabled), 'null'), '}'), ',' order by t.id)
    from tool t
    left join oauth_config o on o.id = t.oauth_config_id
    where t.id = any("input"."tool_ids")), '') || ']',
    ',"labels":', coalesce(to_json(array_to_json(array(select json_row from (select l.id, l.name from label l where l.id = any("input"."label_ids") order by l.id) json_row))), 'null'),
    ',"owner":', coalesce(to_json((select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row)), 'null'),
    ',"users":', coalesce(to_json(array_to_json(array(select json_row from (select u.id, u.email from user_account u where u.id = any("input"."users") order by u.email collate "C") json_row))), 'null'),
    ',"groups":', coalesce(to_json("input"."groups"), 'null'),
    ',"document_sets":', coalesce(to_json(array_to_json(array(select json_row from (
      select s.id, s.name, s.description, array_to_json(array(select json_row from (
        select c.id, c.name, c.source, c.access_type
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id where m.document_set_id = s.id order by c.id) json_row)) as cc_pair_summaries, s.is_up_to_date, s.is_public,
        array(select user_id from document_set_user where document_set_id = s.id order by user_id) as users,
        array(select user_group_id from document_set_group where document_set_id = s.id order by 1) as groups,
        array_to_json(array(select json_row from (
        select f.id, f.name, f.source, m.entities
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id order by f.id) json_row)) as federated_connector_summaries
      from document_set s where s.id = any("input"."document_set_ids") order by s.id) json_row))), 'null'),
    ',"llm_model_provider_override":', coalesce(to_json(p.llm_model_provider_override), 'null'),
    ',"llm_model_version_override":', coalesce(to_json(p.llm_model_version_override), 'null'),
    ',"num_chunks":', coalesce(to_json(p.num_chunks), 'null'),
    ',"system_prompt":', coalesce(to_json(p.system_prompt), 'null'),
    ',"replace_base_system_prompt":', coalesce(to_json(p.replace_base_system_prompt), 'null'),
    ',"task_prompt":', coalesce(to_json(p.task_prompt), 'null'),
    ',"datetime_aware":', coalesce(to_json(p.datetime_aware), 'null'), '}') as snapshot
      ), "document_set_ids_removed" as (
        delete from "persona_document_set" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."document_set_id" = any("input"."document_set_ids_removed")), "document_set_ids_put" as (
        insert into "persona_document_set" (persona_id, "document_set_id")
        select "input"."id", unnest("input"."document_set_ids_put") from changed join locked input using (position)), "tool_ids_removed" as (
        delete from "persona_tool" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."tool_id" = any("input"."tool_ids_removed")), "tool_ids_put" as (
        insert into "persona_tool" (persona_id, "tool_id", attached_by)
        select "input"."id", unnest("input"."tool_ids_put"), "input"."user" from changed join locked input using (position)), "users_removed" as (
        delete from "persona_user" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."user_id" = any("input"."users_removed")), "users_put" as (
        insert into "persona_user" (persona_id, "user_id", level)
        select "input"."id", share.id, share.level
        from changed join locked input using (position)
        cross join jsonb_to_recordset("input"."users_put") share (id uuid, level text)
        on conflict (persona_id, "user_id") do update set level = excluded.level), "groups_removed" as (
        delete from "persona_group" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."user_group_id" = any("input"."groups_removed")), "groups_put" as (
        insert into "persona_group" (persona_id, "user_group_id", level)
        select "input"."id", share.id, share.level
        from changed join locked input using (position)
        cross join jsonb_to_recordset("input"."groups_put") share (id integer, level text)
        on conflict (persona_id, "user_group_id") do update set level = excluded.level), "label_ids_removed" as (
        delete from "persona_label" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."label_id" = any("input"."label_ids_removed")), "label_ids_put" as (
        insert into "persona_label" (persona_id, "label_id")
        select "input"."id", unnest("input"."label_ids_put") from changed join locked input using (position)), "user_file_ids_removed" as (
        delete from "persona_user_file" link using changed join locked input using (position)
        where link.persona_id = "input"."id" and link."user_file_id" = any("input"."user_file_ids_removed")), "user_file_ids_put" as (
        insert into "persona_user_file" (persona_id, "user_file_id")
        select "input"."id", unnest("input"."user_file_ids_put") from changed join locked input using (position)), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'persona', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- persona_write(none minimal)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::text as "access", ($8::text[])[position]::integer as "token", ($9::text[])[position]::text as "standing", ($10::text[])[position]::text as "idempotency_key", ($11::text[])[position]::jsonb as "changed_columns", ($12::text[])[position]::jsonb as "field_versions", ($13::text[])[position]::text as "hash", ($14::text[])[position]::timestamptz as "at", ($15::text[])[position]::text as "actor", ($16::text[])[position]::text as "request_id", ($17::text[])[position]::text as "client_address", ($18::text[])[position]::text as "command", ($19::text[])[position]::text as "salt", ($20::text[])[position]::text as "identity_hash", ($21::text[])[position]::text[] as "fields", ($22::text[])[position]::json as "difference", ($23::text[])[position]::integer as "difference_bytes", ($24::text[])[position]::text as "difference_hash", ($25::text[])[position]::text as "definition_before", ($26::text[])[position]::text as "content_hash", ($27::text[])[position]::text as "previous_hash", ($28::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
        from locked input where p.id = "input"."id"
        returning input.position, p.version
      ), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'persona', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- persona_past
select r.id, r.version as current, r.audit_anchor_version as kept_from,
      case when $1::timestamptz > clock_timestamp() then not exists (select from audit where audit.at >= $1::timestamptz) else false end as is_future,
      coalesce($2::integer > r.version or $2::integer < 1, false) as is_asked_later,
      made.version, made.at, coalesce(since.values, '{}') as values, since.pruned_to
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
        (select json_object_agg(change.key, change.value -> 'from')
         from (
           select version_after, array_agg(field) as fields from (
             select distinct on (field) field, a.version_after
             from audit a cross join lateral unnest(a.fields) field where a.resource_kind = 'persona' and a.resource_id = r.id and a.version_after > made.version and a.difference is not null
             order by field, a.version_after) first
           group by version_after) told
         join audit on audit.resource_kind = 'persona' and audit.resource_id = r.id and audit.version_after = told.version_after
         cross join lateral json_each(audit.difference) change
         where change.key = any(told.fields)) as values,
        (select max(a.version_after) from audit a where a.resource_kind = 'persona' and a.resource_id = r.id and a.version_after > made.version and a.difference is null) as pruned_to
    ) since on made.version is not null
    where r.id = any($3::integer[])
    order by r.id;

-- past_persona
select concat(
    '{"id":', coalesce(to_json(p.id), 'null'),
    ',"name":', coalesce(to_json(p.name), 'null'),
    ',"description":', coalesce(to_json(p.description), 'null'),
    ',"is_public":', coalesce(to_json(p.is_public), 'null'),
    ',"is_visible":', coalesce(to_json(p.is_visible), 'null'),
    ',"uploaded_image_id":', coalesce(to_json(p.uploaded_image_id), 'null'),
    ',"icon_name":', coalesce(to_json(p.icon_name), 'null'),
    ',"user_file_ids":', coalesce(to_json($1::text[]), 'null'),
    ',"display_priority":', coalesce(to_json(p.display_priority), 'null'),
    ',"is_default_persona":', coalesce(to_json(p.is_default_persona), 'null'),
    ',"builtin_persona":', coalesce(to_json(p.builtin_persona), 'null'),
    ',"starter_messages":', coalesce(to_json(case when json_typeof(p.starter_messages) = 'array' then array_to_json(array(select json_row from (select m ->> 'name' as name, m ->> 'message' as message from json_array_elements(p.starter_messages) m) json_row)) end), 'null'),
    ',"llm_relevance_filter":', coalesce(to_json(p.llm_relevance_filter), 'null'),
    ',"llm_filter_extraction":', coalesce(to_json(p.llm_filter_extraction), 'null'),
    ',"tools":', '[' || coalesce((
    select string_agg(concat(
    '{"id":', coalesce(to_json(t.id), 'null'),
    ',"name":', coalesce(to_json(t.name), 'null'),
    ',"description":', coalesce(to_json(t.description), 'null'),
    ',"definition":', chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any($2::bytea[]) then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1),
    ',"display_name":', coalesce(to_json(coalesce(t.display_name, t.name)), 'null'),
    ',"in_code_tool_id":', coalesce(to_json(t.in_code_tool_id), 'null'),
    ',"custom_headers":', coalesce(to_json(case when stored.manageable then case
  when stored.past -> 'custom_headers' is null then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row))
  else array_to_json(array(select json_row from (
    select h.value ->> 'key' as key, h.value ->> 'value' as value
    from json_array_elements(stored.past -> 'custom_headers') with ordinality h (value, place) order by h.place) json_row)) end end), 'null'),
    ',"passthrough_auth":', coalesce(to_json(t.passthrough_auth), 'null'),
    ',"mcp_server_id":', coalesce(to_json(t.mcp_server_id), 'null'),
    ',"user_id":', coalesce(to_json(t.user_id), 'null'),
    ',"oauth_config_id":', coalesce(to_json(t.oauth_config_id), 'null'),
    ',"oauth_config_name":', coalesce(to_json(o.name), 'null'),
    ',"enabled":', coalesce(to_json(t.enabled), 'null'),
    ',"chat_selectable":', coalesce(to_json(t.chat_selectable), 'null'),
    ',"agent_creation_selectable":', coalesce(to_json(t.agent_creation_selectable), 'null'),
    ',"default_enabled":', coalesce(to_json(t.default_enabled), 'null'), '}'), ',' order by t.id)
    from (
      select t as stored_row, (t.in_code_tool_id is null and t.mcp_server_id is null and ($3::boolean or (
    cardinality($4::integer[]) > 0 and (t.user_id = $5::uuid or t.id = any(array(
      with asked as materialized (
        select t.id from unnest($6::integer[]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($4::integer[]))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($4::integer[]))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from $5::uuid
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> $5::uuid and persona_id in (select id from inside where lives) end))))))) as manageable, $7::json -> t.id::text as past
      from tool t where t.id = any($6::integer[])) stored
    cross join lateral json_populate_record(stored.stored_row, coalesce(stored.past, '{}')) t
    left join oauth_config o on o.id = t.oauth_config_id), '') || ']',
    ',"labels":', coalesce(to_json(array_to_json(array(select json_row from (select l.id, l.name from label l where l.id = any($8::integer[]) order by l.id) json_row))), 'null'),
    ',"owner":', coalesce(to_json((select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row)), 'null'),
    ',"users":', coalesce(to_json(array_to_json(array(select json_row from (select u.id, u.email from user_account u where u.id = any($9::uuid[]) order by u.email collate "C") json_row))), 'null'),
    ',"groups":', coalesce(to_json($10::integer[]), 'null'),
    ',"document_sets":', coalesce(to_json(array_to_json(array(select json_row from (
      select s.id, s.name, s.description, array_to_json(array(select json_row from (
        select c.id, c.name, c.source, c.access_type
        from document_set_cc_pair m join cc_pair c on c.id = m.cc_pair_id where m.document_set_id = s.id order by c.id) json_row)) as cc_pair_summaries, s.is_up_to_date, s.is_public,
        array(select user_id from document_set_user where document_set_id = s.id order by user_id) as users,
        array(select user_group_id from document_set_group where document_set_id = s.id order by 1) as groups,
        array_to_json(array(select json_row from (
        select f.id, f.name, f.source, m.entities
        from document_set_federated_connector m join federated_connector f on f.id = m.federated_connector_id
        where m.document_set_id = s.id order by f.id) json_row)) as federated_connector_summaries
      from document_set s where s.id = any($11::integer[]) order by s.id) json_row))), 'null'),
    ',"llm_model_provider_override":', coalesce(to_json(p.llm_model_provider_override), 'null'),
    ',"llm_model_version_override":', coalesce(to_json(p.llm_model_version_override), 'null'),
    ',"num_chunks":', coalesce(to_json(p.num_chunks), 'null'),
    ',"system_prompt":', coalesce(to_json(p.system_prompt), 'null'),
    ',"replace_base_system_prompt":', coalesce(to_json(p.replace_base_system_prompt), 'null'),
    ',"task_prompt":', coalesce(to_json(p.task_prompt), 'null'),
    ',"datetime_aware":', coalesce(to_json(p.datetime_aware), 'null'), '}') as snapshot
    from persona stored cross join lateral json_populate_record(stored, $12::json) p
    where stored.id = $13::integer;

-- past_tool
select t.version, t.id as id, t.name as name, t.description as description, chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any($1::bytea[]) then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1) as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, case when stored.manageable then case
  when stored.past -> 'custom_headers' is null then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row))
  else array_to_json(array(select json_row from (
    select h.value ->> 'key' as key, h.value ->> 'value' as value
    from json_array_elements(stored.past -> 'custom_headers') with ordinality h (value, place) order by h.place) json_row)) end end as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled from (
      select t as stored_row, (t.in_code_tool_id is null and t.mcp_server_id is null and ($2::boolean or (
    cardinality($3::integer[]) > 0 and (t.user_id = $4::uuid or t.id = any(array(
      with asked as materialized (
        select t.id from unnest($5::integer[]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($3::integer[]))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($3::integer[]))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from $4::uuid
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> $4::uuid and persona_id in (select id from inside where lives) end))))))) as manageable, $6::json -> t.id::text as past
      from tool t where t.id = any($5::integer[])) stored
    cross join lateral json_populate_record(stored.stored_row, coalesce(stored.past, '{}')) t;

-- tool_lock
select id from tool where id = $1::integer for no key update;

-- tool_state
select (select row_to_json(state) from (select
    t.id as "id",
    t.version as "version",
    encode(t.audit_head, 'hex') as "audit_head",
    t.field_versions as "field_versions",
    to_char(greatest(t.audit_anchor_at, (
      select a.at from audit a
      where a.resource_kind = 'tool' and a.resource_id = t.id and a.version_after = t.version)) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "made_at",
    coalesce((
    select json_agg(json_build_object(
      'field', last_change.key, 'by', a.actor,
      'age_s', greatest(0, floor(extract(epoch from clock_timestamp() - a.at)))))
    from jsonb_each_text("t".field_versions) last_change
    cross join lateral (
      select actor, actor_id, at from audit
      where resource_kind = 'tool' and resource_id = "t".id and version_after = last_change.value::integer
      offset 0) a
    where a.at > clock_timestamp() - '15 minutes'::interval and a.actor_id is distinct from $1::uuid), '[]') as "recent",
    extract(epoch from clock_timestamp()) * 1000 as "read_at_ms",
    t."name" as "name",
    t."display_name" as "display_name",
    t."description" as "description",
    t."in_code_tool_id" as "in_code_tool_id",
    t."passthrough_auth" as "passthrough_auth",
    t."mcp_server_id" as "mcp_server_id",
    t."user_id" as "user_id",
    t."oauth_config_id" as "oauth_config_id",
    t."enabled" as "enabled",
    t."chat_selectable" as "chat_selectable",
    t."agent_creation_selectable" as "agent_creation_selectable",
    t."default_enabled" as "default_enabled",
    encode(t.definition_hash, 'hex') as "definition_hash",
    t.secrets_generation as "secrets_generation",
    coalesce((
      select json_agg(json_build_object('name', h.name, 'key_id', h.key_id, 'fingerprint', encode(h.fingerprint, 'hex'))
                      order by h.position)
      from tool_header h where h.tool_id = t.id), '[]') as "headers",
    coalesce((select d.size_bytes from tool_definition d where d.hash = t.definition_hash), 0) as "definition_bytes",
    case when (t.in_code_tool_id is null and t.mcp_server_id is null and ($2::boolean or (
    cardinality($3::integer[]) > 0 and (t.user_id = $1::uuid or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($3::integer[]))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any($3::integer[]))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from $1::uuid
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> $1::uuid and persona_id in (select id from inside where lives) end))))))) then
      case when $2::boolean then 'all' when t.user_id = $1::uuid then 'owner' else 'group' end end as "managed_as") state) as state from tool t where t.id = $4::integer;

-- oauth_config
select o.id from oauth_config o where o.id = $1::integer and ($2::boolean or o.owner_id = $3::uuid);

-- tool_row
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::boolean as "managed", ($6::text[])[position]::bytea[] as "cached_definitions", ($7::text[])[position]::integer as "id", ($8::text[])[position]::integer as "version", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, t.version, t.id as id, t.name as name, t.description as description, chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1) as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, case when "input"."managed" then array_to_json(array(select json_row from (
  select h.name as key, '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
  from tool_header h where h.tool_id = t.id order by h.position) json_row)) end as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled
    from input join tool t on t.id = "input"."id" and t.version = "input"."version"
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
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and (not "input"."managed" or "input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))));

-- tool_version
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::integer as "token", ($8::text[])[position]::text as "standing", ($9::text[])[position]::boolean as "managed"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0)
    select input.position, t.version
    from input join tool t on t.id = "input"."id" and t.version = "input"."version"
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
    ) caller where caller.active and not caller.revoked and not caller.expired and caller.standing = "input"."standing")) and (not "input"."managed" or "input"."user" is null or (t.in_code_tool_id is null and t.mcp_server_id is null and ("input"."manages_all" or (
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))));

-- tool_write(+)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::integer as "secrets_generation", ($8::text[])[position]::text as "idempotency_key", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing", ($11::text[])[position]::integer as "oauth_config_id", ($12::text[])[position]::bytea[] as "cached_definitions", ($13::text[])[position]::json as "shown_headers", ($14::text[])[position]::jsonb as "changed_columns", ($15::text[])[position]::text as "definition_hash", ($16::text[])[position]::jsonb as "field_versions", ($17::text[])[position]::text as "hash", ($18::text[])[position]::timestamptz as "at", ($19::text[])[position]::text as "actor", ($20::text[])[position]::text as "request_id", ($21::text[])[position]::text as "client_address", ($22::text[])[position]::text as "command", ($23::text[])[position]::text as "salt", ($24::text[])[position]::text as "identity_hash", ($25::text[])[position]::text[] as "fields", ($26::text[])[position]::json as "difference", ($27::text[])[position]::integer as "difference_bytes", ($28::text[])[position]::text as "difference_hash", ($29::text[])[position]::text as "definition_before", ($30::text[])[position]::text as "content_hash", ($31::text[])[position]::text as "previous_hash", ($32::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))))
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
        from locked input where t.id = "input"."id"
        returning input.position, t.version, t.id as id, t.name as name, t.description as description, chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) ||
      case when t.definition_hash is null then 'null' when t.definition_hash = any("input"."cached_definitions") then ''
        else (select content::text from tool_definition where hash = t.definition_hash) end || chr(1) as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, "input"."shown_headers" as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'tool', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- tool_write(single definition+headers)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::integer as "secrets_generation", ($8::text[])[position]::text as "idempotency_key", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing", ($11::text[])[position]::integer as "oauth_config_id", ($12::text[])[position]::text as "definition_hash", ($13::text[])[position]::integer as "definition_bytes", ($14::text[])[position]::json as "shown_headers", ($15::text[])[position]::jsonb as "changed_columns", ($16::text[])[position]::jsonb as "field_versions", ($17::text[])[position]::text as "hash", ($18::text[])[position]::json as "headers", ($19::text[])[position]::timestamptz as "at", ($20::text[])[position]::text as "actor", ($21::text[])[position]::text as "request_id", ($22::text[])[position]::text as "client_address", ($23::text[])[position]::text as "command", ($24::text[])[position]::text as "salt", ($25::text[])[position]::text as "identity_hash", ($26::text[])[position]::text[] as "fields", ($27::text[])[position]::json as "difference", ($28::text[])[position]::integer as "difference_bytes", ($29::text[])[position]::text as "difference_hash", ($30::text[])[position]::text as "definition_before", ($31::text[])[position]::text as "content_hash", ($32::text[])[position]::text as "previous_hash", ($33::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))))
          and ("input"."oauth_config_id" is null or exists (
            select from oauth_config o where o.id = "input"."oauth_config_id"
              and (o.id = t.oauth_config_id or ("input"."manages_all" or o.owner_id = "input"."user"))))
        for no key update of t skip locked
      ), stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode("input"."definition_hash", 'hex'), $34::text::json, "input"."definition_bytes"
        from locked input
        where not exists (select from tool_definition where hash = decode("input"."definition_hash", 'hex'))
        on conflict (hash) do nothing), changed as (
        update tool t set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else t."name" end, "display_name" = case when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text else t."display_name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else t."description" end, "in_code_tool_id" = case when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text else t."in_code_tool_id" end, "passthrough_auth" = case when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean else t."passthrough_auth" end, "mcp_server_id" = case when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer else t."mcp_server_id" end, "user_id" = case when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid else t."user_id" end, "oauth_config_id" = case when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer else t."oauth_config_id" end, "enabled" = case when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean else t."enabled" end, "chat_selectable" = case when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean else t."chat_selectable" end, "agent_creation_selectable" = case when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean else t."agent_creation_selectable" end, "default_enabled" = case when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean else t."default_enabled" end,
          definition_hash = decode("input"."definition_hash", 'hex'),
          version = t.version + 1,
          field_versions = t.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = t.audit_count + 1
        from locked input where t.id = "input"."id"
        returning input.position, t.version, t.id as id, t.name as name, t.description as description, null::text as definition, coalesce(t.display_name, t.name) as display_name, t.in_code_tool_id as in_code_tool_id, "input"."shown_headers" as custom_headers, t.passthrough_auth as passthrough_auth, t.mcp_server_id as mcp_server_id, t.user_id as user_id, t.oauth_config_id as oauth_config_id, (select o.name from oauth_config o where o.id = t.oauth_config_id) as oauth_config_name, t.enabled as enabled, t.chat_selectable as chat_selectable, t.agent_creation_selectable as agent_creation_selectable, t.default_enabled as default_enabled), new_headers as (
        select "input"."id" as tool_id, (g.position - 1)::integer as position, g.value ->> 'name' as name,
          g.value ->> 'fingerprint' as fingerprint, (g.value ->> 'kept')::integer as kept, g.value ->> 'key_id' as key_id,
          g.value ->> 'nonce' as nonce, g.value ->> 'ciphertext' as ciphertext
        from changed join locked input using (position) cross join json_array_elements("input"."headers") with ordinality g (value, position)), removed_headers as (
        delete from tool_header h using changed join locked input using (position)
        where h.tool_id = "input"."id" and h.position >= json_array_length("input"."headers")), put_headers as (
        insert into tool_header (tool_id, position, name, key_id, nonce, ciphertext, fingerprint)
        select g.tool_id, g.position, g.name, coalesce(g.key_id, kept.key_id),
          coalesce(decode(g.nonce, 'base64'), kept.nonce), coalesce(decode(g.ciphertext, 'base64'), kept.ciphertext),
          decode(g.fingerprint, 'hex')
        from new_headers g
        left join tool_header kept on kept.tool_id = g.tool_id and kept.position = g.kept
        on conflict (tool_id, position) do update set name = excluded.name, key_id = excluded.key_id,
          nonce = excluded.nonce, ciphertext = excluded.ciphertext, fingerprint = excluded.fingerprint), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'tool', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- tool_write(shared definition+ minimal)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::integer as "secrets_generation", ($8::text[])[position]::text as "idempotency_key", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing", ($11::text[])[position]::integer as "oauth_config_id", ($12::text[])[position]::text as "definition_hash", ($13::text[])[position]::text as "definition_text", ($14::text[])[position]::integer as "definition_bytes", ($15::text[])[position]::jsonb as "changed_columns", ($16::text[])[position]::jsonb as "field_versions", ($17::text[])[position]::text as "hash", ($18::text[])[position]::timestamptz as "at", ($19::text[])[position]::text as "actor", ($20::text[])[position]::text as "request_id", ($21::text[])[position]::text as "client_address", ($22::text[])[position]::text as "command", ($23::text[])[position]::text as "salt", ($24::text[])[position]::text as "identity_hash", ($25::text[])[position]::text[] as "fields", ($26::text[])[position]::json as "difference", ($27::text[])[position]::integer as "difference_bytes", ($28::text[])[position]::text as "difference_hash", ($29::text[])[position]::text as "definition_before", ($30::text[])[position]::text as "content_hash", ($31::text[])[position]::text as "previous_hash", ($32::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))))
          and ("input"."oauth_config_id" is null or exists (
            select from oauth_config o where o.id = "input"."oauth_config_id"
              and (o.id = t.oauth_config_id or ("input"."manages_all" or o.owner_id = "input"."user")))) and exists (select from tool_definition where hash = decode("input"."definition_hash", 'hex'))
        for no key update of t skip locked
      ), stored_definitions as (
        insert into tool_definition (hash, content, size_bytes)
        select decode("input"."definition_hash", 'hex'), "input"."definition_text"::json, "input"."definition_bytes"
        from locked input
        where not exists (select from tool_definition where hash = decode("input"."definition_hash", 'hex'))
        on conflict (hash) do nothing), changed as (
        update tool t set
          "name" = case when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text else t."name" end, "display_name" = case when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text else t."display_name" end, "description" = case when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text else t."description" end, "in_code_tool_id" = case when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text else t."in_code_tool_id" end, "passthrough_auth" = case when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean else t."passthrough_auth" end, "mcp_server_id" = case when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer else t."mcp_server_id" end, "user_id" = case when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid else t."user_id" end, "oauth_config_id" = case when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer else t."oauth_config_id" end, "enabled" = case when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean else t."enabled" end, "chat_selectable" = case when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean else t."chat_selectable" end, "agent_creation_selectable" = case when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean else t."agent_creation_selectable" end, "default_enabled" = case when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean else t."default_enabled" end,
          definition_hash = decode("input"."definition_hash", 'hex'),
          version = t.version + 1,
          field_versions = t.field_versions || "input"."field_versions",
          audit_head = decode("input"."hash", 'hex'),
          audit_count = t.audit_count + 1
        from locked input where t.id = "input"."id"
        returning input.position, t.version), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'tool', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- tool_write(+ minimal)
with input as materialized (
        select position::integer, ($1::text[])[position]::uuid as "user", ($2::text[])[position]::boolean as "manages_all", ($3::text[])[position]::integer[] as "managed_groups", ($4::text[])[position]::boolean as "is_admin", ($5::text[])[position]::integer as "id", ($6::text[])[position]::integer as "version", ($7::text[])[position]::integer as "secrets_generation", ($8::text[])[position]::text as "idempotency_key", ($9::text[])[position]::integer as "token", ($10::text[])[position]::text as "standing", ($11::text[])[position]::integer as "oauth_config_id", ($12::text[])[position]::bytea[] as "cached_definitions", ($13::text[])[position]::jsonb as "changed_columns", ($14::text[])[position]::text as "definition_hash", ($15::text[])[position]::jsonb as "field_versions", ($16::text[])[position]::text as "hash", ($17::text[])[position]::timestamptz as "at", ($18::text[])[position]::text as "actor", ($19::text[])[position]::text as "request_id", ($20::text[])[position]::text as "client_address", ($21::text[])[position]::text as "command", ($22::text[])[position]::text as "salt", ($23::text[])[position]::text as "identity_hash", ($24::text[])[position]::text[] as "fields", ($25::text[])[position]::json as "difference", ($26::text[])[position]::integer as "difference_bytes", ($27::text[])[position]::text as "difference_hash", ($28::text[])[position]::text as "definition_before", ($29::text[])[position]::text as "content_hash", ($30::text[])[position]::text as "previous_hash", ($31::text[])[position]::text as "request_fingerprint"
        from unnest($1::text[]) with ordinality listed (value, position)
        where position = position + 0), locked as materialized (
        select input.*
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
    cardinality("input"."managed_groups") > 0 and (t.user_id = "input"."user" or t.id = any(array(
      with asked as materialized (
        select t.id from unnest(array[t.id]) t (id)
        where case when exists (select from (select persona_id, attached_by from persona_tool where tool_id = t.id and tool_id between t.id and t.id limit 20) used
      join persona a on a.id = used.persona_id and not a.deleted where not exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))) then false
          else not exists (select from persona_tool where tool_id = t.id offset 1000) end
      ), inside as materialized (
        select a.id, not a.deleted as lives, a.owner_id
        from (select distinct used.persona_id
              from asked t cross join lateral (select persona_id from persona_tool where tool_id = t.id and tool_id between t.id and t.id offset 0) used) used
        cross join lateral (select id, deleted, owner_id from persona where id = used.persona_id offset 0) a
        where a.deleted or exists (
        select from persona_group s where s.persona_id = a.id and s.user_group_id = any("input"."managed_groups"))
      ), of_others as materialized (
        select id from inside where lives and owner_id is distinct from "input"."user"
      )
      select t.id from asked t
      where not exists (select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and persona_id not in (select id from inside))
        and exists (
          select from persona_tool where tool_id = t.id and tool_id between t.id and t.id and case when attached_by is null then persona_id in (select id from of_others)
            else attached_by <> "input"."user" and persona_id in (select id from inside where lives) end))))))))
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
        from locked input where t.id = "input"."id"
        returning input.position, t.version), audited as (
        insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id, client_address, command, salt, identity_hash, fields, difference, difference_bytes, difference_hash, definition_before, content_hash, previous_hash, hash, idempotency_key, request_fingerprint)
        select 'tool', "input"."id", "input"."version", "input"."version" + 1, "input"."at", "input"."user", "input"."actor", "input"."token", "input"."request_id", "input"."client_address", "input"."command", "input"."salt", decode("input"."identity_hash", 'hex'), "input"."fields", "input"."difference", "input"."difference_bytes", decode("input"."difference_hash", 'hex'), decode("input"."definition_before", 'hex'), decode("input"."content_hash", 'hex'), decode("input"."previous_hash", 'hex'), decode("input"."hash", 'hex'), decode("input"."idempotency_key", 'hex'), decode("input"."request_fingerprint", 'hex')
        from changed join locked input using (position)) select * from changed;

-- persona_page(all)
select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from persona p
      where p.id > $1::integer and not p.deleted order by p.id limit 101) page limit $2::integer
    ) "p" order by "p".id;

-- persona_page(all of a name)
select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from persona p
      where p.id > $1::integer and not p.deleted and p.name between $2::text and $2::text order by p.name, p.id limit 101) page limit $3::integer
    ) "p" order by "p".id;

-- persona_page(bound)
select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from persona p
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
    end) <> 'none') order by p.id limit 101) page limit $5::integer
    ) "p" order by "p".id;

-- persona_page(bound of a name)
select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from persona p
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
    end) <> 'none') order by p.name, p.id limit 101) page limit $6::integer
    ) "p" order by "p".id;

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
    select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from candidate cross join lateral (select * from persona where id = candidate.id offset 0) p
      where p.id > $2::integer and not p.deleted order by p.id limit 101) page limit $3::integer
    ) "p" order by "p".id;

-- persona_page(seen of a name)
select "p".id, case when "p".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select p.id, p.name, p.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = p.owner_id) json_row) as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select p.* from persona p
      where p.id > $1::integer and not p.deleted and p.name between $2::text and $2::text and ($3::boolean or (case
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
    end) <> 'none') order by p.name, p.id limit 101) page limit $5::integer
    ) "p" order by "p".id;

-- tool_page(all)
select "t".id, case when "t".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = t.user_id) json_row) as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select t.* from tool t where t.id > $1::integer   order by t.id limit 101) page limit $2::integer
    ) "t" order by "t".id;

-- tool_page(all of a name)
select "t".id, case when "t".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = t.user_id) json_row) as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select t.* from tool t where t.id > $1::integer and t.name between $2::text and $2::text  order by t.name, t.id limit 101) page limit $3::integer
    ) "t" order by "t".id;

-- tool_page(bound)
select "t".id, case when "t".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = t.user_id) json_row) as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select t.* from tool t where t.id > $1::integer  and t.id = any($2::integer[]) order by t.id limit 101) page limit $3::integer
    ) "t" order by "t".id;

-- tool_page(bound of a name)
select "t".id, case when "t".bytes_before <= 262144 then (select row_to_json(json_row) from (
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, (select row_to_json(json_row) from (select u.id, u.email from user_account u where u.id = t.user_id) json_row) as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag) json_row)::text end as record
    from (
      select page.*, sum(octet_length(page.description)) over (order by page.id) - octet_length(page.description) as bytes_before
      from (
      select t.* from tool t where t.id > $1::integer and t.name between $2::text and $2::text and t.id = any($3::integer[]) order by t.name, t.id limit 101) page limit $4::integer
    ) "t" order by "t".id;
