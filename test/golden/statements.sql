-- persona_write(all)
with
  input as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "document_set_ids_attached" integer[],
          "tool_ids_attached" integer[],
          "tool_bytes_left" integer,
          "users_attached" uuid[],
          "groups_attached" integer[],
          "label_ids_attached" integer[],
          "user_file_ids_attached" text[],
          "id" integer,
          "version" integer,
          "access" text,
          "token" integer,
          "standing" text,
          "idempotency_key" text,
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
          "document_set_ids" integer[],
          "tool_ids" integer[],
          "users" uuid[],
          "groups" integer[],
          "label_ids" integer[],
          "user_file_ids" text[],
          "cached_definitions" bytea[],
          "document_set_ids_removed" integer[],
          "document_set_ids_put" integer[],
          "tool_ids_removed" integer[],
          "tool_ids_put" integer[],
          "users_removed" uuid[],
          "users_put" text,
          "groups_removed" integer[],
          "groups_put" text,
          "label_ids_removed" integer[],
          "label_ids_put" integer[],
          "user_file_ids_removed" text[],
          "user_file_ids_put" text[],
          "at" timestamptz,
          "actor" text,
          "request_id" text,
          "client_address" text,
          "command" text,
          "salt" text,
          "identity_hash" text,
          "fields" text[],
          "difference" text,
          "difference_bytes" integer,
          "difference_hash" text,
          "definition_before" text,
          "content_hash" text,
          "previous_hash" text,
          "request_fingerprint" text
        )
      ) with ordinality listed
    where
      ordinality = ordinality + 0
  ),
  locked as materialized (
    select
      input.*
    from
      input
      join persona p on p.id = "input"."id"
      and p.version = "input"."version"
    where
      (
        case
          when p.owner_id = "input"."user" then 'owner'
          else coalesce(
            (
              select
                case
                  when bool_or(share.level = 'editor') then 'editor'
                  else 'viewer'
                end
              from
                (
                  select
                    level
                  from
                    persona_user
                  where
                    persona_id = p.id
                    and user_id = "input"."user"
                  union all
                  select
                    s.level
                  from
                    persona_group s
                    join user_group_member m on m.user_group_id = s.user_group_id
                    and m.user_id = "input"."user"
                  where
                    s.persona_id = p.id
                ) share
              having
                count(*) > 0
            ),
            case
              when p.is_public then 'viewer'
              else 'none'
            end
          )
        end
      ) = "input"."access"
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                t.id as token_id,
                u.id as user_id,
                u.email,
                u.kind,
                u.active,
                to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
                coalesce(t.expires_at <= clock_timestamp(), false) as expired,
                t.revoked_at is not null as revoked,
                coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
                t.persona_ids,
                t.tool_ids,
                t.requires_if_match,
                granted.permission,
                granted.managed_groups,
                row (granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
              from
                token t
                cross join lateral (
                  select
                    *
                  from
                    user_account
                  where
                    id = t.user_id
                  offset
                    0
                ) u
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any (g.permissions) then 3
                          when 'manage:actions' = any (g.permissions) then 2
                          else 1
                        end
                      ),
                      1
                    ) as permission,
                    coalesce(
                      array_agg(
                        m.user_group_id
                        order by
                          m.user_group_id
                      ) filter (
                        where
                          m.is_manager
                      ),
                      '{}'
                    ) as managed
                  from
                    user_group_member m
                    join user_group g on g.id = m.user_group_id
                  where
                    m.user_id = u.id
                ) held
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any (u.permissions) then 3
                          when 'manage:actions' = any (u.permissions) then 2
                          else 1
                        end,
                        held.permission
                      ),
                      case
                        when t.scopes is null then 3
                        else case
                          when 'admin' = any (t.scopes) then 3
                          when 'manage:actions' = any (t.scopes) then 2
                          else 1
                        end
                      end
                    ) as permission,
                    case
                      when t.scopes is null
                      or case
                        when 'admin' = any (t.scopes) then 3
                        when 'manage:actions' = any (t.scopes) then 2
                        else 1
                      end >= 2 then held.managed
                      else '{}'
                    end as managed_groups
                ) granted
              where
                t.id = "input"."token"
              offset
                0
            ) caller
          where
            caller.active
            and not caller.revoked
            and not caller.expired
            and caller.standing = "input"."standing"
        )
      )
      and (
        "input"."idempotency_key" is null
        or pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
        and not exists (
          select
          from
            unchanged_update u
          where
            u.idempotency_key = decode("input"."idempotency_key", 'hex')
        )
      )
      and (
        select
          count(*)
        from
          (
            select
              s.id
            from
              document_set s
            where
              s.id = any ("input"."document_set_ids_attached")
              and (
                "input"."is_admin"
                or s.is_public
                or exists (
                  select
                  from
                    document_set_user m
                  where
                    m.document_set_id = s.id
                    and m.user_id = "input"."user"
                )
                or exists (
                  select
                  from
                    document_set_group m
                    join user_group_member g using (user_group_id)
                  where
                    m.document_set_id = s.id
                    and g.user_id = "input"."user"
                )
              )
          ) usable
      ) = cardinality("input"."document_set_ids_attached")
      and (
        select
          count(*)
        from
          (
            select
              t.id
            from
              tool t
            where
              t.id = any ("input"."tool_ids_attached")
              and t.enabled
              and (
                "input"."tools" is null
                or t.id = any ("input"."tools")
              )
              and (
                t.mcp_server_id is null
                or "input"."manages_all"
                or t.user_id = "input"."user"
                or exists (
                  select
                  from
                    mcp_server m
                  where
                    m.id = t.mcp_server_id
                    and m.owner_id = "input"."user"
                )
              )
          ) usable
      ) = cardinality("input"."tool_ids_attached")
      and (
        select
          coalesce(sum(coalesce(d.size_bytes, 0) + octet_length(t.description)), 0)
        from
          tool t
          left join tool_definition d on d.hash = t.definition_hash
        where
          t.id = any ("input"."tool_ids_attached")
      ) <= "input"."tool_bytes_left"
      and (
        select
          count(*)
        from
          (
            select
              u.id
            from
              user_account u
            where
              u.id = any ("input"."users_attached")
          ) usable
      ) = cardinality("input"."users_attached")
      and (
        select
          count(*)
        from
          (
            select
              g.id
            from
              user_group g
            where
              g.id = any ("input"."groups_attached")
          ) usable
      ) = cardinality("input"."groups_attached")
      and (
        select
          count(*)
        from
          (
            select
              l.id
            from
              label l
            where
              l.id = any ("input"."label_ids_attached")
          ) usable
      ) = cardinality("input"."label_ids_attached")
      and (
        select
          count(*)
        from
          (
            select
              f.id
            from
              user_file f
            where
              f.id = any ("input"."user_file_ids_attached")
              and (
                "input"."is_admin"
                or f.owner_id = "input"."user"
              )
          ) usable
      ) = cardinality("input"."user_file_ids_attached")
    for no key update of
      p skip locked
  ),
  changed as (
    update persona p
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then ("input"."changed_columns"::jsonb ->> 'name')::text
        else p."name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then ("input"."changed_columns"::jsonb ->> 'description')::text
        else p."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns"::jsonb ? 'num_chunks' then ("input"."changed_columns"::jsonb ->> 'num_chunks')::double precision
        else p."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns"::jsonb ? 'is_public' then ("input"."changed_columns"::jsonb ->> 'is_public')::boolean
        else p."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns"::jsonb ? 'recency_bias' then ("input"."changed_columns"::jsonb ->> 'recency_bias')::text
        else p."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns"::jsonb ? 'llm_filter_extraction' then ("input"."changed_columns"::jsonb ->> 'llm_filter_extraction')::boolean
        else p."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns"::jsonb ? 'llm_relevance_filter' then ("input"."changed_columns"::jsonb ->> 'llm_relevance_filter')::boolean
        else p."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'system_prompt' then ("input"."changed_columns"::jsonb ->> 'system_prompt')::text
        else p."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns"::jsonb ? 'task_prompt' then ("input"."changed_columns"::jsonb ->> 'task_prompt')::text
        else p."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns"::jsonb ? 'datetime_aware' then ("input"."changed_columns"::jsonb ->> 'datetime_aware')::boolean
        else p."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_provider_override' then ("input"."changed_columns"::jsonb ->> 'llm_model_provider_override')::text
        else p."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_version_override' then ("input"."changed_columns"::jsonb ->> 'llm_model_version_override')::text
        else p."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns"::jsonb ? 'starter_messages' then nullif("input"."changed_columns"::jsonb -> 'starter_messages', 'null')::json
        else p."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns"::jsonb ? 'uploaded_image_id' then ("input"."changed_columns"::jsonb ->> 'uploaded_image_id')::text
        else p."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns"::jsonb ? 'icon_name' then ("input"."changed_columns"::jsonb ->> 'icon_name')::text
        else p."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns"::jsonb ? 'search_start_date' then ("input"."changed_columns"::jsonb ->> 'search_start_date')::timestamptz
        else p."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns"::jsonb ? 'is_default_persona' then ("input"."changed_columns"::jsonb ->> 'is_default_persona')::boolean
        else p."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns"::jsonb ? 'display_priority' then ("input"."changed_columns"::jsonb ->> 'display_priority')::integer
        else p."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'replace_base_system_prompt' then ("input"."changed_columns"::jsonb ->> 'replace_base_system_prompt')::boolean
        else p."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns"::jsonb ? 'is_visible' then ("input"."changed_columns"::jsonb ->> 'is_visible')::boolean
        else p."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns"::jsonb ? 'builtin_persona' then ("input"."changed_columns"::jsonb ->> 'builtin_persona')::boolean
        else p."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns"::jsonb ? 'deleted' then ("input"."changed_columns"::jsonb ->> 'deleted')::boolean
        else p."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns"::jsonb ? 'owner_id' then ("input"."changed_columns"::jsonb ->> 'owner_id')::uuid
        else p."owner_id"
      end,
      version = p.version + 1,
      field_versions = p.field_versions || "input"."field_versions"::jsonb,
      audit_head = decode("input"."hash", 'hex'),
      audit_count = p.audit_count + 1
    from
      locked input
    where
      p.id = "input"."id"
    returning
      input.position,
      p.version,
      concat(
        '{"id":',
        coalesce(to_json(p.id), 'null'),
        ',"name":',
        coalesce(to_json(p.name), 'null'),
        ',"description":',
        coalesce(to_json(p.description), 'null'),
        ',"is_public":',
        coalesce(to_json(p.is_public), 'null'),
        ',"is_visible":',
        coalesce(to_json(p.is_visible), 'null'),
        ',"uploaded_image_id":',
        coalesce(to_json(p.uploaded_image_id), 'null'),
        ',"icon_name":',
        coalesce(to_json(p.icon_name), 'null'),
        ',"user_file_ids":',
        coalesce(to_json("input"."user_file_ids"), 'null'),
        ',"display_priority":',
        coalesce(to_json(p.display_priority), 'null'),
        ',"is_default_persona":',
        coalesce(to_json(p.is_default_persona), 'null'),
        ',"builtin_persona":',
        coalesce(to_json(p.builtin_persona), 'null'),
        ',"starter_messages":',
        coalesce(
          to_json(
            case
              when json_typeof(p.starter_messages) = 'array' then array_to_json(
                array(
                  select
                    json_row
                  from
                    (
                      select
                        m ->> 'name' as name,
                        m ->> 'message' as message
                      from
                        json_array_elements(p.starter_messages) m
                    ) json_row
                )
              )
            end
          ),
          'null'
        ),
        ',"llm_relevance_filter":',
        coalesce(to_json(p.llm_relevance_filter), 'null'),
        ',"llm_filter_extraction":',
        coalesce(to_json(p.llm_filter_extraction), 'null'),
        ',"tools":',
        '[' || coalesce(
          (
            select
              string_agg(
                concat(
                  '{"id":',
                  coalesce(to_json(t.id), 'null'),
                  ',"name":',
                  coalesce(to_json(t.name), 'null'),
                  ',"description":',
                  coalesce(to_json(t.description), 'null'),
                  ',"definition":',
                  chr(1) || coalesce(encode(t.definition_hash, 'hex'), '') || chr(1) || case
                    when t.definition_hash is null then 'null'
                    when t.definition_hash = any ("input"."cached_definitions") then ''
                    else (
                      select
                        content::text
                      from
                        tool_definition
                      where
                        hash = t.definition_hash
                    )
                  end || chr(1),
                  ',"display_name":',
                  coalesce(to_json(coalesce(t.display_name, t.name)), 'null'),
                  ',"in_code_tool_id":',
                  coalesce(to_json(t.in_code_tool_id), 'null'),
                  ',"custom_headers":',
                  coalesce(
                    to_json(
                      case
                        when (
                          t.in_code_tool_id is null
                          and t.mcp_server_id is null
                          and (
                            "input"."tools" is null
                            or t.id = any ("input"."tools")
                          )
                          and (
                            "input"."manages_all"
                            or (
                              cardinality("input"."managed_groups") > 0
                              and (
                                t.user_id = "input"."user"
                                or t.id = any (
                                  array(
                                    with
                                      asked as materialized (
                                        select
                                          t.id
                                        from
                                          unnest("input"."tool_ids") t (id)
                                        where
                                          case
                                            when exists (
                                              select
                                              from
                                                (
                                                  select
                                                    persona_id,
                                                    attached_by
                                                  from
                                                    persona_tool
                                                  where
                                                    tool_id = t.id
                                                    and tool_id between t.id and t.id
                                                  limit
                                                    20
                                                ) used
                                                join persona a on a.id = used.persona_id
                                                and not a.deleted
                                              where
                                                not exists (
                                                  select
                                                  from
                                                    persona_group s
                                                  where
                                                    s.persona_id = a.id
                                                    and s.user_group_id = any ("input"."managed_groups")
                                                )
                                            ) then false
                                            else not exists (
                                              select
                                              from
                                                persona_tool
                                              where
                                                tool_id = t.id
                                              offset
                                                1000
                                            )
                                          end
                                      ),
                                      inside as materialized (
                                        select
                                          a.id,
                                          not a.deleted as lives,
                                          a.owner_id
                                        from
                                          (
                                            select distinct
                                              used.persona_id
                                            from
                                              asked t
                                              cross join lateral (
                                                select
                                                  persona_id
                                                from
                                                  persona_tool
                                                where
                                                  tool_id = t.id
                                                  and tool_id between t.id and t.id
                                                offset
                                                  0
                                              ) used
                                          ) used
                                          cross join lateral (
                                            select
                                              id,
                                              deleted,
                                              owner_id
                                            from
                                              persona
                                            where
                                              id = used.persona_id
                                            offset
                                              0
                                          ) a
                                        where
                                          a.deleted
                                          or exists (
                                            select
                                            from
                                              persona_group s
                                            where
                                              s.persona_id = a.id
                                              and s.user_group_id = any ("input"."managed_groups")
                                          )
                                      ),
                                      of_others as materialized (
                                        select
                                          id
                                        from
                                          inside
                                        where
                                          lives
                                          and owner_id is distinct from "input"."user"
                                      )
                                    select
                                      t.id
                                    from
                                      asked t
                                    where
                                      not exists (
                                        select
                                        from
                                          persona_tool
                                        where
                                          tool_id = t.id
                                          and tool_id between t.id and t.id
                                          and persona_id not in (
                                            select
                                              id
                                            from
                                              inside
                                          )
                                      )
                                      and exists (
                                        select
                                        from
                                          persona_tool
                                        where
                                          tool_id = t.id
                                          and tool_id between t.id and t.id
                                          and case
                                            when attached_by is null then persona_id in (
                                              select
                                                id
                                              from
                                                of_others
                                            )
                                            else attached_by <> "input"."user"
                                            and persona_id in (
                                              select
                                                id
                                              from
                                                inside
                                              where
                                                lives
                                            )
                                          end
                                      )
                                  )
                                )
                              )
                            )
                          )
                        ) then array_to_json(
                          array(
                            select
                              json_row
                            from
                              (
                                select
                                  h.name as key,
                                  '****#' || left(encode(h.fingerprint, 'hex'), 12) as value
                                from
                                  tool_header h
                                where
                                  h.tool_id = t.id
                                order by
                                  h.position
                              ) json_row
                          )
                        )
                      end
                    ),
                    'null'
                  ),
                  ',"passthrough_auth":',
                  coalesce(to_json(t.passthrough_auth), 'null'),
                  ',"mcp_server_id":',
                  coalesce(to_json(t.mcp_server_id), 'null'),
                  ',"user_id":',
                  coalesce(to_json(t.user_id), 'null'),
                  ',"oauth_config_id":',
                  coalesce(to_json(t.oauth_config_id), 'null'),
                  ',"oauth_config_name":',
                  coalesce(to_json(o.name), 'null'),
                  ',"enabled":',
                  coalesce(to_json(t.enabled), 'null'),
                  ',"chat_selectable":',
                  coalesce(to_json(t.chat_selectable), 'null'),
                  ',"agent_creation_selectable":',
                  coalesce(to_json(t.agent_creation_selectable), 'null'),
                  ',"default_enabled":',
                  coalesce(to_json(t.default_enabled), 'null'),
                  '}'
                ),
                ','
                order by
                  t.id
              )
            from
              tool t
              left join oauth_config o on o.id = t.oauth_config_id
            where
              t.id = any ("input"."tool_ids")
          ),
          ''
        ) || ']',
        ',"labels":',
        coalesce(
          to_json(
            array_to_json(
              array(
                select
                  json_row
                from
                  (
                    select
                      l.id,
                      l.name
                    from
                      label l
                    where
                      l.id = any ("input"."label_ids")
                    order by
                      l.id
                  ) json_row
              )
            )
          ),
          'null'
        ),
        ',"owner":',
        coalesce(
          to_json(
            (
              select
                row_to_json(json_row)
              from
                (
                  select
                    u.id,
                    u.email
                  from
                    user_account u
                  where
                    u.id = p.owner_id
                ) json_row
            )
          ),
          'null'
        ),
        ',"users":',
        coalesce(
          to_json(
            array_to_json(
              array(
                select
                  json_row
                from
                  (
                    select
                      u.id,
                      u.email
                    from
                      user_account u
                    where
                      u.id = any ("input"."users")
                    order by
                      u.email collate "C"
                  ) json_row
              )
            )
          ),
          'null'
        ),
        ',"groups":',
        coalesce(to_json("input"."groups"), 'null'),
        ',"document_sets":',
        coalesce(
          to_json(
            array_to_json(
              array(
                select
                  json_row
                from
                  (
                    select
                      s.id,
                      s.name,
                      s.description,
                      array_to_json(
                        array(
                          select
                            json_row
                          from
                            (
                              select
                                c.id,
                                c.name,
                                c.source,
                                c.access_type
                              from
                                document_set_cc_pair m
                                join cc_pair c on c.id = m.cc_pair_id
                              where
                                m.document_set_id = s.id
                              order by
                                c.id
                            ) json_row
                        )
                      ) as cc_pair_summaries,
                      s.is_up_to_date,
                      s.is_public,
                      array(
                        select
                          user_id
                        from
                          document_set_user
                        where
                          document_set_id = s.id
                        order by
                          user_id
                      ) as users,
                      array(
                        select
                          user_group_id
                        from
                          document_set_group
                        where
                          document_set_id = s.id
                        order by
                          1
                      ) as groups,
                      array_to_json(
                        array(
                          select
                            json_row
                          from
                            (
                              select
                                f.id,
                                f.name,
                                f.source,
                                m.entities
                              from
                                document_set_federated_connector m
                                join federated_connector f on f.id = m.federated_connector_id
                              where
                                m.document_set_id = s.id
                              order by
                                f.id
                            ) json_row
                        )
                      ) as federated_connector_summaries
                    from
                      document_set s
                    where
                      s.id = any ("input"."document_set_ids")
                    order by
                      s.id
                  ) json_row
              )
            )
          ),
          'null'
        ),
        ',"llm_model_provider_override":',
        coalesce(to_json(p.llm_model_provider_override), 'null'),
        ',"llm_model_version_override":',
        coalesce(to_json(p.llm_model_version_override), 'null'),
        ',"num_chunks":',
        coalesce(to_json(p.num_chunks), 'null'),
        ',"system_prompt":',
        coalesce(to_json(p.system_prompt), 'null'),
        ',"replace_base_system_prompt":',
        coalesce(to_json(p.replace_base_system_prompt), 'null'),
        ',"task_prompt":',
        coalesce(to_json(p.task_prompt), 'null'),
        ',"datetime_aware":',
        coalesce(to_json(p.datetime_aware), 'null'),
        '}'
      ) as snapshot
  ),
  "document_set_ids_removed" as (
    delete from "persona_document_set" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."document_set_id" = any ("input"."document_set_ids_removed")
  ),
  "document_set_ids_put" as (
    insert into
      "persona_document_set" (persona_id, "document_set_id")
    select
      "input"."id",
      unnest("input"."document_set_ids_put")
    from
      changed
      join locked input using (position)
  ),
  "tool_ids_removed" as (
    delete from "persona_tool" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."tool_id" = any ("input"."tool_ids_removed")
  ),
  "tool_ids_put" as (
    insert into
      "persona_tool" (persona_id, "tool_id", attached_by)
    select
      "input"."id",
      unnest("input"."tool_ids_put"),
      "input"."user"
    from
      changed
      join locked input using (position)
  ),
  "users_removed" as (
    delete from "persona_user" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."user_id" = any ("input"."users_removed")
  ),
  "users_put" as (
    insert into
      "persona_user" (persona_id, "user_id", level)
    select
      "input"."id",
      share.id,
      share.level
    from
      changed
      join locked input using (position)
      cross join jsonb_to_recordset("input"."users_put"::jsonb) share (id uuid, level text)
    on conflict (persona_id, "user_id") do update
    set
      level = excluded.level
  ),
  "groups_removed" as (
    delete from "persona_group" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."user_group_id" = any ("input"."groups_removed")
  ),
  "groups_put" as (
    insert into
      "persona_group" (persona_id, "user_group_id", level)
    select
      "input"."id",
      share.id,
      share.level
    from
      changed
      join locked input using (position)
      cross join jsonb_to_recordset("input"."groups_put"::jsonb) share (id integer, level text)
    on conflict (persona_id, "user_group_id") do update
    set
      level = excluded.level
  ),
  "label_ids_removed" as (
    delete from "persona_label" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."label_id" = any ("input"."label_ids_removed")
  ),
  "label_ids_put" as (
    insert into
      "persona_label" (persona_id, "label_id")
    select
      "input"."id",
      unnest("input"."label_ids_put")
    from
      changed
      join locked input using (position)
  ),
  "user_file_ids_removed" as (
    delete from "persona_user_file" link using changed
    join locked input using (position)
    where
      link.persona_id = "input"."id"
      and link."user_file_id" = any ("input"."user_file_ids_removed")
  ),
  "user_file_ids_put" as (
    insert into
      "persona_user_file" (persona_id, "user_file_id")
    select
      "input"."id",
      unnest("input"."user_file_ids_put")
    from
      changed
      join locked input using (position)
  ),
  audited as (
    insert into
      audit (
        resource_kind,
        resource_id,
        version_before,
        version_after,
        at,
        actor_id,
        actor,
        token_id,
        request_id,
        client_address,
        command,
        salt,
        identity_hash,
        fields,
        difference,
        difference_bytes,
        difference_hash,
        definition_before,
        content_hash,
        previous_hash,
        hash,
        idempotency_key,
        request_fingerprint
      )
    select
      'persona',
      "input"."id",
      "input"."version",
      "input"."version" + 1,
      "input"."at",
      "input"."user",
      "input"."actor",
      "input"."token",
      "input"."request_id",
      "input"."client_address",
      "input"."command",
      "input"."salt",
      decode("input"."identity_hash", 'hex'),
      "input"."fields",
      "input"."difference"::json,
      "input"."difference_bytes",
      decode("input"."difference_hash", 'hex'),
      decode("input"."definition_before", 'hex'),
      decode("input"."content_hash", 'hex'),
      decode("input"."previous_hash", 'hex'),
      decode("input"."hash", 'hex'),
      decode("input"."idempotency_key", 'hex'),
      decode("input"."request_fingerprint", 'hex')
    from
      changed
      join locked input using (position)
  )
