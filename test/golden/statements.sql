-- persona_write(all)
with
  "input" as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "document_set_ids" integer[],
          "tool_ids" integer[],
          "users" uuid[],
          "groups" integer[],
          "label_ids" integer[],
          "user_file_ids" text[],
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "cached_definitions" bytea[],
          "id" integer,
          "version" integer,
          "access" text,
          "token" integer,
          "grants" text,
          "idempotency_key" text,
          "document_set_ids_attached" integer[],
          "tool_ids_attached" integer[],
          "tool_bytes_left" integer,
          "users_attached" uuid[],
          "groups_attached" integer[],
          "label_ids_attached" integer[],
          "user_file_ids_attached" text[],
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
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
  "locked" as materialized (
    select
      "input".*
    from
      "input"
      inner join "persona" as "p" on "p"."id" = "input"."id"
      and "p"."version" = "input"."version"
    where
      case
        when "p"."owner_id" = "input"."user" then 'owner'
        else coalesce(
          (
            select
              case
                when bool_or("share"."level" = 'editor') then 'editor'
                else 'viewer'
              end as "level"
            from
              (
                select
                  "s"."level"
                from
                  "persona_user" as "s"
                where
                  "s"."persona_id" = "p"."id"
                  and "s"."user_id" = "input"."user"
                union all
                select
                  "s"."level"
                from
                  "persona_group" as "s"
                  inner join "user_group_member" as "m" on "m"."user_group_id" = "s"."user_group_id"
                where
                  "s"."persona_id" = "p"."id"
                  and "m"."user_id" = "input"."user"
              ) as "share"
            having
              count(*) > 0
          ),
          case
            when "p"."is_public" then 'viewer'
            else 'none'
          end
        )
      end = "input"."access"
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                "t"."id" as "token_id",
                "u"."id" as "user_id",
                "u"."email",
                "u"."kind",
                "u"."active",
                "t"."persona_ids",
                "t"."tool_ids",
                "t"."requires_if_match",
                "granted"."permission",
                "granted"."managed_groups",
                to_char(timezone ('UTC', "t"."expires_at"), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "expires_at",
                coalesce("t"."expires_at" <= clock_timestamp(), false) as "expired",
                "t"."revoked_at" is not null as "revoked",
                coalesce("t"."scopes" @> array['read'], false) as "read_only",
                coalesce("t"."last_used_at" < (clock_timestamp() - interval '1 minute'), true) as "use_is_stale",
                cast(
                  row (
                    "granted"."permission",
                    "granted"."managed_groups",
                    "t"."persona_ids",
                    "t"."tool_ids",
                    "t"."requires_if_match",
                    coalesce("t"."scopes" @> array['read'], false)
                  ) as text
                ) as "grants"
              from
                "token" as "t"
                cross join lateral (
                  select
                    *
                  from
                    "user_account"
                  where
                    "user_account"."id" = "t"."user_id"
                  offset
                    0
                ) as "u"
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any ("g"."permissions") then 3
                          when 'manage:actions' = any ("g"."permissions") then 2
                          else 1
                        end
                      ),
                      1
                    ) as "permission",
                    coalesce(
                      array_agg(
                        "m"."user_group_id"
                        order by
                          "m"."user_group_id"
                      ) filter (
                        where
                          "m"."is_manager"
                      ),
                      '{}'
                    ) as "managed"
                  from
                    "user_group_member" as "m"
                    inner join "user_group" as "g" on "g"."id" = "m"."user_group_id"
                  where
                    "m"."user_id" = "u"."id"
                ) as "held"
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any ("u"."permissions") then 3
                          when 'manage:actions' = any ("u"."permissions") then 2
                          else 1
                        end,
                        "held"."permission"
                      ),
                      case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end
                    ) as "permission",
                    case
                      when case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end >= 2 then "held"."managed"
                      else '{}'
                    end as "managed_groups"
                ) as "granted"
              where
                "t"."id" = "input"."token"
              offset
                0
            ) as "caller"
          where
            (
              "active"
              and not "revoked"
              and not "expired"
              and "caller"."grants" = "input"."grants"
            )
        )
      )
      and (
        "input"."idempotency_key" is null
        or (
          pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
          and not exists (
            select
            from
              "unchanged_update" as "u"
            where
              "u"."idempotency_key" = decode("input"."idempotency_key", 'hex')
          )
        )
      )
      and (
        (
          select
            count(*) as "count"
          from
            (
              select
                "s"."id"
              from
                "document_set" as "s"
              where
                "s"."id" = any ("input"."document_set_ids_attached")
                and (
                  "input"."is_admin"
                  or "s"."is_public"
                  or exists (
                    select
                    from
                      "document_set_user" as "m"
                    where
                      "m"."user_id" = "input"."user"
                      and "m"."document_set_id" = "s"."id"
                  )
                  or exists (
                    select
                    from
                      "document_set_group" as "m"
                      inner join "user_group_member" as "g" on "g"."user_group_id" = "m"."user_group_id"
                    where
                      "g"."user_id" = "input"."user"
                      and "m"."document_set_id" = "s"."id"
                  )
                )
            ) as "usable"
        ) = cardinality("input"."document_set_ids_attached")
        and (
          select
            count(*) as "count"
          from
            (
              select
                "t"."id"
              from
                "tool" as "t"
              where
                "t"."id" = any ("input"."tool_ids_attached")
                and (
                  "input"."tools" is null
                  or "t"."id" = any ("input"."tools")
                )
                and "t"."enabled" = true
                and (
                  "t"."mcp_server_id" is null
                  or "input"."manages_all"
                  or "t"."user_id" = "input"."user"
                  or exists (
                    select
                    from
                      "mcp_server" as "m"
                    where
                      "m"."id" = "t"."mcp_server_id"
                      and "m"."owner_id" = "input"."user"
                  )
                )
            ) as "usable"
        ) = cardinality("input"."tool_ids_attached")
        and (
          select
            coalesce(sum(coalesce("d"."size_bytes", 0) + octet_length("t"."description")), 0) as "bytes"
          from
            "tool" as "t"
            left join "tool_definition" as "d" on "d"."hash" = "t"."definition_hash"
          where
            "t"."id" = any ("input"."tool_ids_attached")
        ) <= "input"."tool_bytes_left"
        and (
          select
            count(*) as "count"
          from
            (
              select
                "u"."id"
              from
                "user_account" as "u"
              where
                "u"."id" = any ("input"."users_attached")
            ) as "usable"
        ) = cardinality("input"."users_attached")
        and (
          select
            count(*) as "count"
          from
            (
              select
                "g"."id"
              from
                "user_group" as "g"
              where
                "g"."id" = any ("input"."groups_attached")
            ) as "usable"
        ) = cardinality("input"."groups_attached")
        and (
          select
            count(*) as "count"
          from
            (
              select
                "l"."id"
              from
                "label" as "l"
              where
                "l"."id" = any ("input"."label_ids_attached")
            ) as "usable"
        ) = cardinality("input"."label_ids_attached")
        and (
          select
            count(*) as "count"
          from
            (
              select
                "f"."id"
              from
                "user_file" as "f"
              where
                "f"."id" = any ("input"."user_file_ids_attached")
                and (
                  "input"."is_admin"
                  or "f"."owner_id" = "input"."user"
                )
            ) as "usable"
        ) = cardinality("input"."user_file_ids_attached")
      )
    for no key update of
      "p" skip locked
  ),
  "changed" as (
    update "persona" as "p"
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then cast(("input"."changed_columns"::jsonb ->> 'name') as text)
        else "p"."name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then cast(("input"."changed_columns"::jsonb ->> 'description') as text)
        else "p"."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns"::jsonb ? 'num_chunks' then cast(("input"."changed_columns"::jsonb ->> 'num_chunks') as double precision)
        else "p"."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns"::jsonb ? 'is_public' then cast(("input"."changed_columns"::jsonb ->> 'is_public') as boolean)
        else "p"."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns"::jsonb ? 'recency_bias' then cast(("input"."changed_columns"::jsonb ->> 'recency_bias') as text)
        else "p"."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns"::jsonb ? 'llm_filter_extraction' then cast(("input"."changed_columns"::jsonb ->> 'llm_filter_extraction') as boolean)
        else "p"."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns"::jsonb ? 'llm_relevance_filter' then cast(("input"."changed_columns"::jsonb ->> 'llm_relevance_filter') as boolean)
        else "p"."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'system_prompt' then cast(("input"."changed_columns"::jsonb ->> 'system_prompt') as text)
        else "p"."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns"::jsonb ? 'task_prompt' then cast(("input"."changed_columns"::jsonb ->> 'task_prompt') as text)
        else "p"."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns"::jsonb ? 'datetime_aware' then cast(("input"."changed_columns"::jsonb ->> 'datetime_aware') as boolean)
        else "p"."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_provider_override' then cast(("input"."changed_columns"::jsonb ->> 'llm_model_provider_override') as text)
        else "p"."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_version_override' then cast(("input"."changed_columns"::jsonb ->> 'llm_model_version_override') as text)
        else "p"."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns"::jsonb ? 'starter_messages' then cast(nullif(("input"."changed_columns"::jsonb -> 'starter_messages'), 'null') as json)
        else "p"."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns"::jsonb ? 'uploaded_image_id' then cast(("input"."changed_columns"::jsonb ->> 'uploaded_image_id') as text)
        else "p"."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns"::jsonb ? 'icon_name' then cast(("input"."changed_columns"::jsonb ->> 'icon_name') as text)
        else "p"."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns"::jsonb ? 'search_start_date' then cast(("input"."changed_columns"::jsonb ->> 'search_start_date') as timestamptz)
        else "p"."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns"::jsonb ? 'is_default_persona' then cast(("input"."changed_columns"::jsonb ->> 'is_default_persona') as boolean)
        else "p"."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns"::jsonb ? 'display_priority' then cast(("input"."changed_columns"::jsonb ->> 'display_priority') as integer)
        else "p"."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'replace_base_system_prompt' then cast(("input"."changed_columns"::jsonb ->> 'replace_base_system_prompt') as boolean)
        else "p"."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns"::jsonb ? 'is_visible' then cast(("input"."changed_columns"::jsonb ->> 'is_visible') as boolean)
        else "p"."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns"::jsonb ? 'builtin_persona' then cast(("input"."changed_columns"::jsonb ->> 'builtin_persona') as boolean)
        else "p"."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns"::jsonb ? 'deleted' then cast(("input"."changed_columns"::jsonb ->> 'deleted') as boolean)
        else "p"."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns"::jsonb ? 'owner_id' then cast(("input"."changed_columns"::jsonb ->> 'owner_id') as uuid)
        else "p"."owner_id"
      end,
      "version" = "p"."version" + 1,
      "field_versions" = "p"."field_versions" || "input"."field_versions"::jsonb,
      "audit_head" = decode("input"."hash", 'hex'),
      "audit_count" = "p"."audit_count" + 1
    from
      "locked" as "input"
    where
      "p"."id" = "input"."id"
    returning
      "input"."position",
      "p"."version",
      concat(
        '{"id":',
        coalesce(to_json("p"."id"), 'null'),
        ',"name":',
        coalesce(to_json("p"."name"), 'null'),
        ',"description":',
        coalesce(to_json("p"."description"), 'null'),
        ',"is_public":',
        coalesce(to_json("p"."is_public"), 'null'),
        ',"is_visible":',
        coalesce(to_json("p"."is_visible"), 'null'),
        ',"uploaded_image_id":',
        coalesce(to_json("p"."uploaded_image_id"), 'null'),
        ',"icon_name":',
        coalesce(to_json("p"."icon_name"), 'null'),
        ',"user_file_ids":',
        coalesce(to_json("input"."user_file_ids"), 'null'),
        ',"display_priority":',
        coalesce(to_json("p"."display_priority"), 'null'),
        ',"is_default_persona":',
        coalesce(to_json("p"."is_default_persona"), 'null'),
        ',"builtin_persona":',
        coalesce(to_json("p"."builtin_persona"), 'null'),
        ',"starter_messages":',
        coalesce(
          to_json(
            case
              when json_typeof("p"."starter_messages") = 'array' then array_to_json(
                array(
                  select
                    json_row
                  from
                    (
                      select
                        ("m"."value" ->> 'name') as "name",
                        ("m"."value" ->> 'message') as "message"
                      from
                        json_array_elements("p"."starter_messages") with ordinality as "m" (value, place)
                      order by
                        "m"."place"
                    ) json_row
                )
              )
            end
          ),
          'null'
        ),
        ',"llm_relevance_filter":',
        coalesce(to_json("p"."llm_relevance_filter"), 'null'),
        ',"llm_filter_extraction":',
        coalesce(to_json("p"."llm_filter_extraction"), 'null'),
        ',"tools":',
        '[' || coalesce(
          (
            select
              string_agg(
                concat(
                  '{"id":',
                  coalesce(to_json("t"."id"), 'null'),
                  ',"name":',
                  coalesce(to_json("t"."name"), 'null'),
                  ',"description":',
                  coalesce(to_json("t"."description"), 'null'),
                  ',"definition":',
                  chr(1) || coalesce(encode("t"."definition_hash", 'hex'), '') || chr(1) || case
                    when "t"."definition_hash" is null then 'null'
                    when "t"."definition_hash" = any ("input"."cached_definitions") then ''
                    else (
                      select
                        cast("d"."content" as text) as "text"
                      from
                        "tool_definition" as "d"
                      where
                        "d"."hash" = "t"."definition_hash"
                    )
                  end || chr(1),
                  ',"display_name":',
                  coalesce(to_json(coalesce("t"."display_name", "t"."name")), 'null'),
                  ',"in_code_tool_id":',
                  coalesce(to_json("t"."in_code_tool_id"), 'null'),
                  ',"custom_headers":',
                  coalesce(
                    to_json(
                      case
                        when (
                          "t"."in_code_tool_id" is null
                          and "t"."mcp_server_id" is null
                          and (
                            "input"."tools" is null
                            or "t"."id" = any ("input"."tools")
                          )
                          and (
                            "input"."manages_all"
                            or (
                              cardinality("input"."managed_groups") > 0
                              and (
                                "t"."user_id" = "input"."user"
                                or "t"."id" = any (
                                  array(
                                    with
                                      "asked" as materialized (
                                        select
                                          "t"."id"
                                        from
                                          unnest("input"."tool_ids") as "t" (id)
                                        where
                                          case
                                            when exists (
                                              select
                                              from
                                                (
                                                  select
                                                    "l"."persona_id",
                                                    "l"."attached_by"
                                                  from
                                                    "persona_tool" as "l"
                                                  where
                                                    "l"."tool_id" = "t"."id"
                                                    and "l"."tool_id" between "t"."id" and "t"."id"
                                                  limit
                                                    20
                                                ) as "used"
                                                inner join "persona" as "a" on "a"."id" = "used"."persona_id"
                                              where
                                                not "a"."deleted"
                                                and not exists (
                                                  select
                                                  from
                                                    "persona_group" as "s"
                                                  where
                                                    "s"."persona_id" = "a"."id"
                                                    and "s"."user_group_id" = any ("input"."managed_groups")
                                                )
                                            ) then false
                                            else not exists (
                                              select
                                              from
                                                "persona_tool"
                                              where
                                                "tool_id" = "t"."id"
                                              offset
                                                1000
                                            )
                                          end
                                      ),
                                      "inside" as materialized (
                                        select
                                          "a"."id",
                                          not "a"."deleted" as "lives",
                                          "a"."owner_id"
                                        from
                                          (
                                            select distinct
                                              "used"."persona_id"
                                            from
                                              "asked" as "t"
                                              cross join lateral (
                                                select
                                                  "l"."persona_id"
                                                from
                                                  "persona_tool" as "l"
                                                where
                                                  "l"."tool_id" = "t"."id"
                                                  and "l"."tool_id" between "t"."id" and "t"."id"
                                                offset
                                                  0
                                              ) as "used"
                                          ) as "used"
                                          cross join lateral (
                                            select
                                              "id",
                                              "deleted",
                                              "owner_id"
                                            from
                                              "persona"
                                            where
                                              "id" = "used"."persona_id"
                                            offset
                                              0
                                          ) as "a"
                                        where
                                          (
                                            "a"."deleted"
                                            or exists (
                                              select
                                              from
                                                "persona_group" as "s"
                                              where
                                                "s"."persona_id" = "a"."id"
                                                and "s"."user_group_id" = any ("input"."managed_groups")
                                            )
                                          )
                                      ),
                                      "of_others" as materialized (
                                        select
                                          "id"
                                        from
                                          "inside"
                                        where
                                          "lives" = true
                                          and "owner_id" is distinct from "input"."user"
                                      )
                                    select
                                      "t"."id"
                                    from
                                      "asked" as "t"
                                    where
                                      not exists (
                                        select
                                        from
                                          "persona_tool" as "l"
                                        where
                                          "l"."tool_id" = "t"."id"
                                          and "l"."tool_id" between "t"."id" and "t"."id"
                                          and "l"."persona_id" not in (
                                            select
                                              "inside"."id"
                                            from
                                              "inside"
                                          )
                                      )
                                      and exists (
                                        select
                                        from
                                          "persona_tool" as "l"
                                        where
                                          "l"."tool_id" = "t"."id"
                                          and "l"."tool_id" between "t"."id" and "t"."id"
                                          and case
                                            when "l"."attached_by" is null then "l"."persona_id" in (
                                              select
                                                "of_others"."id"
                                              from
                                                "of_others"
                                            )
                                            else (
                                              "l"."attached_by" <> "input"."user"
                                              and "l"."attached_by" <> '00000000-0000-0000-0000-000000000000'
                                              and "l"."persona_id" in (
                                                select
                                                  "inside"."id"
                                                from
                                                  "inside"
                                                where
                                                  "lives"
                                              )
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
                                  "h"."name" as "key",
                                  '****#' || left(encode("h"."fingerprint", 'hex'), 12) as "value"
                                from
                                  "tool_header" as "h"
                                where
                                  "h"."tool_id" = "t"."id"
                                order by
                                  "h"."position"
                              ) json_row
                          )
                        )
                      end
                    ),
                    'null'
                  ),
                  ',"passthrough_auth":',
                  coalesce(to_json("t"."passthrough_auth"), 'null'),
                  ',"mcp_server_id":',
                  coalesce(to_json("t"."mcp_server_id"), 'null'),
                  ',"user_id":',
                  coalesce(to_json("t"."user_id"), 'null'),
                  ',"oauth_config_id":',
                  coalesce(to_json("t"."oauth_config_id"), 'null'),
                  ',"oauth_config_name":',
                  coalesce(
                    to_json(
                      (
                        select
                          "o"."name"
                        from
                          "oauth_config" as "o"
                        where
                          "o"."id" = "t"."oauth_config_id"
                      )
                    ),
                    'null'
                  ),
                  ',"enabled":',
                  coalesce(to_json("t"."enabled"), 'null'),
                  ',"chat_selectable":',
                  coalesce(to_json("t"."chat_selectable"), 'null'),
                  ',"agent_creation_selectable":',
                  coalesce(to_json("t"."agent_creation_selectable"), 'null'),
                  ',"default_enabled":',
                  coalesce(to_json("t"."default_enabled"), 'null'),
                  '}'
                ),
                ','
                order by
                  "t"."id"
              ) as "all"
            from
              "tool" as "t"
            where
              "t"."id" = any ("input"."tool_ids")
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
                      "l"."id",
                      "l"."name"
                    from
                      "label" as "l"
                    where
                      "l"."id" = any ("input"."label_ids")
                    order by
                      "l"."id"
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
                to_json(obj)
              from
                (
                  select
                    "u"."id",
                    "u"."email"
                  from
                    "user_account" as "u"
                  where
                    "u"."id" = "p"."owner_id"
                ) as obj
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
                      "u"."id",
                      "u"."email"
                    from
                      "user_account" as "u"
                    where
                      "u"."id" = any ("input"."users")
                    order by
                      "u"."email" collate "C"
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
                      "s"."id",
                      "s"."name",
                      "s"."description",
                      array_to_json(
                        array(
                          select
                            json_row
                          from
                            (
                              select
                                "c"."id",
                                "c"."name",
                                "c"."source",
                                "c"."access_type"
                              from
                                "document_set_cc_pair" as "m"
                                inner join "cc_pair" as "c" on "c"."id" = "m"."cc_pair_id"
                              where
                                "m"."document_set_id" = "s"."id"
                              order by
                                "c"."id"
                            ) json_row
                        )
                      ) as "cc_pair_summaries",
                      "s"."is_up_to_date",
                      "s"."is_public",
                      array(
                        select
                          "m"."user_id"
                        from
                          "document_set_user" as "m"
                        where
                          "m"."document_set_id" = "s"."id"
                        order by
                          "m"."user_id"
                      ) as "users",
                      array(
                        select
                          "m"."user_group_id"
                        from
                          "document_set_group" as "m"
                        where
                          "m"."document_set_id" = "s"."id"
                        order by
                          "m"."user_group_id"
                      ) as "groups",
                      array_to_json(
                        array(
                          select
                            json_row
                          from
                            (
                              select
                                "f"."id",
                                "f"."name",
                                "f"."source",
                                "m"."entities"
                              from
                                "document_set_federated_connector" as "m"
                                inner join "federated_connector" as "f" on "f"."id" = "m"."federated_connector_id"
                              where
                                "m"."document_set_id" = "s"."id"
                              order by
                                "f"."id"
                            ) json_row
                        )
                      ) as "federated_connector_summaries"
                    from
                      "document_set" as "s"
                    where
                      "s"."id" = any ("input"."document_set_ids")
                    order by
                      "s"."id"
                  ) json_row
              )
            )
          ),
          'null'
        ),
        ',"llm_model_provider_override":',
        coalesce(to_json("p"."llm_model_provider_override"), 'null'),
        ',"llm_model_version_override":',
        coalesce(to_json("p"."llm_model_version_override"), 'null'),
        ',"num_chunks":',
        coalesce(to_json("p"."num_chunks"), 'null'),
        ',"system_prompt":',
        coalesce(to_json("p"."system_prompt"), 'null'),
        ',"replace_base_system_prompt":',
        coalesce(to_json("p"."replace_base_system_prompt"), 'null'),
        ',"task_prompt":',
        coalesce(to_json("p"."task_prompt"), 'null'),
        ',"datetime_aware":',
        coalesce(to_json("p"."datetime_aware"), 'null'),
        '}'
      ) as "snapshot"
  ),
  "document_set_ids_removed" as (
    delete from "persona_document_set" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."document_set_id" = any ("input"."document_set_ids_removed")
  ),
  "document_set_ids_put" as (
    insert into
      "persona_document_set" ("persona_id", "document_set_id")
    select
      "input"."id" as "persona_id",
      "put"."id"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join unnest("input"."document_set_ids_put") as "put" (id)
  ),
  "tool_ids_removed" as (
    delete from "persona_tool" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."tool_id" = any ("input"."tool_ids_removed")
  ),
  "tool_ids_put" as (
    insert into
      "persona_tool" ("persona_id", "tool_id", "attached_by")
    select
      "input"."id" as "persona_id",
      "put"."id",
      "input"."user" as "attached_by"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join unnest("input"."tool_ids_put") as "put" (id)
  ),
  "users_removed" as (
    delete from "persona_user" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."user_id" = any ("input"."users_removed")
  ),
  "users_put" as (
    insert into
      "persona_user" ("persona_id", "user_id", "level")
    select
      "input"."id" as "persona_id",
      "share"."id",
      "share"."level"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join jsonb_to_recordset("input"."users_put"::jsonb) as "share" ("id" uuid, "level" text)
    on conflict ("persona_id", "user_id") do update
    set
      "level" = "excluded"."level"
  ),
  "groups_removed" as (
    delete from "persona_group" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."user_group_id" = any ("input"."groups_removed")
  ),
  "groups_put" as (
    insert into
      "persona_group" ("persona_id", "user_group_id", "level")
    select
      "input"."id" as "persona_id",
      "share"."id",
      "share"."level"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join jsonb_to_recordset("input"."groups_put"::jsonb) as "share" ("id" integer, "level" text)
    on conflict ("persona_id", "user_group_id") do update
    set
      "level" = "excluded"."level"
  ),
  "label_ids_removed" as (
    delete from "persona_label" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."label_id" = any ("input"."label_ids_removed")
  ),
  "label_ids_put" as (
    insert into
      "persona_label" ("persona_id", "label_id")
    select
      "input"."id" as "persona_id",
      "put"."id"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join unnest("input"."label_ids_put") as "put" (id)
  ),
  "user_file_ids_removed" as (
    delete from "persona_user_file" as "l" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "l"."persona_id" = "input"."id"
      and "l"."user_file_id" = any ("input"."user_file_ids_removed")
  ),
  "user_file_ids_put" as (
    insert into
      "persona_user_file" ("persona_id", "user_file_id")
    select
      "input"."id" as "persona_id",
      "put"."id"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join unnest("input"."user_file_ids_put") as "put" (id)
  ),
  "audited" as (
    insert into
      "audit" (
        "resource_kind",
        "resource_id",
        "version_before",
        "version_after",
        "at",
        "actor_id",
        "actor",
        "token_id",
        "request_id",
        "client_address",
        "command",
        "salt",
        "identity_hash",
        "fields",
        "difference",
        "difference_bytes",
        "difference_hash",
        "definition_before",
        "content_hash",
        "previous_hash",
        "hash",
        "idempotency_key",
        "request_fingerprint"
      )
    select
      'persona' as "resource_kind",
      "input"."id" as "resource_id",
      "input"."version" as "version_before",
      "input"."version" + 1 as "version_after",
      "input"."at" as "at",
      "input"."user" as "actor_id",
      "input"."actor" as "actor",
      "input"."token" as "token_id",
      "input"."request_id" as "request_id",
      "input"."client_address" as "client_address",
      "input"."command" as "command",
      "input"."salt" as "salt",
      decode("input"."identity_hash", 'hex') as "identity_hash",
      "input"."fields" as "fields",
      "input"."difference"::json as "difference",
      "input"."difference_bytes" as "difference_bytes",
      decode("input"."difference_hash", 'hex') as "difference_hash",
      decode("input"."definition_before", 'hex') as "definition_before",
      decode("input"."content_hash", 'hex') as "content_hash",
      decode("input"."previous_hash", 'hex') as "previous_hash",
      decode("input"."hash", 'hex') as "hash",
      decode("input"."idempotency_key", 'hex') as "idempotency_key",
      decode("input"."request_fingerprint", 'hex') as "request_fingerprint"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
  )
select
  *
from
  "changed";

-- persona_write(none minimal)
with
  "input" as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "id" integer,
          "version" integer,
          "user" uuid,
          "access" text,
          "token" integer,
          "grants" text,
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
  "locked" as materialized (
    select
      "input".*
    from
      "input"
      inner join "persona" as "p" on "p"."id" = "input"."id"
      and "p"."version" = "input"."version"
    where
      case
        when "p"."owner_id" = "input"."user" then 'owner'
        else coalesce(
          (
            select
              case
                when bool_or("share"."level" = 'editor') then 'editor'
                else 'viewer'
              end as "level"
            from
              (
                select
                  "s"."level"
                from
                  "persona_user" as "s"
                where
                  "s"."persona_id" = "p"."id"
                  and "s"."user_id" = "input"."user"
                union all
                select
                  "s"."level"
                from
                  "persona_group" as "s"
                  inner join "user_group_member" as "m" on "m"."user_group_id" = "s"."user_group_id"
                where
                  "s"."persona_id" = "p"."id"
                  and "m"."user_id" = "input"."user"
              ) as "share"
            having
              count(*) > 0
          ),
          case
            when "p"."is_public" then 'viewer'
            else 'none'
          end
        )
      end = "input"."access"
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                "t"."id" as "token_id",
                "u"."id" as "user_id",
                "u"."email",
                "u"."kind",
                "u"."active",
                "t"."persona_ids",
                "t"."tool_ids",
                "t"."requires_if_match",
                "granted"."permission",
                "granted"."managed_groups",
                to_char(timezone ('UTC', "t"."expires_at"), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "expires_at",
                coalesce("t"."expires_at" <= clock_timestamp(), false) as "expired",
                "t"."revoked_at" is not null as "revoked",
                coalesce("t"."scopes" @> array['read'], false) as "read_only",
                coalesce("t"."last_used_at" < (clock_timestamp() - interval '1 minute'), true) as "use_is_stale",
                cast(
                  row (
                    "granted"."permission",
                    "granted"."managed_groups",
                    "t"."persona_ids",
                    "t"."tool_ids",
                    "t"."requires_if_match",
                    coalesce("t"."scopes" @> array['read'], false)
                  ) as text
                ) as "grants"
              from
                "token" as "t"
                cross join lateral (
                  select
                    *
                  from
                    "user_account"
                  where
                    "user_account"."id" = "t"."user_id"
                  offset
                    0
                ) as "u"
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any ("g"."permissions") then 3
                          when 'manage:actions' = any ("g"."permissions") then 2
                          else 1
                        end
                      ),
                      1
                    ) as "permission",
                    coalesce(
                      array_agg(
                        "m"."user_group_id"
                        order by
                          "m"."user_group_id"
                      ) filter (
                        where
                          "m"."is_manager"
                      ),
                      '{}'
                    ) as "managed"
                  from
                    "user_group_member" as "m"
                    inner join "user_group" as "g" on "g"."id" = "m"."user_group_id"
                  where
                    "m"."user_id" = "u"."id"
                ) as "held"
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any ("u"."permissions") then 3
                          when 'manage:actions' = any ("u"."permissions") then 2
                          else 1
                        end,
                        "held"."permission"
                      ),
                      case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end
                    ) as "permission",
                    case
                      when case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end >= 2 then "held"."managed"
                      else '{}'
                    end as "managed_groups"
                ) as "granted"
              where
                "t"."id" = "input"."token"
              offset
                0
            ) as "caller"
          where
            (
              "active"
              and not "revoked"
              and not "expired"
              and "caller"."grants" = "input"."grants"
            )
        )
      )
      and (
        "input"."idempotency_key" is null
        or (
          pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
          and not exists (
            select
            from
              "unchanged_update" as "u"
            where
              "u"."idempotency_key" = decode("input"."idempotency_key", 'hex')
          )
        )
      )
      and 1 = 1
    for no key update of
      "p" skip locked
  ),
  "changed" as (
    update "persona" as "p"
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then cast(("input"."changed_columns"::jsonb ->> 'name') as text)
        else "p"."name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then cast(("input"."changed_columns"::jsonb ->> 'description') as text)
        else "p"."description"
      end,
      "num_chunks" = case
        when "input"."changed_columns"::jsonb ? 'num_chunks' then cast(("input"."changed_columns"::jsonb ->> 'num_chunks') as double precision)
        else "p"."num_chunks"
      end,
      "is_public" = case
        when "input"."changed_columns"::jsonb ? 'is_public' then cast(("input"."changed_columns"::jsonb ->> 'is_public') as boolean)
        else "p"."is_public"
      end,
      "recency_bias" = case
        when "input"."changed_columns"::jsonb ? 'recency_bias' then cast(("input"."changed_columns"::jsonb ->> 'recency_bias') as text)
        else "p"."recency_bias"
      end,
      "llm_filter_extraction" = case
        when "input"."changed_columns"::jsonb ? 'llm_filter_extraction' then cast(("input"."changed_columns"::jsonb ->> 'llm_filter_extraction') as boolean)
        else "p"."llm_filter_extraction"
      end,
      "llm_relevance_filter" = case
        when "input"."changed_columns"::jsonb ? 'llm_relevance_filter' then cast(("input"."changed_columns"::jsonb ->> 'llm_relevance_filter') as boolean)
        else "p"."llm_relevance_filter"
      end,
      "system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'system_prompt' then cast(("input"."changed_columns"::jsonb ->> 'system_prompt') as text)
        else "p"."system_prompt"
      end,
      "task_prompt" = case
        when "input"."changed_columns"::jsonb ? 'task_prompt' then cast(("input"."changed_columns"::jsonb ->> 'task_prompt') as text)
        else "p"."task_prompt"
      end,
      "datetime_aware" = case
        when "input"."changed_columns"::jsonb ? 'datetime_aware' then cast(("input"."changed_columns"::jsonb ->> 'datetime_aware') as boolean)
        else "p"."datetime_aware"
      end,
      "llm_model_provider_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_provider_override' then cast(("input"."changed_columns"::jsonb ->> 'llm_model_provider_override') as text)
        else "p"."llm_model_provider_override"
      end,
      "llm_model_version_override" = case
        when "input"."changed_columns"::jsonb ? 'llm_model_version_override' then cast(("input"."changed_columns"::jsonb ->> 'llm_model_version_override') as text)
        else "p"."llm_model_version_override"
      end,
      "starter_messages" = case
        when "input"."changed_columns"::jsonb ? 'starter_messages' then cast(nullif(("input"."changed_columns"::jsonb -> 'starter_messages'), 'null') as json)
        else "p"."starter_messages"
      end,
      "uploaded_image_id" = case
        when "input"."changed_columns"::jsonb ? 'uploaded_image_id' then cast(("input"."changed_columns"::jsonb ->> 'uploaded_image_id') as text)
        else "p"."uploaded_image_id"
      end,
      "icon_name" = case
        when "input"."changed_columns"::jsonb ? 'icon_name' then cast(("input"."changed_columns"::jsonb ->> 'icon_name') as text)
        else "p"."icon_name"
      end,
      "search_start_date" = case
        when "input"."changed_columns"::jsonb ? 'search_start_date' then cast(("input"."changed_columns"::jsonb ->> 'search_start_date') as timestamptz)
        else "p"."search_start_date"
      end,
      "is_default_persona" = case
        when "input"."changed_columns"::jsonb ? 'is_default_persona' then cast(("input"."changed_columns"::jsonb ->> 'is_default_persona') as boolean)
        else "p"."is_default_persona"
      end,
      "display_priority" = case
        when "input"."changed_columns"::jsonb ? 'display_priority' then cast(("input"."changed_columns"::jsonb ->> 'display_priority') as integer)
        else "p"."display_priority"
      end,
      "replace_base_system_prompt" = case
        when "input"."changed_columns"::jsonb ? 'replace_base_system_prompt' then cast(("input"."changed_columns"::jsonb ->> 'replace_base_system_prompt') as boolean)
        else "p"."replace_base_system_prompt"
      end,
      "is_visible" = case
        when "input"."changed_columns"::jsonb ? 'is_visible' then cast(("input"."changed_columns"::jsonb ->> 'is_visible') as boolean)
        else "p"."is_visible"
      end,
      "builtin_persona" = case
        when "input"."changed_columns"::jsonb ? 'builtin_persona' then cast(("input"."changed_columns"::jsonb ->> 'builtin_persona') as boolean)
        else "p"."builtin_persona"
      end,
      "deleted" = case
        when "input"."changed_columns"::jsonb ? 'deleted' then cast(("input"."changed_columns"::jsonb ->> 'deleted') as boolean)
        else "p"."deleted"
      end,
      "owner_id" = case
        when "input"."changed_columns"::jsonb ? 'owner_id' then cast(("input"."changed_columns"::jsonb ->> 'owner_id') as uuid)
        else "p"."owner_id"
      end,
      "version" = "p"."version" + 1,
      "field_versions" = "p"."field_versions" || "input"."field_versions"::jsonb,
      "audit_head" = decode("input"."hash", 'hex'),
      "audit_count" = "p"."audit_count" + 1
    from
      "locked" as "input"
    where
      "p"."id" = "input"."id"
    returning
      "input"."position",
      "p"."version"
  ),
  "audited" as (
    insert into
      "audit" (
        "resource_kind",
        "resource_id",
        "version_before",
        "version_after",
        "at",
        "actor_id",
        "actor",
        "token_id",
        "request_id",
        "client_address",
        "command",
        "salt",
        "identity_hash",
        "fields",
        "difference",
        "difference_bytes",
        "difference_hash",
        "definition_before",
        "content_hash",
        "previous_hash",
        "hash",
        "idempotency_key",
        "request_fingerprint"
      )
    select
      'persona' as "resource_kind",
      "input"."id" as "resource_id",
      "input"."version" as "version_before",
      "input"."version" + 1 as "version_after",
      "input"."at" as "at",
      "input"."user" as "actor_id",
      "input"."actor" as "actor",
      "input"."token" as "token_id",
      "input"."request_id" as "request_id",
      "input"."client_address" as "client_address",
      "input"."command" as "command",
      "input"."salt" as "salt",
      decode("input"."identity_hash", 'hex') as "identity_hash",
      "input"."fields" as "fields",
      "input"."difference"::json as "difference",
      "input"."difference_bytes" as "difference_bytes",
      decode("input"."difference_hash", 'hex') as "difference_hash",
      decode("input"."definition_before", 'hex') as "definition_before",
      decode("input"."content_hash", 'hex') as "content_hash",
      decode("input"."previous_hash", 'hex') as "previous_hash",
      decode("input"."hash", 'hex') as "hash",
      decode("input"."idempotency_key", 'hex') as "idempotency_key",
      decode("input"."request_fingerprint", 'hex') as "request_fingerprint"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
  )
