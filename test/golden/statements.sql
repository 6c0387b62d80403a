-- persona_write(all)
with
  input as materialized (
    select
      position::integer,
      ($1::text[]) [position]::uuid as "user",
      ($2::text[]) [position]::boolean as "manages_all",
      ($3::text[]) [position]::integer[] as "managed_groups",
      ($4::text[]) [position]::integer[] as "tools",
      ($5::text[]) [position]::boolean as "is_admin",
      ($6::text[]) [position]::integer[] as "document_set_ids_attached",
      ($7::text[]) [position]::integer[] as "tool_ids_attached",
      ($8::text[]) [position]::integer as "tool_bytes_left",
      ($9::text[]) [position]::uuid[] as "users_attached",
      ($10::text[]) [position]::integer[] as "groups_attached",
      ($11::text[]) [position]::integer[] as "label_ids_attached",
      ($12::text[]) [position]::text[] as "user_file_ids_attached",
      ($13::text[]) [position]::integer as "id",
      ($14::text[]) [position]::integer as "version",
      ($15::text[]) [position]::text as "access",
      ($16::text[]) [position]::integer as "token",
      ($17::text[]) [position]::text as "standing",
      ($18::text[]) [position]::text as "idempotency_key",
      ($19::text[]) [position]::jsonb as "changed_columns",
      ($20::text[]) [position]::jsonb as "field_versions",
      ($21::text[]) [position]::text as "hash",
      ($22::text[]) [position]::integer[] as "document_set_ids",
      ($23::text[]) [position]::integer[] as "tool_ids",
      ($24::text[]) [position]::uuid[] as "users",
      ($25::text[]) [position]::integer[] as "groups",
      ($26::text[]) [position]::integer[] as "label_ids",
      ($27::text[]) [position]::text[] as "user_file_ids",
      ($28::text[]) [position]::bytea[] as "cached_definitions",
      ($29::text[]) [position]::integer[] as "document_set_ids_removed",
      ($30::text[]) [position]::integer[] as "document_set_ids_put",
      ($31::text[]) [position]::integer[] as "tool_ids_removed",
      ($32::text[]) [position]::integer[] as "tool_ids_put",
      ($33::text[]) [position]::uuid[] as "users_removed",
      ($34::text[]) [position]::jsonb as "users_put",
      ($35::text[]) [position]::integer[] as "groups_removed",
      ($36::text[]) [position]::jsonb as "groups_put",
      ($37::text[]) [position]::integer[] as "label_ids_removed",
      ($38::text[]) [position]::integer[] as "label_ids_put",
      ($39::text[]) [position]::text[] as "user_file_ids_removed",
      ($40::text[]) [position]::text[] as "user_file_ids_put",
      ($41::text[]) [position]::timestamptz as "at",
      ($42::text[]) [position]::text as "actor",
      ($43::text[]) [position]::text as "request_id",
      ($44::text[]) [position]::text as "client_address",
      ($45::text[]) [position]::text as "command",
      ($46::text[]) [position]::text as "salt",
      ($47::text[]) [position]::text as "identity_hash",
      ($48::text[]) [position]::text[] as "fields",
      ($49::text[]) [position]::json as "difference",
      ($50::text[]) [position]::integer as "difference_bytes",
      ($51::text[]) [position]::text as "difference_hash",
      ($52::text[]) [position]::text as "definition_before",
      ($53::text[]) [position]::text as "content_hash",
      ($54::text[]) [position]::text as "previous_hash",
      ($55::text[]) [position]::text as "request_fingerprint"
    from
      unnest($1::text[]) with ordinality listed (value, position)
    where
      position = position + 0
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
        when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text
        else p."name"
      end,
      "description" = case
        when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text
        else p."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns" ? 'num_chunks' then ("input"."changed_columns" ->> 'num_chunks')::double precision
        else p."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns" ? 'is_public' then ("input"."changed_columns" ->> 'is_public')::boolean
        else p."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns" ? 'recency_bias' then ("input"."changed_columns" ->> 'recency_bias')::text
        else p."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns" ? 'llm_filter_extraction' then ("input"."changed_columns" ->> 'llm_filter_extraction')::boolean
        else p."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns" ? 'llm_relevance_filter' then ("input"."changed_columns" ->> 'llm_relevance_filter')::boolean
        else p."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns" ? 'system_prompt' then ("input"."changed_columns" ->> 'system_prompt')::text
        else p."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns" ? 'task_prompt' then ("input"."changed_columns" ->> 'task_prompt')::text
        else p."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns" ? 'datetime_aware' then ("input"."changed_columns" ->> 'datetime_aware')::boolean
        else p."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns" ? 'llm_model_provider_override' then ("input"."changed_columns" ->> 'llm_model_provider_override')::text
        else p."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns" ? 'llm_model_version_override' then ("input"."changed_columns" ->> 'llm_model_version_override')::text
        else p."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns" ? 'starter_messages' then nullif("input"."changed_columns" -> 'starter_messages', 'null')::json
        else p."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns" ? 'uploaded_image_id' then ("input"."changed_columns" ->> 'uploaded_image_id')::text
        else p."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns" ? 'icon_name' then ("input"."changed_columns" ->> 'icon_name')::text
        else p."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns" ? 'search_start_date' then ("input"."changed_columns" ->> 'search_start_date')::timestamptz
        else p."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns" ? 'is_default_persona' then ("input"."changed_columns" ->> 'is_default_persona')::boolean
        else p."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns" ? 'display_priority' then ("input"."changed_columns" ->> 'display_priority')::integer
        else p."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns" ? 'replace_base_system_prompt' then ("input"."changed_columns" ->> 'replace_base_system_prompt')::boolean
        else p."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns" ? 'is_visible' then ("input"."changed_columns" ->> 'is_visible')::boolean
        else p."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns" ? 'builtin_persona' then ("input"."changed_columns" ->> 'builtin_persona')::boolean
        else p."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns" ? 'deleted' then ("input"."changed_columns" ->> 'deleted')::boolean
        else p."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns" ? 'owner_id' then ("input"."changed_columns" ->> 'owner_id')::uuid
        else p."owner_id"
      end,
      version = p.version + 1,
      field_versions = p.field_versions || "input"."field_versions",
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
      cross join jsonb_to_recordset("input"."users_put") share (id uuid, level text)
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
      cross join jsonb_to_recordset("input"."groups_put") share (id integer, level text)
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
      "input"."difference",
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
      position::integer,
      ($1::text[]) [position]::uuid as "user",
      ($2::text[]) [position]::boolean as "manages_all",
      ($3::text[]) [position]::integer[] as "managed_groups",
      ($4::text[]) [position]::integer[] as "tools",
      ($5::text[]) [position]::boolean as "is_admin",
      ($6::text[]) [position]::integer as "id",
      ($7::text[]) [position]::integer as "version",
      ($8::text[]) [position]::text as "access",
      ($9::text[]) [position]::integer as "token",
      ($10::text[]) [position]::text as "standing",
      ($11::text[]) [position]::text as "idempotency_key",
      ($12::text[]) [position]::jsonb as "changed_columns",
      ($13::text[]) [position]::jsonb as "field_versions",
      ($14::text[]) [position]::text as "hash",
      ($15::text[]) [position]::timestamptz as "at",
      ($16::text[]) [position]::text as "actor",
      ($17::text[]) [position]::text as "request_id",
      ($18::text[]) [position]::text as "client_address",
      ($19::text[]) [position]::text as "command",
      ($20::text[]) [position]::text as "salt",
      ($21::text[]) [position]::text as "identity_hash",
      ($22::text[]) [position]::text[] as "fields",
      ($23::text[]) [position]::json as "difference",
      ($24::text[]) [position]::integer as "difference_bytes",
      ($25::text[]) [position]::text as "difference_hash",
      ($26::text[]) [position]::text as "definition_before",
      ($27::text[]) [position]::text as "content_hash",
      ($28::text[]) [position]::text as "previous_hash",
      ($29::text[]) [position]::text as "request_fingerprint"
    from
      unnest($1::text[]) with ordinality listed (value, position)
    where
      position = position + 0
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
        when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text
        else p."name"
      end,
      "description" = case
        when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text
        else p."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns" ? 'num_chunks' then ("input"."changed_columns" ->> 'num_chunks')::double precision
        else p."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns" ? 'is_public' then ("input"."changed_columns" ->> 'is_public')::boolean
        else p."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns" ? 'recency_bias' then ("input"."changed_columns" ->> 'recency_bias')::text
        else p."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns" ? 'llm_filter_extraction' then ("input"."changed_columns" ->> 'llm_filter_extraction')::boolean
        else p."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns" ? 'llm_relevance_filter' then ("input"."changed_columns" ->> 'llm_relevance_filter')::boolean
        else p."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns" ? 'system_prompt' then ("input"."changed_columns" ->> 'system_prompt')::text
        else p."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns" ? 'task_prompt' then ("input"."changed_columns" ->> 'task_prompt')::text
        else p."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns" ? 'datetime_aware' then ("input"."changed_columns" ->> 'datetime_aware')::boolean
        else p."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns" ? 'llm_model_provider_override' then ("input"."changed_columns" ->> 'llm_model_provider_override')::text
        else p."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns" ? 'llm_model_version_override' then ("input"."changed_columns" ->> 'llm_model_version_override')::text
        else p."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns" ? 'starter_messages' then nullif("input"."changed_columns" -> 'starter_messages', 'null')::json
        else p."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns" ? 'uploaded_image_id' then ("input"."changed_columns" ->> 'uploaded_image_id')::text
        else p."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns" ? 'icon_name' then ("input"."changed_columns" ->> 'icon_name')::text
        else p."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns" ? 'search_start_date' then ("input"."changed_columns" ->> 'search_start_date')::timestamptz
        else p."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns" ? 'is_default_persona' then ("input"."changed_columns" ->> 'is_default_persona')::boolean
        else p."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns" ? 'display_priority' then ("input"."changed_columns" ->> 'display_priority')::integer
        else p."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns" ? 'replace_base_system_prompt' then ("input"."changed_columns" ->> 'replace_base_system_prompt')::boolean
        else p."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns" ? 'is_visible' then ("input"."changed_columns" ->> 'is_visible')::boolean
        else p."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns" ? 'builtin_persona' then ("input"."changed_columns" ->> 'builtin_persona')::boolean
        else p."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns" ? 'deleted' then ("input"."changed_columns" ->> 'deleted')::boolean
        else p."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns" ? 'owner_id' then ("input"."changed_columns" ->> 'owner_id')::uuid
        else p."owner_id"
      end,
      version = p.version + 1,
      field_versions = p.field_versions || "input"."field_versions",
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
      "input"."difference",
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
      position::integer,
      ($1::text[]) [position]::uuid as "user",
      ($2::text[]) [position]::boolean as "manages_all",
      ($3::text[]) [position]::integer[] as "managed_groups",
      ($4::text[]) [position]::integer[] as "tools",
      ($5::text[]) [position]::boolean as "is_admin",
      ($6::text[]) [position]::integer as "id",
      ($7::text[]) [position]::integer as "version",
      ($8::text[]) [position]::integer as "secrets_generation",
      ($9::text[]) [position]::text as "idempotency_key",
      ($10::text[]) [position]::integer as "token",
      ($11::text[]) [position]::text as "standing",
      ($12::text[]) [position]::integer as "oauth_config_id",
      ($13::text[]) [position]::text as "definition_hash",
      ($14::text[]) [position]::integer as "definition_bytes",
      ($15::text[]) [position]::json as "shown_headers",
      ($16::text[]) [position]::jsonb as "changed_columns",
      ($17::text[]) [position]::jsonb as "field_versions",
      ($18::text[]) [position]::text as "hash",
      ($19::text[]) [position]::json as "headers",
      ($20::text[]) [position]::timestamptz as "at",
      ($21::text[]) [position]::text as "actor",
      ($22::text[]) [position]::text as "request_id",
      ($23::text[]) [position]::text as "client_address",
      ($24::text[]) [position]::text as "command",
      ($25::text[]) [position]::text as "salt",
      ($26::text[]) [position]::text as "identity_hash",
      ($27::text[]) [position]::text[] as "fields",
      ($28::text[]) [position]::json as "difference",
      ($29::text[]) [position]::integer as "difference_bytes",
      ($30::text[]) [position]::text as "difference_hash",
      ($31::text[]) [position]::text as "definition_before",
      ($32::text[]) [position]::text as "content_hash",
      ($33::text[]) [position]::text as "previous_hash",
      ($34::text[]) [position]::text as "request_fingerprint"
    from
      unnest($1::text[]) with ordinality listed (value, position)
    where
      position = position + 0
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
      $35::text::json,
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
        when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions",
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
      "input"."shown_headers" as custom_headers,
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
      cross join json_array_elements("input"."headers") with ordinality g (value, position)
  ),
  removed_headers as (
    delete from tool_header h using changed
    join locked input using (position)
    where
      h.tool_id = "input"."id"
      and h.position >= json_array_length("input"."headers")
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
      "input"."difference",
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
      position::integer,
      ($1::text[]) [position]::uuid as "user",
      ($2::text[]) [position]::boolean as "manages_all",
      ($3::text[]) [position]::integer[] as "managed_groups",
      ($4::text[]) [position]::integer[] as "tools",
      ($5::text[]) [position]::boolean as "is_admin",
      ($6::text[]) [position]::integer as "id",
      ($7::text[]) [position]::integer as "version",
      ($8::text[]) [position]::integer as "secrets_generation",
      ($9::text[]) [position]::text as "idempotency_key",
      ($10::text[]) [position]::integer as "token",
      ($11::text[]) [position]::text as "standing",
      ($12::text[]) [position]::integer as "oauth_config_id",
      ($13::text[]) [position]::text as "definition_hash",
      ($14::text[]) [position]::text as "definition_text",
      ($15::text[]) [position]::integer as "definition_bytes",
      ($16::text[]) [position]::jsonb as "changed_columns",
      ($17::text[]) [position]::jsonb as "field_versions",
      ($18::text[]) [position]::text as "hash",
      ($19::text[]) [position]::timestamptz as "at",
      ($20::text[]) [position]::text as "actor",
      ($21::text[]) [position]::text as "request_id",
      ($22::text[]) [position]::text as "client_address",
      ($23::text[]) [position]::text as "command",
      ($24::text[]) [position]::text as "salt",
      ($25::text[]) [position]::text as "identity_hash",
      ($26::text[]) [position]::text[] as "fields",
      ($27::text[]) [position]::json as "difference",
      ($28::text[]) [position]::integer as "difference_bytes",
      ($29::text[]) [position]::text as "difference_hash",
      ($30::text[]) [position]::text as "definition_before",
      ($31::text[]) [position]::text as "content_hash",
      ($32::text[]) [position]::text as "previous_hash",
      ($33::text[]) [position]::text as "request_fingerprint"
    from
      unnest($1::text[]) with ordinality listed (value, position)
    where
      position = position + 0
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
        when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions",
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
      "input"."difference",
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
      position::integer,
      ($1::text[]) [position]::uuid as "user",
      ($2::text[]) [position]::boolean as "manages_all",
      ($3::text[]) [position]::integer[] as "managed_groups",
      ($4::text[]) [position]::integer[] as "tools",
      ($5::text[]) [position]::boolean as "is_admin",
      ($6::text[]) [position]::integer as "id",
      ($7::text[]) [position]::integer as "version",
      ($8::text[]) [position]::integer as "secrets_generation",
      ($9::text[]) [position]::text as "idempotency_key",
      ($10::text[]) [position]::integer as "token",
      ($11::text[]) [position]::text as "standing",
      ($12::text[]) [position]::integer as "oauth_config_id",
      ($13::text[]) [position]::bytea[] as "cached_definitions",
      ($14::text[]) [position]::jsonb as "changed_columns",
      ($15::text[]) [position]::text as "definition_hash",
      ($16::text[]) [position]::jsonb as "field_versions",
      ($17::text[]) [position]::text as "hash",
      ($18::text[]) [position]::timestamptz as "at",
      ($19::text[]) [position]::text as "actor",
      ($20::text[]) [position]::text as "request_id",
      ($21::text[]) [position]::text as "client_address",
      ($22::text[]) [position]::text as "command",
      ($23::text[]) [position]::text as "salt",
      ($24::text[]) [position]::text as "identity_hash",
      ($25::text[]) [position]::text[] as "fields",
      ($26::text[]) [position]::json as "difference",
      ($27::text[]) [position]::integer as "difference_bytes",
      ($28::text[]) [position]::text as "difference_hash",
      ($29::text[]) [position]::text as "definition_before",
      ($30::text[]) [position]::text as "content_hash",
      ($31::text[]) [position]::text as "previous_hash",
      ($32::text[]) [position]::text as "request_fingerprint"
    from
      unnest($1::text[]) with ordinality listed (value, position)
    where
      position = position + 0
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
        when "input"."changed_columns" ? 'name' then ("input"."changed_columns" ->> 'name')::text
        else t."name"
      end,
      "display_name" = case
        when "input"."changed_columns" ? 'display_name' then ("input"."changed_columns" ->> 'display_name')::text
        else t."display_name"
      end,
      "description" = case
        when "input"."changed_columns" ? 'description' then ("input"."changed_columns" ->> 'description')::text
        else t."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns" ? 'in_code_tool_id' then ("input"."changed_columns" ->> 'in_code_tool_id')::text
        else t."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns" ? 'passthrough_auth' then ("input"."changed_columns" ->> 'passthrough_auth')::boolean
        else t."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns" ? 'mcp_server_id' then ("input"."changed_columns" ->> 'mcp_server_id')::integer
        else t."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns" ? 'user_id' then ("input"."changed_columns" ->> 'user_id')::uuid
        else t."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns" ? 'oauth_config_id' then ("input"."changed_columns" ->> 'oauth_config_id')::integer
        else t."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns" ? 'enabled' then ("input"."changed_columns" ->> 'enabled')::boolean
        else t."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns" ? 'chat_selectable' then ("input"."changed_columns" ->> 'chat_selectable')::boolean
        else t."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns" ? 'agent_creation_selectable' then ("input"."changed_columns" ->> 'agent_creation_selectable')::boolean
        else t."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns" ? 'default_enabled' then ("input"."changed_columns" ->> 'default_enabled')::boolean
        else t."default_enabled"
      end,
      definition_hash = decode("input"."definition_hash", 'hex'),
      version = t.version + 1,
      field_versions = t.field_versions || "input"."field_versions",
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
      "input"."difference",
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