select
  *
from
  changed;

-- persona_write(none minimal)
with
  input as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "id" integer,
          "version" integer,
          "access" text,
          "token" integer,
          "standing" text,
          "idempotency_key" text,
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
          "at" timestamptz,
          "actor" text,
          "request_id" text,
          "client_address" text,
          "command" text,
          "salt" text,
          "identity_hash" text,
          "fields" text[],
          "difference" text,
          "difference_bytes" integer,
          "difference_hash" text,
          "definition_before" text,
          "content_hash" text,
          "previous_hash" text,
          "request_fingerprint" text
        )
      ) with ordinality listed
    where
      ordinality = ordinality + 0
  ),
  locked as materialized (
    select
      input.*
    from
      input
      join persona p on p.id = "input"."id"
      and p.version = "input"."version"
    where
      (
        case
          when p.owner_id = "input"."user" then 'owner'
          else coalesce(
            (
              select
                case
                  when bool_or(share.level = 'editor') then 'editor'
                  else 'viewer'
                end
              from
                (
                  select
                    level
                  from
                    persona_user
                  where
                    persona_id = p.id
                    and user_id = "input"."user"
                  union all
                  select
                    s.level
                  from
                    persona_group s
                    join user_group_member m on m.user_group_id = s.user_group_id
                    and m.user_id = "input"."user"
                  where
                    s.persona_id = p.id
                ) share
              having
                count(*) > 0
            ),
            case
              when p.is_public then 'viewer'
              else 'none'
            end
          )
        end
      ) = "input"."access"
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                t.id as token_id,
                u.id as user_id,
                u.email,
                u.kind,
                u.active,
                to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
                coalesce(t.expires_at <= clock_timestamp(), false) as expired,
                t.revoked_at is not null as revoked,
                coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
                t.persona_ids,
                t.tool_ids,
                t.requires_if_match,
                granted.permission,
                granted.managed_groups,
                row (granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
              from
                token t
                cross join lateral (
                  select
                    *
                  from
                    user_account
                  where
                    id = t.user_id
                  offset
                    0
                ) u
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any (g.permissions) then 3
                          when 'manage:actions' = any (g.permissions) then 2
                          else 1
                        end
                      ),
                      1
                    ) as permission,
                    coalesce(
                      array_agg(
                        m.user_group_id
                        order by
                          m.user_group_id
                      ) filter (
                        where
                          m.is_manager
                      ),
                      '{}'
                    ) as managed
                  from
                    user_group_member m
                    join user_group g on g.id = m.user_group_id
                  where
                    m.user_id = u.id
                ) held
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any (u.permissions) then 3
                          when 'manage:actions' = any (u.permissions) then 2
                          else 1
                        end,
                        held.permission
                      ),
                      case
                        when t.scopes is null then 3
                        else case
                          when 'admin' = any (t.scopes) then 3
                          when 'manage:actions' = any (t.scopes) then 2
                          else 1
                        end
                      end
                    ) as permission,
                    case
                      when t.scopes is null
                      or case
                        when 'admin' = any (t.scopes) then 3
                        when 'manage:actions' = any (t.scopes) then 2
                        else 1
                      end >= 2 then held.managed
                      else '{}'
                    end as managed_groups
                ) granted
              where
                t.id = "input"."token"
              offset
                0
            ) caller
          where
            caller.active
            and not caller.revoked
            and not caller.expired
            and caller.standing = "input"."standing"
        )
      )
      and (
        "input"."idempotency_key" is null
        or pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
        and not exists (
          select
          from
            unchanged_update u
          where
            u.idempotency_key = decode("input"."idempotency_key", 'hex')
        )
      )
    for no key update of
      p skip locked
  ),
  changed as (
    update persona p
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then ("input"."changed_columns"::jsonb ->> 'name')::text
        else p."name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then ("input"."changed_columns"::jsonb ->> 'description')::text
        else p."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns"::jsonb ? 'num_chunks' then ("input"."changed_columns"::jsonb ->> 'num_chunks')::double precision
        else p."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns"::jsonb ? 'is_public' then ("input"."changed_columns"::jsonb ->> 'is_public')::boolean
        else p."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns"::jsonb ? 'recency_bias' then ("input"."changed_columns"::jsonb ->> 'recency_bias')::text
        else p."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns"::jsonb ? 'llm_filter_extraction' then ("input"."changed_columns"::jsonb ->> 'llm_filter_extraction')::boolean
        else p."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns"::jsonb ? 'llm_relevance_filter' then ("input"."changed_columns"::jsonb ->> 'llm_relevance_filter')::boolean
        else p."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'system_prompt' then ("input"."changed_columns"::jsonb ->> 'system_prompt')::text
        else p."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns"::jsonb ? 'task_prompt' then ("input"."changed_columns"::jsonb ->> 'task_prompt')::text
        else p."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns"::jsonb ? 'datetime_aware' then ("input"."changed_columns"::jsonb ->> 'datetime_aware')::boolean
        else p."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_provider_override' then ("input"."changed_columns"::jsonb ->> 'llm_model_provider_override')::text
        else p."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_version_override' then ("input"."changed_columns"::jsonb ->> 'llm_model_version_override')::text
        else p."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns"::jsonb ? 'starter_messages' then nullif("input"."changed_columns"::jsonb -> 'starter_messages', 'null')::json
        else p."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns"::jsonb ? 'uploaded_image_id' then ("input"."changed_columns"::jsonb ->> 'uploaded_image_id')::text
        else p."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns"::jsonb ? 'icon_name' then ("input"."changed_columns"::jsonb ->> 'icon_name')::text
        else p."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns"::jsonb ? 'search_start_date' then ("input"."changed_columns"::jsonb ->> 'search_start_date')::timestamptz
        else p."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns"::jsonb ? 'is_default_persona' then ("input"."changed_columns"::jsonb ->> 'is_default_persona')::boolean
        else p."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns"::jsonb ? 'display_priority' then ("input"."changed_columns"::jsonb ->> 'display_priority')::integer
        else p."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'replace_base_system_prompt' then ("input"."changed_columns"::jsonb ->> 'replace_base_system_prompt')::boolean
        else p."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns"::jsonb ? 'is_visible' then ("input"."changed_columns"::jsonb ->> 'is_visible')::boolean
        else p."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns"::jsonb ? 'builtin_persona' then ("input"."changed_columns"::jsonb ->> 'builtin_persona')::boolean
        else p."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns"::jsonb ? 'deleted' then ("input"."changed_columns"::jsonb ->> 'deleted')::boolean
        else p."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns"::jsonb ? 'owner_id' then ("input"."changed_columns"::jsonb ->> 'owner_id')::uuid
        else p."owner_id"
      end,
      version = p.version + 1,
      field_versions = p.field_versions || "input"."field_versions"::jsonb,
      audit_head = decode("input"."hash", 'hex'),
      audit_count = p.audit_count + 1
    from
      locked input
    where
      p.id = "input"."id"
    returning
      input.position,
      p.version
  ),
  audited as (
    insert into
      audit (
        resource_kind,
        resource_id,
        version_before,
        version_after,
        at,
        actor_id,
        actor,
        token_id,
        request_id,
        client_address,
        command,
        salt,
        identity_hash,
        fields,
        difference,
        difference_bytes,
        difference_hash,
        definition_before,
        content_hash,
        previous_hash,
        hash,
        idempotency_key,
        request_fingerprint
      )
    select
      'persona',
      "input"."id",
      "input"."version",
      "input"."version" + 1,
      "input"."at",
      "input"."user",
      "input"."actor",
      "input"."token",
      "input"."request_id",
      "input"."client_address",
      "input"."command",
      "input"."salt",
      decode("input"."identity_hash", 'hex'),
      "input"."fields",
      "input"."difference"::json,
      "input"."difference_bytes",
      decode("input"."difference_hash", 'hex'),
      decode("input"."definition_before", 'hex'),
      decode("input"."content_hash", 'hex'),
      decode("input"."previous_hash", 'hex'),
      decode("input"."hash", 'hex'),
      decode("input"."idempotency_key", 'hex'),
      decode("input"."request_fingerprint", 'hex')
    from
      changed
      join locked input using (position)
  )