select
  *
from
  "changed";

-- tool_write(single definition+headers)
with
  "input" as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "shown_headers" text,
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "oauth_config_id" integer,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "grants" text,
          "changed_columns" text,
          "definition_hash" text,
          "field_versions" text,
          "hash" text,
          "definition_bytes" integer,
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
  "locked" as materialized (
    select
      "input".*
    from
      "input"
      inner join "tool" as "t" on "t"."id" = "input"."id"
      and "t"."version" = "input"."version"
    where
      "t"."secrets_generation" = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or (
          pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
          and not exists (
            select
            from
              "unchanged_update" as "u"
            where
              "u"."idempotency_key" = decode("input"."idempotency_key", 'hex')
          )
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                "t"."id" as "token_id",
                "u"."id" as "user_id",
                "u"."email",
                "u"."kind",
                "u"."active",
                "t"."persona_ids",
                "t"."tool_ids",
                "t"."requires_if_match",
                "granted"."permission",
                "granted"."managed_groups",
                to_char(timezone ('UTC', "t"."expires_at"), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "expires_at",
                coalesce("t"."expires_at" <= clock_timestamp(), false) as "expired",
                "t"."revoked_at" is not null as "revoked",
                coalesce("t"."scopes" @> array['read'], false) as "read_only",
                coalesce("t"."last_used_at" < (clock_timestamp() - interval '1 minute'), true) as "use_is_stale",
                cast(
                  row (
                    "granted"."permission",
                    "granted"."managed_groups",
                    "t"."persona_ids",
                    "t"."tool_ids",
                    "t"."requires_if_match",
                    coalesce("t"."scopes" @> array['read'], false)
                  ) as text
                ) as "grants"
              from
                "token" as "t"
                cross join lateral (
                  select
                    *
                  from
                    "user_account"
                  where
                    "user_account"."id" = "t"."user_id"
                  offset
                    0
                ) as "u"
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any ("g"."permissions") then 3
                          when 'manage:actions' = any ("g"."permissions") then 2
                          else 1
                        end
                      ),
                      1
                    ) as "permission",
                    coalesce(
                      array_agg(
                        "m"."user_group_id"
                        order by
                          "m"."user_group_id"
                      ) filter (
                        where
                          "m"."is_manager"
                      ),
                      '{}'
                    ) as "managed"
                  from
                    "user_group_member" as "m"
                    inner join "user_group" as "g" on "g"."id" = "m"."user_group_id"
                  where
                    "m"."user_id" = "u"."id"
                ) as "held"
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any ("u"."permissions") then 3
                          when 'manage:actions' = any ("u"."permissions") then 2
                          else 1
                        end,
                        "held"."permission"
                      ),
                      case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end
                    ) as "permission",
                    case
                      when case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end >= 2 then "held"."managed"
                      else '{}'
                    end as "managed_groups"
                ) as "granted"
              where
                "t"."id" = "input"."token"
              offset
                0
            ) as "caller"
          where
            (
              "active"
              and not "revoked"
              and not "expired"
              and "caller"."grants" = "input"."grants"
            )
        )
      )
      and (
        "input"."user" is null
        or (
          "t"."in_code_tool_id" is null
          and "t"."mcp_server_id" is null
          and (
            "input"."tools" is null
            or "t"."id" = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                "t"."user_id" = "input"."user"
                or "t"."id" = any (
                  array(
                    with
                      "asked" as materialized (
                        select
                          "t"."id"
                        from
                          unnest(array["t"."id"]) as "t" (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    "l"."persona_id",
                                    "l"."attached_by"
                                  from
                                    "persona_tool" as "l"
                                  where
                                    "l"."tool_id" = "t"."id"
                                    and "l"."tool_id" between "t"."id" and "t"."id"
                                  limit
                                    20
                                ) as "used"
                                inner join "persona" as "a" on "a"."id" = "used"."persona_id"
                              where
                                not "a"."deleted"
                                and not exists (
                                  select
                                  from
                                    "persona_group" as "s"
                                  where
                                    "s"."persona_id" = "a"."id"
                                    and "s"."user_group_id" = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                "persona_tool"
                              where
                                "tool_id" = "t"."id"
                              offset
                                1000
                            )
                          end
                      ),
                      "inside" as materialized (
                        select
                          "a"."id",
                          not "a"."deleted" as "lives",
                          "a"."owner_id"
                        from
                          (
                            select distinct
                              "used"."persona_id"
                            from
                              "asked" as "t"
                              cross join lateral (
                                select
                                  "l"."persona_id"
                                from
                                  "persona_tool" as "l"
                                where
                                  "l"."tool_id" = "t"."id"
                                  and "l"."tool_id" between "t"."id" and "t"."id"
                                offset
                                  0
                              ) as "used"
                          ) as "used"
                          cross join lateral (
                            select
                              "id",
                              "deleted",
                              "owner_id"
                            from
                              "persona"
                            where
                              "id" = "used"."persona_id"
                            offset
                              0
                          ) as "a"
                        where
                          (
                            "a"."deleted"
                            or exists (
                              select
                              from
                                "persona_group" as "s"
                              where
                                "s"."persona_id" = "a"."id"
                                and "s"."user_group_id" = any ("input"."managed_groups")
                            )
                          )
                      ),
                      "of_others" as materialized (
                        select
                          "id"
                        from
                          "inside"
                        where
                          "lives" = true
                          and "owner_id" is distinct from "input"."user"
                      )
                    select
                      "t"."id"
                    from
                      "asked" as "t"
                    where
                      not exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and "l"."persona_id" not in (
                            select
                              "inside"."id"
                            from
                              "inside"
                          )
                      )
                      and exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and case
                            when "l"."attached_by" is null then "l"."persona_id" in (
                              select
                                "of_others"."id"
                              from
                                "of_others"
                            )
                            else (
                              "l"."attached_by" <> "input"."user"
                              and "l"."attached_by" <> '00000000-0000-0000-0000-000000000000'
                              and "l"."persona_id" in (
                                select
                                  "inside"."id"
                                from
                                  "inside"
                                where
                                  "lives"
                              )
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
            "oauth_config" as "o"
          where
            "o"."id" = "input"."oauth_config_id"
            and (
              "o"."id" = "t"."oauth_config_id"
              or (
                "input"."manages_all"
                or "o"."owner_id" = "input"."user"
              )
            )
        )
      )
    for no key update of
      "t" skip locked
  ),
  "changed" as (
    update "tool" as "t"
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then cast(("input"."changed_columns"::jsonb ->> 'name') as text)
        else "t"."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then cast(("input"."changed_columns"::jsonb ->> 'display_name') as text)
        else "t"."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then cast(("input"."changed_columns"::jsonb ->> 'description') as text)
        else "t"."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then cast(("input"."changed_columns"::jsonb ->> 'in_code_tool_id') as text)
        else "t"."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then cast(("input"."changed_columns"::jsonb ->> 'passthrough_auth') as boolean)
        else "t"."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then cast(("input"."changed_columns"::jsonb ->> 'mcp_server_id') as integer)
        else "t"."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then cast(("input"."changed_columns"::jsonb ->> 'user_id') as uuid)
        else "t"."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then cast(("input"."changed_columns"::jsonb ->> 'oauth_config_id') as integer)
        else "t"."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then cast(("input"."changed_columns"::jsonb ->> 'enabled') as boolean)
        else "t"."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then cast(("input"."changed_columns"::jsonb ->> 'chat_selectable') as boolean)
        else "t"."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then cast(("input"."changed_columns"::jsonb ->> 'agent_creation_selectable') as boolean)
        else "t"."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then cast(("input"."changed_columns"::jsonb ->> 'default_enabled') as boolean)
        else "t"."default_enabled"
      end,
      "definition_hash" = decode("input"."definition_hash", 'hex'),
      "version" = "t"."version" + 1,
      "field_versions" = "t"."field_versions" || "input"."field_versions"::jsonb,
      "audit_head" = decode("input"."hash", 'hex'),
      "audit_count" = "t"."audit_count" + 1
    from
      "locked" as "input"
    where
      "t"."id" = "input"."id"
    returning
      "input"."position",
      "t"."version" as "version",
      "t"."id" as "id",
      "t"."name" as "name",
      "t"."description" as "description",
      null as "definition",
      coalesce("t"."display_name", "t"."name") as "display_name",
      "t"."in_code_tool_id" as "in_code_tool_id",
      "input"."shown_headers"::json as "custom_headers",
      "t"."passthrough_auth" as "passthrough_auth",
      "t"."mcp_server_id" as "mcp_server_id",
      "t"."user_id" as "user_id",
      "t"."oauth_config_id" as "oauth_config_id",
      (
        select
          "o"."name"
        from
          "oauth_config" as "o"
        where
          "o"."id" = "t"."oauth_config_id"
      ) as "oauth_config_name",
      "t"."enabled" as "enabled",
      "t"."chat_selectable" as "chat_selectable",
      "t"."agent_creation_selectable" as "agent_creation_selectable",
      "t"."default_enabled" as "default_enabled"
  ),
  "stored_definitions" as (
    insert into
      "tool_definition" ("hash", "content", "size_bytes")
    select
      decode("input"."definition_hash", 'hex') as "hash",
      cast($2::text as json) as "content",
      "input"."definition_bytes" as "size_bytes"
    from
      "locked" as "input"
    where
      not exists (
        select
        from
          "tool_definition" as "d"
        where
          "d"."hash" = decode("input"."definition_hash", 'hex')
      )
    on conflict ("hash") do nothing
  ),
  "new_headers" as (
    select
      "input"."id" as "tool_id",
      cast("g"."place" - 1 as integer) as "position",
      cast(("g"."value" ->> 'kept') as integer) as "kept",
      ("g"."value" ->> 'name') as "name",
      ("g"."value" ->> 'fingerprint') as "fingerprint",
      ("g"."value" ->> 'key_id') as "key_id",
      ("g"."value" ->> 'nonce') as "nonce",
      ("g"."value" ->> 'ciphertext') as "ciphertext"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
      cross join json_array_elements("input"."headers"::json) with ordinality as "g" (value, place)
  ),
  "removed_headers" as (
    delete from "tool_header" as "h" using "changed"
    inner join "locked" as "input" on "input"."position" = "changed"."position"
    where
      "h"."tool_id" = "input"."id"
      and "h"."position" >= json_array_length("input"."headers"::json)
  ),
  "put_headers" as (
    insert into
      "tool_header" ("tool_id", "position", "name", "key_id", "nonce", "ciphertext", "fingerprint")
    select
      "g"."tool_id",
      "g"."position",
      "g"."name",
      coalesce("g"."key_id", "kept"."key_id") as "key_id",
      coalesce(decode("g"."nonce", 'base64'), "kept"."nonce") as "nonce",
      coalesce(decode("g"."ciphertext", 'base64'), "kept"."ciphertext") as "ciphertext",
      decode("g"."fingerprint", 'hex') as "fingerprint"
    from
      "new_headers" as "g"
      left join "tool_header" as "kept" on "kept"."tool_id" = "g"."tool_id"
      and "kept"."position" = "g"."kept"
    on conflict ("tool_id", "position") do update
    set
      "name" = "excluded"."name",
      "key_id" = "excluded"."key_id",
      "nonce" = "excluded"."nonce",
      "ciphertext" = "excluded"."ciphertext",
      "fingerprint" = "excluded"."fingerprint"
  ),
  "audited" as (
    insert into
      "audit" (
        "resource_kind",
        "resource_id",
        "version_before",
        "version_after",
        "at",
        "actor_id",
        "actor",
        "token_id",
        "request_id",
        "client_address",
        "command",
        "salt",
        "identity_hash",
        "fields",
        "difference",
        "difference_bytes",
        "difference_hash",
        "definition_before",
        "content_hash",
        "previous_hash",
        "hash",
        "idempotency_key",
        "request_fingerprint"
      )
    select
      'tool' as "resource_kind",
      "input"."id" as "resource_id",
      "input"."version" as "version_before",
      "input"."version" + 1 as "version_after",
      "input"."at" as "at",
      "input"."user" as "actor_id",
      "input"."actor" as "actor",
      "input"."token" as "token_id",
      "input"."request_id" as "request_id",
      "input"."client_address" as "client_address",
      "input"."command" as "command",
      "input"."salt" as "salt",
      decode("input"."identity_hash", 'hex') as "identity_hash",
      "input"."fields" as "fields",
      "input"."difference"::json as "difference",
      "input"."difference_bytes" as "difference_bytes",
      decode("input"."difference_hash", 'hex') as "difference_hash",
      decode("input"."definition_before", 'hex') as "definition_before",
      decode("input"."content_hash", 'hex') as "content_hash",
      decode("input"."previous_hash", 'hex') as "previous_hash",
      decode("input"."hash", 'hex') as "hash",
      decode("input"."idempotency_key", 'hex') as "idempotency_key",
      decode("input"."request_fingerprint", 'hex') as "request_fingerprint"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
  )
select
  *
from
  "changed";

-- tool_write(shared definition+ minimal)
with
  "input" as materialized (
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
          "oauth_config_id" integer,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "grants" text,
          "definition_hash" text,
          "changed_columns" text,
          "field_versions" text,
          "hash" text,
          "definition_text" text,
          "definition_bytes" integer,
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
  "locked" as materialized (
    select
      "input".*
    from
      "input"
      inner join "tool" as "t" on "t"."id" = "input"."id"
      and "t"."version" = "input"."version"
    where
      "t"."secrets_generation" = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or (
          pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
          and not exists (
            select
            from
              "unchanged_update" as "u"
            where
              "u"."idempotency_key" = decode("input"."idempotency_key", 'hex')
          )
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                "t"."id" as "token_id",
                "u"."id" as "user_id",
                "u"."email",
                "u"."kind",
                "u"."active",
                "t"."persona_ids",
                "t"."tool_ids",
                "t"."requires_if_match",
                "granted"."permission",
                "granted"."managed_groups",
                to_char(timezone ('UTC', "t"."expires_at"), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "expires_at",
                coalesce("t"."expires_at" <= clock_timestamp(), false) as "expired",
                "t"."revoked_at" is not null as "revoked",
                coalesce("t"."scopes" @> array['read'], false) as "read_only",
                coalesce("t"."last_used_at" < (clock_timestamp() - interval '1 minute'), true) as "use_is_stale",
                cast(
                  row (
                    "granted"."permission",
                    "granted"."managed_groups",
                    "t"."persona_ids",
                    "t"."tool_ids",
                    "t"."requires_if_match",
                    coalesce("t"."scopes" @> array['read'], false)
                  ) as text
                ) as "grants"
              from
                "token" as "t"
                cross join lateral (
                  select
                    *
                  from
                    "user_account"
                  where
                    "user_account"."id" = "t"."user_id"
                  offset
                    0
                ) as "u"
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any ("g"."permissions") then 3
                          when 'manage:actions' = any ("g"."permissions") then 2
                          else 1
                        end
                      ),
                      1
                    ) as "permission",
                    coalesce(
                      array_agg(
                        "m"."user_group_id"
                        order by
                          "m"."user_group_id"
                      ) filter (
                        where
                          "m"."is_manager"
                      ),
                      '{}'
                    ) as "managed"
                  from
                    "user_group_member" as "m"
                    inner join "user_group" as "g" on "g"."id" = "m"."user_group_id"
                  where
                    "m"."user_id" = "u"."id"
                ) as "held"
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any ("u"."permissions") then 3
                          when 'manage:actions' = any ("u"."permissions") then 2
                          else 1
                        end,
                        "held"."permission"
                      ),
                      case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end
                    ) as "permission",
                    case
                      when case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end >= 2 then "held"."managed"
                      else '{}'
                    end as "managed_groups"
                ) as "granted"
              where
                "t"."id" = "input"."token"
              offset
                0
            ) as "caller"
          where
            (
              "active"
              and not "revoked"
              and not "expired"
              and "caller"."grants" = "input"."grants"
            )
        )
      )
      and (
        "input"."user" is null
        or (
          "t"."in_code_tool_id" is null
          and "t"."mcp_server_id" is null
          and (
            "input"."tools" is null
            or "t"."id" = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                "t"."user_id" = "input"."user"
                or "t"."id" = any (
                  array(
                    with
                      "asked" as materialized (
                        select
                          "t"."id"
                        from
                          unnest(array["t"."id"]) as "t" (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    "l"."persona_id",
                                    "l"."attached_by"
                                  from
                                    "persona_tool" as "l"
                                  where
                                    "l"."tool_id" = "t"."id"
                                    and "l"."tool_id" between "t"."id" and "t"."id"
                                  limit
                                    20
                                ) as "used"
                                inner join "persona" as "a" on "a"."id" = "used"."persona_id"
                              where
                                not "a"."deleted"
                                and not exists (
                                  select
                                  from
                                    "persona_group" as "s"
                                  where
                                    "s"."persona_id" = "a"."id"
                                    and "s"."user_group_id" = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                "persona_tool"
                              where
                                "tool_id" = "t"."id"
                              offset
                                1000
                            )
                          end
                      ),
                      "inside" as materialized (
                        select
                          "a"."id",
                          not "a"."deleted" as "lives",
                          "a"."owner_id"
                        from
                          (
                            select distinct
                              "used"."persona_id"
                            from
                              "asked" as "t"
                              cross join lateral (
                                select
                                  "l"."persona_id"
                                from
                                  "persona_tool" as "l"
                                where
                                  "l"."tool_id" = "t"."id"
                                  and "l"."tool_id" between "t"."id" and "t"."id"
                                offset
                                  0
                              ) as "used"
                          ) as "used"
                          cross join lateral (
                            select
                              "id",
                              "deleted",
                              "owner_id"
                            from
                              "persona"
                            where
                              "id" = "used"."persona_id"
                            offset
                              0
                          ) as "a"
                        where
                          (
                            "a"."deleted"
                            or exists (
                              select
                              from
                                "persona_group" as "s"
                              where
                                "s"."persona_id" = "a"."id"
                                and "s"."user_group_id" = any ("input"."managed_groups")
                            )
                          )
                      ),
                      "of_others" as materialized (
                        select
                          "id"
                        from
                          "inside"
                        where
                          "lives" = true
                          and "owner_id" is distinct from "input"."user"
                      )
                    select
                      "t"."id"
                    from
                      "asked" as "t"
                    where
                      not exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and "l"."persona_id" not in (
                            select
                              "inside"."id"
                            from
                              "inside"
                          )
                      )
                      and exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and case
                            when "l"."attached_by" is null then "l"."persona_id" in (
                              select
                                "of_others"."id"
                              from
                                "of_others"
                            )
                            else (
                              "l"."attached_by" <> "input"."user"
                              and "l"."attached_by" <> '00000000-0000-0000-0000-000000000000'
                              and "l"."persona_id" in (
                                select
                                  "inside"."id"
                                from
                                  "inside"
                                where
                                  "lives"
                              )
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
            "oauth_config" as "o"
          where
            "o"."id" = "input"."oauth_config_id"
            and (
              "o"."id" = "t"."oauth_config_id"
              or (
                "input"."manages_all"
                or "o"."owner_id" = "input"."user"
              )
            )
        )
      )
      and exists (
        select
        from
          "tool_definition" as "d"
        where
          "d"."hash" = decode("input"."definition_hash", 'hex')
      )
    for no key update of
      "t" skip locked
  ),
  "changed" as (
    update "tool" as "t"
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then cast(("input"."changed_columns"::jsonb ->> 'name') as text)
        else "t"."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then cast(("input"."changed_columns"::jsonb ->> 'display_name') as text)
        else "t"."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then cast(("input"."changed_columns"::jsonb ->> 'description') as text)
        else "t"."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then cast(("input"."changed_columns"::jsonb ->> 'in_code_tool_id') as text)
        else "t"."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then cast(("input"."changed_columns"::jsonb ->> 'passthrough_auth') as boolean)
        else "t"."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then cast(("input"."changed_columns"::jsonb ->> 'mcp_server_id') as integer)
        else "t"."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then cast(("input"."changed_columns"::jsonb ->> 'user_id') as uuid)
        else "t"."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then cast(("input"."changed_columns"::jsonb ->> 'oauth_config_id') as integer)
        else "t"."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then cast(("input"."changed_columns"::jsonb ->> 'enabled') as boolean)
        else "t"."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then cast(("input"."changed_columns"::jsonb ->> 'chat_selectable') as boolean)
        else "t"."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then cast(("input"."changed_columns"::jsonb ->> 'agent_creation_selectable') as boolean)
        else "t"."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then cast(("input"."changed_columns"::jsonb ->> 'default_enabled') as boolean)
        else "t"."default_enabled"
      end,
      "definition_hash" = decode("input"."definition_hash", 'hex'),
      "version" = "t"."version" + 1,
      "field_versions" = "t"."field_versions" || "input"."field_versions"::jsonb,
      "audit_head" = decode("input"."hash", 'hex'),
      "audit_count" = "t"."audit_count" + 1
    from
      "locked" as "input"
    where
      "t"."id" = "input"."id"
    returning
      "input"."position",
      "t"."version" as "version"
  ),
  "stored_definitions" as (
    insert into
      "tool_definition" ("hash", "content", "size_bytes")
    select
      decode("input"."definition_hash", 'hex') as "hash",
      cast("input"."definition_text" as json) as "content",
      "input"."definition_bytes" as "size_bytes"
    from
      "locked" as "input"
    where
      not exists (
        select
        from
          "tool_definition" as "d"
        where
          "d"."hash" = decode("input"."definition_hash", 'hex')
      )
    on conflict ("hash") do nothing
  ),
  "audited" as (
    insert into
      "audit" (
        "resource_kind",
        "resource_id",
        "version_before",
        "version_after",
        "at",
        "actor_id",
        "actor",
        "token_id",
        "request_id",
        "client_address",
        "command",
        "salt",
        "identity_hash",
        "fields",
        "difference",
        "difference_bytes",
        "difference_hash",
        "definition_before",
        "content_hash",
        "previous_hash",
        "hash",
        "idempotency_key",
        "request_fingerprint"
      )
    select
      'tool' as "resource_kind",
      "input"."id" as "resource_id",
      "input"."version" as "version_before",
      "input"."version" + 1 as "version_after",
      "input"."at" as "at",
      "input"."user" as "actor_id",
      "input"."actor" as "actor",
      "input"."token" as "token_id",
      "input"."request_id" as "request_id",
      "input"."client_address" as "client_address",
      "input"."command" as "command",
      "input"."salt" as "salt",
      decode("input"."identity_hash", 'hex') as "identity_hash",
      "input"."fields" as "fields",
      "input"."difference"::json as "difference",
      "input"."difference_bytes" as "difference_bytes",
      decode("input"."difference_hash", 'hex') as "difference_hash",
      decode("input"."definition_before", 'hex') as "definition_before",
      decode("input"."content_hash", 'hex') as "content_hash",
      decode("input"."previous_hash", 'hex') as "previous_hash",
      decode("input"."hash", 'hex') as "hash",
      decode("input"."idempotency_key", 'hex') as "idempotency_key",
      decode("input"."request_fingerprint", 'hex') as "request_fingerprint"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
  )
select
  *
from
  "changed";

-- tool_write(+ minimal)
with
  "input" as materialized (
    select
      ordinality::integer as position,
      listed.*
    from
      rows
    from
      (
        json_to_recordset($1::json) as (
          "cached_definitions" bytea[],
          "user" uuid,
          "manages_all" boolean,
          "managed_groups" integer[],
          "tools" integer[],
          "is_admin" boolean,
          "oauth_config_id" integer,
          "id" integer,
          "version" integer,
          "secrets_generation" integer,
          "idempotency_key" text,
          "token" integer,
          "grants" text,
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
  "locked" as materialized (
    select
      "input".*
    from
      "input"
      inner join "tool" as "t" on "t"."id" = "input"."id"
      and "t"."version" = "input"."version"
    where
      "t"."secrets_generation" = "input"."secrets_generation"
      and (
        "input"."idempotency_key" is null
        or (
          pg_try_advisory_xact_lock(('x' || left("input"."idempotency_key", 16))::bit(64)::bigint)
          and not exists (
            select
            from
              "unchanged_update" as "u"
            where
              "u"."idempotency_key" = decode("input"."idempotency_key", 'hex')
          )
        )
      )
      and (
        "input"."token" is null
        or exists (
          select
          from
            (
              select
                "t"."id" as "token_id",
                "u"."id" as "user_id",
                "u"."email",
                "u"."kind",
                "u"."active",
                "t"."persona_ids",
                "t"."tool_ids",
                "t"."requires_if_match",
                "granted"."permission",
                "granted"."managed_groups",
                to_char(timezone ('UTC', "t"."expires_at"), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "expires_at",
                coalesce("t"."expires_at" <= clock_timestamp(), false) as "expired",
                "t"."revoked_at" is not null as "revoked",
                coalesce("t"."scopes" @> array['read'], false) as "read_only",
                coalesce("t"."last_used_at" < (clock_timestamp() - interval '1 minute'), true) as "use_is_stale",
                cast(
                  row (
                    "granted"."permission",
                    "granted"."managed_groups",
                    "t"."persona_ids",
                    "t"."tool_ids",
                    "t"."requires_if_match",
                    coalesce("t"."scopes" @> array['read'], false)
                  ) as text
                ) as "grants"
              from
                "token" as "t"
                cross join lateral (
                  select
                    *
                  from
                    "user_account"
                  where
                    "user_account"."id" = "t"."user_id"
                  offset
                    0
                ) as "u"
                cross join lateral (
                  select
                    coalesce(
                      max(
                        case
                          when 'admin' = any ("g"."permissions") then 3
                          when 'manage:actions' = any ("g"."permissions") then 2
                          else 1
                        end
                      ),
                      1
                    ) as "permission",
                    coalesce(
                      array_agg(
                        "m"."user_group_id"
                        order by
                          "m"."user_group_id"
                      ) filter (
                        where
                          "m"."is_manager"
                      ),
                      '{}'
                    ) as "managed"
                  from
                    "user_group_member" as "m"
                    inner join "user_group" as "g" on "g"."id" = "m"."user_group_id"
                  where
                    "m"."user_id" = "u"."id"
                ) as "held"
                cross join lateral (
                  select
                    least(
                      greatest(
                        case
                          when 'admin' = any ("u"."permissions") then 3
                          when 'manage:actions' = any ("u"."permissions") then 2
                          else 1
                        end,
                        "held"."permission"
                      ),
                      case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end
                    ) as "permission",
                    case
                      when case
                        when (
                          "t"."scopes" is null
                          or "t"."scopes" = array['read']
                        ) then 3
                        else case
                          when 'admin' = any ("t"."scopes") then 3
                          when 'manage:actions' = any ("t"."scopes") then 2
                          else 1
                        end
                      end >= 2 then "held"."managed"
                      else '{}'
                    end as "managed_groups"
                ) as "granted"
              where
                "t"."id" = "input"."token"
              offset
                0
            ) as "caller"
          where
            (
              "active"
              and not "revoked"
              and not "expired"
              and "caller"."grants" = "input"."grants"
            )
        )
      )
      and (
        "input"."user" is null
        or (
          "t"."in_code_tool_id" is null
          and "t"."mcp_server_id" is null
          and (
            "input"."tools" is null
            or "t"."id" = any ("input"."tools")
          )
          and (
            "input"."manages_all"
            or (
              cardinality("input"."managed_groups") > 0
              and (
                "t"."user_id" = "input"."user"
                or "t"."id" = any (
                  array(
                    with
                      "asked" as materialized (
                        select
                          "t"."id"
                        from
                          unnest(array["t"."id"]) as "t" (id)
                        where
                          case
                            when exists (
                              select
                              from
                                (
                                  select
                                    "l"."persona_id",
                                    "l"."attached_by"
                                  from
                                    "persona_tool" as "l"
                                  where
                                    "l"."tool_id" = "t"."id"
                                    and "l"."tool_id" between "t"."id" and "t"."id"
                                  limit
                                    20
                                ) as "used"
                                inner join "persona" as "a" on "a"."id" = "used"."persona_id"
                              where
                                not "a"."deleted"
                                and not exists (
                                  select
                                  from
                                    "persona_group" as "s"
                                  where
                                    "s"."persona_id" = "a"."id"
                                    and "s"."user_group_id" = any ("input"."managed_groups")
                                )
                            ) then false
                            else not exists (
                              select
                              from
                                "persona_tool"
                              where
                                "tool_id" = "t"."id"
                              offset
                                1000
                            )
                          end
                      ),
                      "inside" as materialized (
                        select
                          "a"."id",
                          not "a"."deleted" as "lives",
                          "a"."owner_id"
                        from
                          (
                            select distinct
                              "used"."persona_id"
                            from
                              "asked" as "t"
                              cross join lateral (
                                select
                                  "l"."persona_id"
                                from
                                  "persona_tool" as "l"
                                where
                                  "l"."tool_id" = "t"."id"
                                  and "l"."tool_id" between "t"."id" and "t"."id"
                                offset
                                  0
                              ) as "used"
                          ) as "used"
                          cross join lateral (
                            select
                              "id",
                              "deleted",
                              "owner_id"
                            from
                              "persona"
                            where
                              "id" = "used"."persona_id"
                            offset
                              0
                          ) as "a"
                        where
                          (
                            "a"."deleted"
                            or exists (
                              select
                              from
                                "persona_group" as "s"
                              where
                                "s"."persona_id" = "a"."id"
                                and "s"."user_group_id" = any ("input"."managed_groups")
                            )
                          )
                      ),
                      "of_others" as materialized (
                        select
                          "id"
                        from
                          "inside"
                        where
                          "lives" = true
                          and "owner_id" is distinct from "input"."user"
                      )
                    select
                      "t"."id"
                    from
                      "asked" as "t"
                    where
                      not exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and "l"."persona_id" not in (
                            select
                              "inside"."id"
                            from
                              "inside"
                          )
                      )
                      and exists (
                        select
                        from
                          "persona_tool" as "l"
                        where
                          "l"."tool_id" = "t"."id"
                          and "l"."tool_id" between "t"."id" and "t"."id"
                          and case
                            when "l"."attached_by" is null then "l"."persona_id" in (
                              select
                                "of_others"."id"
                              from
                                "of_others"
                            )
                            else (
                              "l"."attached_by" <> "input"."user"
                              and "l"."attached_by" <> '00000000-0000-0000-0000-000000000000'
                              and "l"."persona_id" in (
                                select
                                  "inside"."id"
                                from
                                  "inside"
                                where
                                  "lives"
                              )
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
            "oauth_config" as "o"
          where
            "o"."id" = "input"."oauth_config_id"
            and (
              "o"."id" = "t"."oauth_config_id"
              or (
                "input"."manages_all"
                or "o"."owner_id" = "input"."user"
              )
            )
        )
      )
    for no key update of
      "t" skip locked
  ),
  "changed" as (
    update "tool" as "t"
    set
      "name" = case
        when "input"."changed_columns"::jsonb ? 'name' then cast(("input"."changed_columns"::jsonb ->> 'name') as text)
        else "t"."name"
      end,
      "display_name" = case
        when "input"."changed_columns"::jsonb ? 'display_name' then cast(("input"."changed_columns"::jsonb ->> 'display_name') as text)
        else "t"."display_name"
      end,
      "description" = case
        when "input"."changed_columns"::jsonb ? 'description' then cast(("input"."changed_columns"::jsonb ->> 'description') as text)
        else "t"."description"
      end,
      "in_code_tool_id" = case
        when "input"."changed_columns"::jsonb ? 'in_code_tool_id' then cast(("input"."changed_columns"::jsonb ->> 'in_code_tool_id') as text)
        else "t"."in_code_tool_id"
      end,
      "passthrough_auth" = case
        when "input"."changed_columns"::jsonb ? 'passthrough_auth' then cast(("input"."changed_columns"::jsonb ->> 'passthrough_auth') as boolean)
        else "t"."passthrough_auth"
      end,
      "mcp_server_id" = case
        when "input"."changed_columns"::jsonb ? 'mcp_server_id' then cast(("input"."changed_columns"::jsonb ->> 'mcp_server_id') as integer)
        else "t"."mcp_server_id"
      end,
      "user_id" = case
        when "input"."changed_columns"::jsonb ? 'user_id' then cast(("input"."changed_columns"::jsonb ->> 'user_id') as uuid)
        else "t"."user_id"
      end,
      "oauth_config_id" = case
        when "input"."changed_columns"::jsonb ? 'oauth_config_id' then cast(("input"."changed_columns"::jsonb ->> 'oauth_config_id') as integer)
        else "t"."oauth_config_id"
      end,
      "enabled" = case
        when "input"."changed_columns"::jsonb ? 'enabled' then cast(("input"."changed_columns"::jsonb ->> 'enabled') as boolean)
        else "t"."enabled"
      end,
      "chat_selectable" = case
        when "input"."changed_columns"::jsonb ? 'chat_selectable' then cast(("input"."changed_columns"::jsonb ->> 'chat_selectable') as boolean)
        else "t"."chat_selectable"
      end,
      "agent_creation_selectable" = case
        when "input"."changed_columns"::jsonb ? 'agent_creation_selectable' then cast(("input"."changed_columns"::jsonb ->> 'agent_creation_selectable') as boolean)
        else "t"."agent_creation_selectable"
      end,
      "default_enabled" = case
        when "input"."changed_columns"::jsonb ? 'default_enabled' then cast(("input"."changed_columns"::jsonb ->> 'default_enabled') as boolean)
        else "t"."default_enabled"
      end,
      "definition_hash" = decode("input"."definition_hash", 'hex'),
      "version" = "t"."version" + 1,
      "field_versions" = "t"."field_versions" || "input"."field_versions"::jsonb,
      "audit_head" = decode("input"."hash", 'hex'),
      "audit_count" = "t"."audit_count" + 1
    from
      "locked" as "input"
    where
      "t"."id" = "input"."id"
    returning
      "input"."position",
      "t"."version" as "version"
  ),
  "audited" as (
    insert into
      "audit" (
        "resource_kind",
        "resource_id",
        "version_before",
        "version_after",
        "at",
        "actor_id",
        "actor",
        "token_id",
        "request_id",
        "client_address",
        "command",
        "salt",
        "identity_hash",
        "fields",
        "difference",
        "difference_bytes",
        "difference_hash",
        "definition_before",
        "content_hash",
        "previous_hash",
        "hash",
        "idempotency_key",
        "request_fingerprint"
      )
    select
      'tool' as "resource_kind",
      "input"."id" as "resource_id",
      "input"."version" as "version_before",
      "input"."version" + 1 as "version_after",
      "input"."at" as "at",
      "input"."user" as "actor_id",
      "input"."actor" as "actor",
      "input"."token" as "token_id",
      "input"."request_id" as "request_id",
      "input"."client_address" as "client_address",
      "input"."command" as "command",
      "input"."salt" as "salt",
      decode("input"."identity_hash", 'hex') as "identity_hash",
      "input"."fields" as "fields",
      "input"."difference"::json as "difference",
      "input"."difference_bytes" as "difference_bytes",
      decode("input"."difference_hash", 'hex') as "difference_hash",
      decode("input"."definition_before", 'hex') as "definition_before",
      decode("input"."content_hash", 'hex') as "content_hash",
      decode("input"."previous_hash", 'hex') as "previous_hash",
      decode("input"."hash", 'hex') as "hash",
      decode("input"."idempotency_key", 'hex') as "idempotency_key",
      decode("input"."request_fingerprint", 'hex') as "request_fingerprint"
    from
      "changed"
      inner join "locked" as "input" on "input"."position" = "changed"."position"
  )
select
  *
from
  "changed";