select
  *
from
  changed;

-- tool_write(single definition+headers)
with
  input as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "standing" text,
          "oauth_config_id" integer,
          "definition_hash" text,
          "definition_bytes" integer,
          "shown_headers" text,
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
          "headers" text,
          "at" timestamptz,
          "actor" text,
          "request_id" text,
          "client_address" text,
          "command" text,
          "salt" text,
          "identity_hash" text,
          "fields" text[],
          "difference" text,
          "difference_bytes" integer,
          "difference_hash" text,
          "definition_before" text,
          "content_hash" text,
          "previous_hash" text,
          "request_fingerprint" text
        )
      ) with ordinality listed
    where
      ordinality = ordinality + 0
  ),
  locked as materialized (
    select
      input.*
    from
      input
      join tool t on t.id = "input"."id"
      and t.version = "input"."version"
    where
      t.secrets_generation = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
        and not exists (
          select
          from
            unchanged_update u
          where
            u.idempotency_key = decode("input"."idempotency_key", 'hex')
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                t.id as token_id,
                u.id as user_id,
                u.email,
                u.kind,
                u.active,
                to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
                coalesce(t.expires_at <= clock_timestamp(), false) as expired,
                t.revoked_at is not null as revoked,
                coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
                t.persona_ids,
                t.tool_ids,
                t.requires_if_match,
                granted.permission,
                granted.managed_groups,
                row (granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
              from
                token t
                cross join lateral (
                  select
                    *
                  from
                    user_account
                  where
                    id = t.user_id
                  offset
                    0
                ) u
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any (g.permissions) then 3
                          when 'manage:actions' = any (g.permissions) then 2
                          else 1
                        end
                      ),
                      1
                    ) as permission,
                    coalesce(
                      array_agg(
                        m.user_group_id
                        order by
                          m.user_group_id
                      ) filter (
                        where
                          m.is_manager
                      ),
                      '{}'
                    ) as managed
                  from
                    user_group_member m
                    join user_group g on g.id = m.user_group_id
                  where
                    m.user_id = u.id
                ) held
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any (u.permissions) then 3
                          when 'manage:actions' = any (u.permissions) then 2
                          else 1
                        end,
                        held.permission
                      ),
                      case
                        when t.scopes is null then 3
                        else case
                          when 'admin' = any (t.scopes) then 3
                          when 'manage:actions' = any (t.scopes) then 2
                          else 1
                        end
                      end
                    ) as permission,
                    case
                      when t.scopes is null
                      or case
                        when 'admin' = any (t.scopes) then 3
                        when 'manage:actions' = any (t.scopes) then 2
                        else 1
                      end >= 2 then held.managed
                      else '{}'
                    end as managed_groups
                ) granted
              where
                t.id = "input"."token"
              offset
                0
            ) caller
          where
            caller.active
            and not caller.revoked
            and not caller.expired
            and caller.standing = "input"."standing"
        )
      )
      and (
        "input"."user" is null
        or (
          t.in_code_tool_id is null
          and t.mcp_server_id is null
          and (
            "input"."tools" is null
            or t.id = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                t.user_id = "input"."user"
                or t.id = any (
                  array(
                    with
                      asked as materialized (
                        select
                          t.id
                        from
                          unnest(array[t.id]) t (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    persona_id,
                                    attached_by
                                  from
                                    persona_tool
                                  where
                                    tool_id = t.id
                                    and tool_id between t.id and t.id
                                  limit
                                    20
                                ) used
                                join persona a on a.id = used.persona_id
                                and not a.deleted
                              where
                                not exists (
                                  select
                                  from
                                    persona_group s
                                  where
                                    s.persona_id = a.id
                                    and s.user_group_id = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                persona_tool
                              where
                                tool_id = t.id
                              offset
                                1000
                            )
                          end
                      ),
                      inside as materialized (
                        select
                          a.id,
                          not a.deleted as lives,
                          a.owner_id
                        from
                          (
                            select distinct
                              used.persona_id
                            from
                              asked t
                              cross join lateral (
                                select
                                  persona_id
                                from
                                  persona_tool
                                where
                                  tool_id = t.id
                                  and tool_id between t.id and t.id
                                offset
                                  0
                              ) used
                          ) used
                          cross join lateral (
                            select
                              id,
                              deleted,
                              owner_id
                            from
                              persona
                            where
                              id = used.persona_id
                            offset
                              0
                          ) a
                        where
                          a.deleted
                          or exists (
                            select
                            from
                              persona_group s
                            where
                              s.persona_id = a.id
                              and s.user_group_id = any ("input"."managed_groups")
                          )
                      ),
                      of_others as materialized (
                        select
                          id
                        from
                          inside
                        where
                          lives
                          and owner_id is distinct from "input"."user"
                      )
                    select
                      t.id
                    from
                      asked t
                    where
                      not exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and persona_id not in (
                            select
                              id
                            from
                              inside
                          )
                      )
                      and exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and case
                            when attached_by is null then persona_id in (
                              select
                                id
                              from
                                of_others
                            )
                            else attached_by <> "input"."user"
                            and persona_id in (
                              select
                                id
                              from
                                inside
                              where
                                lives
                            )
                          end
                      )
                  )
                )
              )
            )
          )
        )
      )
      and (
        "input"."oauth_config_id" is null
        or exists (
          select
          from
            oauth_config o
          where
            o.id = "input"."oauth_config_id"
            and (
              o.id = t.oauth_config_id
              or (
                "input"."manages_all"
                or o.owner_id = "input"."user"
              )
            )
        )
      )
    for no key update of
      t skip locked
  ),
  stored_definitions as (
    insert into
      tool_definition (hash, content, size_bytes)
    select
      decode("input"."definition_hash", 'hex'),
      $2::text::json,
      "input"."definition_bytes"
    from
      locked input
    where
      not exists (
        select
        from
          tool_definition
        where
          hash = decode("input"."definition_hash", 'hex')
      )
    on conflict (hash) do nothing
  ),
  changed as (
    update tool t
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then ("input"."changed_columns"::jsonb ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then ("input"."changed_columns"::jsonb ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then ("input"."changed_columns"::jsonb ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then ("input"."changed_columns"::jsonb ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then ("input"."changed_columns"::jsonb ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then ("input"."changed_columns"::jsonb ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then ("input"."changed_columns"::jsonb ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then ("input"."changed_columns"::jsonb ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then ("input"."changed_columns"::jsonb ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then ("input"."changed_columns"::jsonb ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then ("input"."changed_columns"::jsonb ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then ("input"."changed_columns"::jsonb ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions"::jsonb,
      audit_head = decode("input"."hash", 'hex'),
      audit_count = t.audit_count + 1
    from
      locked input
    where
      t.id = "input"."id"
    returning
      input.position,
      t.version,
      t.id as id,
      t.name as name,
      t.description as description,
      null::text as definition,
      coalesce(t.display_name, t.name) as display_name,
      t.in_code_tool_id as in_code_tool_id,
      "input"."shown_headers"::json as custom_headers,
      t.passthrough_auth as passthrough_auth,
      t.mcp_server_id as mcp_server_id,
      t.user_id as user_id,
      t.oauth_config_id as oauth_config_id,
      (
        select
          o.name
        from
          oauth_config o
        where
          o.id = t.oauth_config_id
      ) as oauth_config_name,
      t.enabled as enabled,
      t.chat_selectable as chat_selectable,
      t.agent_creation_selectable as agent_creation_selectable,
      t.default_enabled as default_enabled
  ),
  new_headers as (
    select
      "input"."id" as tool_id,
      (g.position - 1)::integer as position,
      g.value ->> 'name' as name,
      g.value ->> 'fingerprint' as fingerprint,
      (g.value ->> 'kept')::integer as kept,
      g.value ->> 'key_id' as key_id,
      g.value ->> 'nonce' as nonce,
      g.value ->> 'ciphertext' as ciphertext
    from
      changed
      join locked input using (position)
      cross join json_array_elements("input"."headers"::json) with ordinality g (value, position)
  ),
  removed_headers as (
    delete from tool_header h using changed
    join locked input using (position)
    where
      h.tool_id = "input"."id"
      and h.position >= json_array_length("input"."headers"::json)
  ),
  put_headers as (
    insert into
      tool_header (tool_id, position, name, key_id, nonce, ciphertext, fingerprint)
    select
      g.tool_id,
      g.position,
      g.name,
      coalesce(g.key_id, kept.key_id),
      coalesce(decode(g.nonce, 'base64'), kept.nonce),
      coalesce(decode(g.ciphertext, 'base64'), kept.ciphertext),
      decode(g.fingerprint, 'hex')
    from
      new_headers g
      left join tool_header kept on kept.tool_id = g.tool_id
      and kept.position = g.kept
    on conflict (tool_id, position) do update
    set
      name = excluded.name,
      key_id = excluded.key_id,
      nonce = excluded.nonce,
      ciphertext = excluded.ciphertext,
      fingerprint = excluded.fingerprint
  ),
  audited as (
    insert into
      audit (
        resource_kind,
        resource_id,
        version_before,
        version_after,
        at,
        actor_id,
        actor,
        token_id,
        request_id,
        client_address,
        command,
        salt,
        identity_hash,
        fields,
        difference,
        difference_bytes,
        difference_hash,
        definition_before,
        content_hash,
        previous_hash,
        hash,
        idempotency_key,
        request_fingerprint
      )
    select
      'tool',
      "input"."id",
      "input"."version",
      "input"."version" + 1,
      "input"."at",
      "input"."user",
      "input"."actor",
      "input"."token",
      "input"."request_id",
      "input"."client_address",
      "input"."command",
      "input"."salt",
      decode("input"."identity_hash", 'hex'),
      "input"."fields",
      "input"."difference"::json,
      "input"."difference_bytes",
      decode("input"."difference_hash", 'hex'),
      decode("input"."definition_before", 'hex'),
      decode("input"."content_hash", 'hex'),
      decode("input"."previous_hash", 'hex'),
      decode("input"."hash", 'hex'),
      decode("input"."idempotency_key", 'hex'),
      decode("input"."request_fingerprint", 'hex')
    from
      changed
      join locked input using (position)
  )
select
  *
from
  changed;

-- tool_write(shared definition+ minimal)
with
  input as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "standing" text,
          "oauth_config_id" integer,
          "definition_hash" text,
          "definition_text" text,
          "definition_bytes" integer,
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
          "at" timestamptz,
          "actor" text,
          "request_id" text,
          "client_address" text,
          "command" text,
          "salt" text,
          "identity_hash" text,
          "fields" text[],
          "difference" text,
          "difference_bytes" integer,
          "difference_hash" text,
          "definition_before" text,
          "content_hash" text,
          "previous_hash" text,
          "request_fingerprint" text
        )
      ) with ordinality listed
    where
      ordinality = ordinality + 0
  ),
  locked as materialized (
    select
      input.*
    from
      input
      join tool t on t.id = "input"."id"
      and t.version = "input"."version"
    where
      t.secrets_generation = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
        and not exists (
          select
          from
            unchanged_update u
          where
            u.idempotency_key = decode("input"."idempotency_key", 'hex')
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                t.id as token_id,
                u.id as user_id,
                u.email,
                u.kind,
                u.active,
                to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
                coalesce(t.expires_at <= clock_timestamp(), false) as expired,
                t.revoked_at is not null as revoked,
                coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
                t.persona_ids,
                t.tool_ids,
                t.requires_if_match,
                granted.permission,
                granted.managed_groups,
                row (granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
              from
                token t
                cross join lateral (
                  select
                    *
                  from
                    user_account
                  where
                    id = t.user_id
                  offset
                    0
                ) u
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any (g.permissions) then 3
                          when 'manage:actions' = any (g.permissions) then 2
                          else 1
                        end
                      ),
                      1
                    ) as permission,
                    coalesce(
                      array_agg(
                        m.user_group_id
                        order by
                          m.user_group_id
                      ) filter (
                        where
                          m.is_manager
                      ),
                      '{}'
                    ) as managed
                  from
                    user_group_member m
                    join user_group g on g.id = m.user_group_id
                  where
                    m.user_id = u.id
                ) held
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any (u.permissions) then 3
                          when 'manage:actions' = any (u.permissions) then 2
                          else 1
                        end,
                        held.permission
                      ),
                      case
                        when t.scopes is null then 3
                        else case
                          when 'admin' = any (t.scopes) then 3
                          when 'manage:actions' = any (t.scopes) then 2
                          else 1
                        end
                      end
                    ) as permission,
                    case
                      when t.scopes is null
                      or case
                        when 'admin' = any (t.scopes) then 3
                        when 'manage:actions' = any (t.scopes) then 2
                        else 1
                      end >= 2 then held.managed
                      else '{}'
                    end as managed_groups
                ) granted
              where
                t.id = "input"."token"
              offset
                0
            ) caller
          where
            caller.active
            and not caller.revoked
            and not caller.expired
            and caller.standing = "input"."standing"
        )
      )
      and (
        "input"."user" is null
        or (
          t.in_code_tool_id is null
          and t.mcp_server_id is null
          and (
            "input"."tools" is null
            or t.id = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                t.user_id = "input"."user"
                or t.id = any (
                  array(
                    with
                      asked as materialized (
                        select
                          t.id
                        from
                          unnest(array[t.id]) t (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    persona_id,
                                    attached_by
                                  from
                                    persona_tool
                                  where
                                    tool_id = t.id
                                    and tool_id between t.id and t.id
                                  limit
                                    20
                                ) used
                                join persona a on a.id = used.persona_id
                                and not a.deleted
                              where
                                not exists (
                                  select
                                  from
                                    persona_group s
                                  where
                                    s.persona_id = a.id
                                    and s.user_group_id = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                persona_tool
                              where
                                tool_id = t.id
                              offset
                                1000
                            )
                          end
                      ),
                      inside as materialized (
                        select
                          a.id,
                          not a.deleted as lives,
                          a.owner_id
                        from
                          (
                            select distinct
                              used.persona_id
                            from
                              asked t
                              cross join lateral (
                                select
                                  persona_id
                                from
                                  persona_tool
                                where
                                  tool_id = t.id
                                  and tool_id between t.id and t.id
                                offset
                                  0
                              ) used
                          ) used
                          cross join lateral (
                            select
                              id,
                              deleted,
                              owner_id
                            from
                              persona
                            where
                              id = used.persona_id
                            offset
                              0
                          ) a
                        where
                          a.deleted
                          or exists (
                            select
                            from
                              persona_group s
                            where
                              s.persona_id = a.id
                              and s.user_group_id = any ("input"."managed_groups")
                          )
                      ),
                      of_others as materialized (
                        select
                          id
                        from
                          inside
                        where
                          lives
                          and owner_id is distinct from "input"."user"
                      )
                    select
                      t.id
                    from
                      asked t
                    where
                      not exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and persona_id not in (
                            select
                              id
                            from
                              inside
                          )
                      )
                      and exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and case
                            when attached_by is null then persona_id in (
                              select
                                id
                              from
                                of_others
                            )
                            else attached_by <> "input"."user"
                            and persona_id in (
                              select
                                id
                              from
                                inside
                              where
                                lives
                            )
                          end
                      )
                  )
                )
              )
            )
          )
        )
      )
      and (
        "input"."oauth_config_id" is null
        or exists (
          select
          from
            oauth_config o
          where
            o.id = "input"."oauth_config_id"
            and (
              o.id = t.oauth_config_id
              or (
                "input"."manages_all"
                or o.owner_id = "input"."user"
              )
            )
        )
      )
      and exists (
        select
        from
          tool_definition
        where
          hash = decode("input"."definition_hash", 'hex')
      )
    for no key update of
      t skip locked
  ),
  stored_definitions as (
    insert into
      tool_definition (hash, content, size_bytes)
    select
      decode("input"."definition_hash", 'hex'),
      "input"."definition_text"::json,
      "input"."definition_bytes"
    from
      locked input
    where
      not exists (
        select
        from
          tool_definition
        where
          hash = decode("input"."definition_hash", 'hex')
      )
    on conflict (hash) do nothing
  ),
  changed as (
    update tool t
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then ("input"."changed_columns"::jsonb ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then ("input"."changed_columns"::jsonb ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then ("input"."changed_columns"::jsonb ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then ("input"."changed_columns"::jsonb ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then ("input"."changed_columns"::jsonb ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then ("input"."changed_columns"::jsonb ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then ("input"."changed_columns"::jsonb ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then ("input"."changed_columns"::jsonb ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then ("input"."changed_columns"::jsonb ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then ("input"."changed_columns"::jsonb ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then ("input"."changed_columns"::jsonb ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then ("input"."changed_columns"::jsonb ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions"::jsonb,
      audit_head = decode("input"."hash", 'hex'),
      audit_count = t.audit_count + 1
    from
      locked input
    where
      t.id = "input"."id"
    returning
      input.position,
      t.version
  ),
  audited as (
    insert into
      audit (
        resource_kind,
        resource_id,
        version_before,
        version_after,
        at,
        actor_id,
        actor,
        token_id,
        request_id,
        client_address,
        command,
        salt,
        identity_hash,
        fields,
        difference,
        difference_bytes,
        difference_hash,
        definition_before,
        content_hash,
        previous_hash,
        hash,
        idempotency_key,
        request_fingerprint
      )
    select
      'tool',
      "input"."id",
      "input"."version",
      "input"."version" + 1,
      "input"."at",
      "input"."user",
      "input"."actor",
      "input"."token",
      "input"."request_id",
      "input"."client_address",
      "input"."command",
      "input"."salt",
      decode("input"."identity_hash", 'hex'),
      "input"."fields",
      "input"."difference"::json,
      "input"."difference_bytes",
      decode("input"."difference_hash", 'hex'),
      decode("input"."definition_before", 'hex'),
      decode("input"."content_hash", 'hex'),
      decode("input"."previous_hash", 'hex'),
      decode("input"."hash", 'hex'),
      decode("input"."idempotency_key", 'hex'),
      decode("input"."request_fingerprint", 'hex')
    from
      changed
      join locked input using (position)
  )
select
  *
from
  changed;

-- tool_write(+ minimal)
with
  input as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "standing" text,
          "oauth_config_id" integer,
          "cached_definitions" bytea[],
          "changed_columns" text,
          "definition_hash" text,
          "field_versions" text,
          "hash" text,
          "at" timestamptz,
          "actor" text,
          "request_id" text,
          "client_address" text,
          "command" text,
          "salt" text,
          "identity_hash" text,
          "fields" text[],
          "difference" text,
          "difference_bytes" integer,
          "difference_hash" text,
          "definition_before" text,
          "content_hash" text,
          "previous_hash" text,
          "request_fingerprint" text
        )
      ) with ordinality listed
    where
      ordinality = ordinality + 0
  ),
  locked as materialized (
    select
      input.*
    from
      input
      join tool t on t.id = "input"."id"
      and t.version = "input"."version"
    where
      t.secrets_generation = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
        and not exists (
          select
          from
            unchanged_update u
          where
            u.idempotency_key = decode("input"."idempotency_key", 'hex')
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                t.id as token_id,
                u.id as user_id,
                u.email,
                u.kind,
                u.active,
                to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
                coalesce(t.expires_at <= clock_timestamp(), false) as expired,
                t.revoked_at is not null as revoked,
                coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
                t.persona_ids,
                t.tool_ids,
                t.requires_if_match,
                granted.permission,
                granted.managed_groups,
                row (granted.permission, granted.managed_groups, t.persona_ids, t.tool_ids, t.requires_if_match)::text as standing
              from
                token t
                cross join lateral (
                  select
                    *
                  from
                    user_account
                  where
                    id = t.user_id
                  offset
                    0
                ) u
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any (g.permissions) then 3
                          when 'manage:actions' = any (g.permissions) then 2
                          else 1
                        end
                      ),
                      1
                    ) as permission,
                    coalesce(
                      array_agg(
                        m.user_group_id
                        order by
                          m.user_group_id
                      ) filter (
                        where
                          m.is_manager
                      ),
                      '{}'
                    ) as managed
                  from
                    user_group_member m
                    join user_group g on g.id = m.user_group_id
                  where
                    m.user_id = u.id
                ) held
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any (u.permissions) then 3
                          when 'manage:actions' = any (u.permissions) then 2
                          else 1
                        end,
                        held.permission
                      ),
                      case
                        when t.scopes is null then 3
                        else case
                          when 'admin' = any (t.scopes) then 3
                          when 'manage:actions' = any (t.scopes) then 2
                          else 1
                        end
                      end
                    ) as permission,
                    case
                      when t.scopes is null
                      or case
                        when 'admin' = any (t.scopes) then 3
                        when 'manage:actions' = any (t.scopes) then 2
                        else 1
                      end >= 2 then held.managed
                      else '{}'
                    end as managed_groups
                ) granted
              where
                t.id = "input"."token"
              offset
                0
            ) caller
          where
            caller.active
            and not caller.revoked
            and not caller.expired
            and caller.standing = "input"."standing"
        )
      )
      and (
        "input"."user" is null
        or (
          t.in_code_tool_id is null
          and t.mcp_server_id is null
          and (
            "input"."tools" is null
            or t.id = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                t.user_id = "input"."user"
                or t.id = any (
                  array(
                    with
                      asked as materialized (
                        select
                          t.id
                        from
                          unnest(array[t.id]) t (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    persona_id,
                                    attached_by
                                  from
                                    persona_tool
                                  where
                                    tool_id = t.id
                                    and tool_id between t.id and t.id
                                  limit
                                    20
                                ) used
                                join persona a on a.id = used.persona_id
                                and not a.deleted
                              where
                                not exists (
                                  select
                                  from
                                    persona_group s
                                  where
                                    s.persona_id = a.id
                                    and s.user_group_id = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                persona_tool
                              where
                                tool_id = t.id
                              offset
                                1000
                            )
                          end
                      ),
                      inside as materialized (
                        select
                          a.id,
                          not a.deleted as lives,
                          a.owner_id
                        from
                          (
                            select distinct
                              used.persona_id
                            from
                              asked t
                              cross join lateral (
                                select
                                  persona_id
                                from
                                  persona_tool
                                where
                                  tool_id = t.id
                                  and tool_id between t.id and t.id
                                offset
                                  0
                              ) used
                          ) used
                          cross join lateral (
                            select
                              id,
                              deleted,
                              owner_id
                            from
                              persona
                            where
                              id = used.persona_id
                            offset
                              0
                          ) a
                        where
                          a.deleted
                          or exists (
                            select
                            from
                              persona_group s
                            where
                              s.persona_id = a.id
                              and s.user_group_id = any ("input"."managed_groups")
                          )
                      ),
                      of_others as materialized (
                        select
                          id
                        from
                          inside
                        where
                          lives
                          and owner_id is distinct from "input"."user"
                      )
                    select
                      t.id
                    from
                      asked t
                    where
                      not exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and persona_id not in (
                            select
                              id
                            from
                              inside
                          )
                      )
                      and exists (
                        select
                        from
                          persona_tool
                        where
                          tool_id = t.id
                          and tool_id between t.id and t.id
                          and case
                            when attached_by is null then persona_id in (
                              select
                                id
                              from
                                of_others
                            )
                            else attached_by <> "input"."user"
                            and persona_id in (
                              select
                                id
                              from
                                inside
                              where
                                lives
                            )
                          end
                      )
                  )
                )
              )
            )
          )
        )
      )
      and (
        "input"."oauth_config_id" is null
        or exists (
          select
          from
            oauth_config o
          where
            o.id = "input"."oauth_config_id"
            and (
              o.id = t.oauth_config_id
              or (
                "input"."manages_all"
                or o.owner_id = "input"."user"
              )
            )
        )
      )
    for no key update of
      t skip locked
  ),
  changed as (
    update tool t
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then ("input"."changed_columns"::jsonb ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then ("input"."changed_columns"::jsonb ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then ("input"."changed_columns"::jsonb ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then ("input"."changed_columns"::jsonb ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then ("input"."changed_columns"::jsonb ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then ("input"."changed_columns"::jsonb ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then ("input"."changed_columns"::jsonb ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then ("input"."changed_columns"::jsonb ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then ("input"."changed_columns"::jsonb ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then ("input"."changed_columns"::jsonb ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then ("input"."changed_columns"::jsonb ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then ("input"."changed_columns"::jsonb ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions"::jsonb,
      audit_head = decode("input"."hash", 'hex'),
      audit_count = t.audit_count + 1
    from
      locked input
    where
      t.id = "input"."id"
    returning
      input.position,
      t.version
  ),
  audited as (
    insert into
      audit (
        resource_kind,
        resource_id,
        version_before,
        version_after,
        at,
        actor_id,
        actor,
        token_id,
        request_id,
        client_address,
        command,
        salt,
        identity_hash,
        fields,
        difference,
        difference_bytes,
        difference_hash,
        definition_before,
        content_hash,
        previous_hash,
        hash,
        idempotency_key,
        request_fingerprint
      )
    select
      'tool',
      "input"."id",
      "input"."version",
      "input"."version" + 1,
      "input"."at",
      "input"."user",
      "input"."actor",
      "input"."token",
      "input"."request_id",
      "input"."client_address",
      "input"."command",
      "input"."salt",
      decode("input"."identity_hash", 'hex'),
      "input"."fields",
      "input"."difference"::json,
      "input"."difference_bytes",
      decode("input"."difference_hash", 'hex'),
      decode("input"."definition_before", 'hex'),
      decode("input"."content_hash", 'hex'),
      decode("input"."previous_hash", 'hex'),
      decode("input"."hash", 'hex'),
      decode("input"."idempotency_key", 'hex'),
      decode("input"."request_fingerprint", 'hex')
    from
      changed
      join locked input using (position)
  )
select
  *
from
  changed;
