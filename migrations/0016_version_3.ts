import { type Kysely, sql } from 'kysely'
import { checkDefinition, functionNames } from '../src/definition/index.js'

export const oldestProgram = '3.0.0'

/** Upgrades the schema from 2.1 to 3.0. The service must be stopped. Access rules that several statements use become a view and functions. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await moveKeys(db)
  await nameMasks(db)
  await simplifyChains(db)
  await addChangeFeed(db)
  await addNewAudit(db)
  await addProposals(db)
  await addAccessRules(db)
  await addShownRecords(db)
  await addRuntimes(db)
  await addFunctionNames(db)
}

/**
 * Moves requests with an `Idempotency-Key` to a separate table. `key` is the SHA-256 of the caller's id and the `Idempotency-Key`. `fingerprint` is
 * the SHA-256 of the request, in which header values are hashed with the encryption key that `key_id` names. A row without a fingerprint belongs to
 * a running transaction. If a request changed nothing, version 2.1 did not store its resource.
 */
async function moveKeys(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table request_key (
      key bytea not null constraint request_key_pk primary key,
      fingerprint bytea,
      resource_id integer,
      version integer,
      at timestamptz not null default clock_timestamp(),
      key_id text)`.execute(db)
  await sql`
    insert into request_key
    select idempotency_key, request_fingerprint, resource_id, version_after, at from audit
    where idempotency_key is not null`.execute(db)
  await sql`
    insert into request_key
    select idempotency_key, request_fingerprint, null, version, at from unchanged_update
    on conflict do nothing`.execute(db)
  await sql`drop table unchanged_update`.execute(db)
  await sql`alter table audit drop column idempotency_key, drop column request_fingerprint`.execute(db)
}

/** Renames the fingerprints of header values to masks, and drops the key for computing them. Allows private agents to be featured, as Onyx does. */
async function nameMasks(db: Kysely<unknown>): Promise<void> {
  await sql`alter table tool_header rename column fingerprint to mask`.execute(db)
  await sql`drop table deployment_key`.execute(db)
  await sql`alter table tool drop column secrets_generation`.execute(db)
  await sql`alter table persona drop constraint if exists persona_default_public`.execute(db)
}

/**
 * Simplifies the hash chains of the audit trail. The hashes no longer cover emails, client addresses and request ids, so that personal data can be
 * erased. Existing rows lose their hashes. The new chain of each resource starts with its next row. Access events are no longer in a chain.
 */
async function simplifyChains(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table audit drop constraint audit_resource_kind_known, drop column actor, drop column salt, drop column identity_hash, drop column content_hash,
      drop column previous_hash, drop column hash, add column previous_hash bytea, add column hash bytea`.execute(db)
  for (const table of ['persona', 'tool']) {
    await sql`
      alter table ${sql.table(table)} drop column audit_head, drop column audit_count, drop column audit_anchor,
        drop column audit_anchor_version, drop column audit_anchor_at, drop column field_versions,
        add column recent_changes jsonb not null default '[]',
        add column audit_head bytea not null default decode(repeat('00', 32), 'hex'),
        add column audit_anchor bytea not null default decode(repeat('00', 32), 'hex')`.execute(db)
  }
  await sql`
    create function audit_hash(previous bytea, kind text, id integer, version_before integer, version_after integer, at timestamptz,
      actor uuid, token integer, command text, fields text[], difference_hash bytea) returns bytea
    language sql stable as $$
      select sha256(convert_to(json_build_array(encode(previous, 'hex'), kind, id, version_before, version_after,
        to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), actor, token, command, fields,
        encode(difference_hash, 'hex'))::text, 'UTF8'))
    $$`.execute(db)
  await sql`drop table access_chain; drop table audit_upgrade_head`.execute(db)
  await sql`delete from access_event where kind in ('prune', 'erasure')`.execute(db)
  await sql`
    alter table access_event drop constraint access_event_pk, drop column number, drop column actor, drop column salt,
      drop column identity_hash, drop column person, drop column person_salt, drop column person_hash,
      drop column previous_hash, drop column hash,
      add column id bigint generated always as identity constraint access_event_pk primary key`.execute(db)
  await sql`create index access_event_by_subject on access_event (kind, subject)`.execute(db)
}

/** Adds a type and a view for new audit rows, and a default for `audit.at`. The type lacks `difference`, `previous_hash` and `hash`. */
async function addNewAudit(db: Kysely<unknown>): Promise<void> {
  await sql`
    create type audit_values as (resource_kind text, resource_id integer, version_before integer, version_after integer, actor_id uuid,
      token_id integer, request_id text, client_address text, command text, fields text[], difference_bytes integer,
      difference_hash bytea, definition_before bytea, taken_from jsonb)`.execute(db)
  await sql`alter table audit alter column at set default statement_timestamp()`.execute(db)
  await sql`
    create view new_audit as
    select resource_kind, resource_id, version_before, version_after, actor_id, token_id, request_id, client_address, command, fields,
      difference_bytes, difference_hash, definition_before, taken_from, difference, previous_hash, hash
    from audit`.execute(db)
  await sql`
    create function next_audit_hash(previous bytea, entry audit_values) returns bytea
    language sql stable as $$
      select audit_hash(previous, entry.resource_kind, entry.resource_id, entry.version_before, entry.version_after,
        statement_timestamp(), entry.actor_id, entry.token_id, entry.command, entry.fields, entry.difference_hash)
    $$`.execute(db)
}

/**
 * Adds proposed updates. `fields` contains the requested values, with a hash instead of a definition and masks instead of header values.
 * `size_bytes` includes the definition. The feed of changes has two rows for each proposal: one for its creation and one for its closing.
 */
async function addProposals(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table proposal (
      id integer generated always as identity constraint proposal_pk primary key,
      resource_kind text not null constraint proposal_resource_kind check (resource_kind in ('persona', 'tool')),
      resource_id integer not null,
      base_version integer not null,
      author_id uuid not null constraint proposal_author_fk references user_account,
      message text not null,
      fields json not null,
      definition_hash bytea constraint proposal_definition_fk references tool_definition,
      size_bytes integer not null,
      created_at timestamptz not null default clock_timestamp(),
      state text not null default 'open'
        constraint proposal_state check (state in ('open', 'approved', 'rejected', 'withdrawn', 'closed')),
      closed_at timestamptz,
      closed_by uuid constraint proposal_closed_by_fk references user_account,
      reason text,
      opened_transaction_id xid8 default pg_current_xact_id(),
      opened_place bigint not null default nextval('change_place'),
      closed_transaction_id xid8,
      closed_place bigint)`.execute(db)
  await sql`create index proposal_open_by_record on proposal (resource_kind, resource_id) where state = 'open'`.execute(
    db,
  )
  await sql`create index proposal_by_record on proposal (resource_id, resource_kind)`.execute(db)
  await sql`create index proposal_by_author on proposal (author_id)`.execute(db)
  await sql`create index proposal_by_closer on proposal (closed_by) where closed_by is not null`.execute(db)
  await sql`
    create index proposal_by_definition on proposal (definition_hash) where definition_hash is not null`.execute(db)
  for (const end of ['opened', 'closed']) {
    const [transaction, place] = [sql.ref(`${end}_transaction_id`), sql.ref(`${end}_place`)]
    await sql`
      create index ${sql.ref(`proposal_by_${end}_place`)} on proposal (${transaction}, ${place})
      where ${transaction} is not null`.execute(db)
  }
  // A change is published when no open transaction can still add an earlier change.
  // The emails are sub-selects, because with joins each read would sort all proposals.
  await sql`
    create view stored_change as
    select concat(f.id, '.', c.transaction_id, '.', c.place) as cursor,
      c.transaction_id < pg_snapshot_xmin(pg_current_snapshot()) as is_published,
      to_char(c.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as instant, c.*
    from (
      select transaction_id, place, resource_kind as kind, resource_id as id, resource_kind, resource_id, version_after as version, at,
        action, actor_id, author, command, fields, taken_from, null::uuid as proposer_id
      from audit_entry
      union all
      select opened_transaction_id, opened_place, 'proposal', p.id, resource_kind, resource_id, 1, p.created_at,
        'proposed', author_id, (select email from user_account where id = author_id), null, '{}'::text[], null, author_id
      from proposal p
      union all
      select closed_transaction_id, closed_place, 'proposal', p.id, resource_kind, resource_id, 2, closed_at,
        state, closed_by, coalesce((select email from user_account where id = closed_by), 'agentctl'), null, '{}'::text[], case state when 'closed' then
          (select a.taken_from from audit a where a.transaction_id = closed_transaction_id
            and a.resource_kind = p.resource_kind and a.resource_id = p.resource_id limit 1) end, author_id
      from proposal p
    ) c cross join change_feed f`.execute(db)
  await sql`
    create view feed_ends as
    select f.id as feed, f.pruned_transaction_id as first_transaction_id, f.pruned_place as first_place,
      last.transaction_id as last_transaction_id, last.place as last_place
    from change_feed f cross join lateral (
      (select transaction_id, place from stored_change where is_published order by 1 desc, 2 desc limit 1)
      union all select f.pruned_transaction_id, f.pruned_place
      order by 1 desc, 2 desc limit 1) last`.execute(db)
}

/**
 * Adds the feed of changes. The position of a row is its `transaction_id` and `place`. Existing rows have no position and are not in the feed.
 * `taken_from` lists who lost access to the agent through the change. The only row of `change_feed` has the feed's id, which every cursor contains.
 */
async function addChangeFeed(db: Kysely<unknown>): Promise<void> {
  await sql`create sequence change_place`.execute(db)
  await sql`
    alter table audit add column transaction_id xid8, add column place bigint, add column taken_from jsonb,
      alter column transaction_id set default pg_current_xact_id(),
      alter column place set default nextval('change_place')`.execute(db)
  await sql`
    create index audit_by_place on audit (transaction_id, place) where transaction_id is not null`.execute(db)
  await sql`
    create table change_feed (
      id uuid not null,
      system_identifier bigint not null,
      database_oid oid not null,
      pruned_transaction_id xid8 not null default '0',
      pruned_place bigint not null default 0,
      is_only boolean not null default true constraint change_feed_pk primary key constraint change_feed_is_only check (is_only))`.execute(
    db,
  )
  await sql`
    insert into change_feed (id, system_identifier, database_oid)
    select gen_random_uuid(), s.system_identifier, d.oid from pg_control_system() s, pg_database d
    where d.datname = current_database()`.execute(db)
  // If the id of a removed tool is used again, the action is `created`. With `exists` instead of `coalesce`, the planner would read all audit rows.
  await sql`
    create view audit_entry as
    select a.*, case
      when a.version_before = 0 or a.difference #>> '{name,from}' = '' or coalesce((
        select 'removed' = any (r.fields) from audit r where r.resource_kind = a.resource_kind and r.resource_id = a.resource_id
          and r.version_after = a.version_before), false) then 'created'
      when a.command ~ '^(agentctl (rollback|agent restore|tool restore)|restore )' or a.difference #>> '{deleted,to}' = 'false'
        then 'restored'
      when a.fields && '{removed,deleted}' then 'deleted'
      when a.actor_id is null then 'applied' else 'updated' end as action,
      coalesce((select email from user_account where id = a.actor_id), a.actor_id::text, 'agentctl') as author
    from audit a`.execute(db)
}

/** Adds access rules that several statements use (DECISIONS sections 6 and 7). The planner inlines them into the calling statement. */
async function addAccessRules(db: Kysely<unknown>): Promise<void> {
  // The combined rights of each token. `permission` is 1 (basic), 2 (manage:actions) or 3 (admin). `offset 0` stops the planner from merging a
  // subquery, so that the subquery looks up one row by key, or computes a value only once.
  await sql`
    create view caller as
    select t.hash, t.id as token_id, u.id as user_id, u.email, u.kind,
      t.revoked_at is null and u.active as valid,
      coalesce(t.expires_at <= clock_timestamp(), false) as expired,
      to_char(t.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as expires_at,
      coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true) as use_is_stale,
      t.scopes, t.persona_ids, t.tool_ids, t.requires_if_match, granted.permission, granted.managed_groups,
      row(granted.permission, granted.managed_groups, t.scopes, t.persona_ids, t.tool_ids, t.requires_if_match)::text as grants
    from token t
    cross join lateral (select * from user_account where id = t.user_id offset 0) u
    cross join lateral (
      select coalesce(max(1 + (g.permissions && '{manage:actions,admin}')::integer + (g.permissions @> '{admin}')::integer), 1)
          as permission,
        coalesce(array_agg(m.user_group_id order by m.user_group_id) filter (where m.is_manager), '{}') as managed
      from user_group_member m
      cross join lateral (select permissions from user_group where id = m.user_group_id offset 0) g
      where m.user_id = u.id
    ) held
    cross join lateral (
      select 1 + (u.permissions && '{manage:actions,admin}')::integer + (u.permissions @> '{admin}')::integer as own,
        case when t.scopes is null or t.scopes in ('{read}', '{runtime}', '{propose}') then 3
          else 1 + (t.scopes && '{manage:actions,admin}')::integer + (t.scopes @> '{admin}')::integer end as scope
    ) ranked
    cross join lateral (
      select least(greatest(own, held.permission), scope) as permission,
        case when scope >= 2 then held.managed else '{}' end as managed_groups offset 0
    ) granted`.execute(db)
  // Returns one row if the token still has exactly `rights`, or if `token` is null (the operator).
  await sql`
    create function token_with(token integer, rights text) returns table (has_rights boolean)
    language sql stable as $$
      select true where token is null or exists (
        select from caller c where c.token_id = token and c.valid and not c.expired and c.grants = rights)
    $$`.execute(db)
  // Returns one row with a user's access to an agent. It depends on ownership, on shares and on `open` (the agent is public).
  await sql`
    create function persona_access(agent integer, owner uuid, open boolean, viewer uuid) returns table (access text)
    language sql stable as $$
      select case when owner = viewer then 'owner' else coalesce((
        select case when bool_or(share.level = 'editor') then 'editor' else 'viewer' end
        from (
          select s.level from persona_user s where s.persona_id = agent and s.user_id = viewer
          union all
          select s.level from persona_group s join user_group_member m on m.user_group_id = s.user_group_id
          where s.persona_id = agent and m.user_id = viewer
        ) share
        having count(*) > 0
      ), case when open then 'viewer' else 'none' end) end
    $$`.execute(db)
  // Returns one row if the viewer may manage the tool: as the operator (null), as a manager of all custom tools, or as a manager of `groups`. Group
  // managers may manage their own tools, and tools that others attached to agents of `groups` if no agent outside `groups` has the tool. A
  // restored link with an unknown author gives no right.
  await sql`
    create function managed_tool(tool integer, owner uuid, is_custom boolean, viewer uuid, manages_all boolean,
      groups integer[], seen integer[]) returns table (managed_as text)
    language sql stable as $$
      select case when manages_all then 'all' when owner = viewer then 'owner' else 'group' end
      where viewer is null or is_custom and (seen is null or tool = any (seen))
        and (manages_all or cardinality(groups) > 0 and (owner = viewer or exists (
          select from persona_tool l join persona a on a.id = l.persona_id
          where l.tool_id = tool and not a.deleted and coalesce(l.attached_by, a.owner_id) is distinct from viewer
            and l.attached_by is distinct from '00000000-0000-0000-0000-000000000000'
            and exists (select from persona_group s where s.persona_id = a.id and s.user_group_id = any (groups))
        ) and not exists (
          select from persona_tool l join persona a on a.id = l.persona_id
          where l.tool_id = tool and not a.deleted
            and not exists (select from persona_group s where s.persona_id = a.id and s.user_group_id = any (groups))
        )))
    $$`.execute(db)
  // Returns the ids of the agents that have the tool, are not deleted and are visible to the viewer.
  await sql`
    create function agents_with_tool(tool integer, viewer uuid, sees_all boolean) returns setof integer
    language sql stable as $$
      select p.id from persona_tool l join persona p on p.id = l.persona_id
      cross join persona_access(p.id, p.owner_id, p.is_public, viewer)
      where l.tool_id = tool and not p.deleted and (sees_all or access <> 'none')
    $$`.execute(db)
  // Returns one row if the viewer may see a change: the record is visible now or was visible before the change. `agents` and `tools` are the ids that
  // the token is bound to; null for an unbound token.
  await sql`
    create function change_sight(kind text, record integer, fields text[], taken_from jsonb, viewer uuid, sees_all boolean,
      manages_all boolean, groups integer[], agents integer[], tools integer[]) returns table (is_seen boolean, may_edit boolean)
    language sql stable as $$
      select is_seen, may_edit from (
        select not p.deleted and (sees_all or access <> 'none') as is_seen, sees_all or access in ('owner', 'editor') as may_edit
        from persona p cross join persona_access(p.id, p.owner_id, p.is_public, viewer)
        where kind = 'persona' and p.id = record and (agents is null or p.id = any (agents))
        union all
        select true, managed_as is not null
        from (select) one left join tool t on t.id = record
        left join managed_tool(t.id, t.user_id, num_nonnulls(t.in_code_tool_id, t.mcp_server_id) = 0, viewer, manages_all, groups, tools) on true
        where kind = 'tool' and (tools is null or record = any (tools)
          or exists (select from agents_with_tool(record, viewer, sees_all) a where a = any (agents)))
      ) sight
      where is_seen or (taken_from ->> 'is_public')::boolean or taken_from -> 'users' ? viewer::text
        or sees_all and taken_from is not null and fields @> '{deleted}'
        or exists (select from user_group_member m
          where m.user_id = viewer and taken_from -> 'groups' @> to_jsonb(m.user_group_id))
    $$`.execute(db)
}

/**
 * Adds views of the records that responses show. `shown_persona` and `shown_tool` have a column for each field (src/persona/fields.ts,
 * src/tool/fields.ts). Timestamps are text, and hashes are hex.
 */
async function addShownRecords(db: Kysely<unknown>): Promise<void> {
  await sql`
    create view shown_document_set as
    select s.id, s.name, s.description,
      (select coalesce(json_agg(c), '[]') from (
        select c.id, c.name, c.source, c.access_type from document_set_cc_pair l join cc_pair c on c.id = l.cc_pair_id
        where l.document_set_id = s.id order by c.id) c) as cc_pair_summaries,
      s.is_up_to_date, s.is_public,
      array(select user_id from document_set_user l where l.document_set_id = s.id order by user_id) as users,
      array(select user_group_id from document_set_group l where l.document_set_id = s.id order by user_group_id) as groups,
      (select coalesce(json_agg(f), '[]') from (
        select f.id, f.name, f.source, l.entities
        from document_set_federated_connector l join federated_connector f on f.id = l.federated_connector_id
        where l.document_set_id = s.id order by f.id) f) as federated_connector_summaries
    from document_set s`.execute(db)
  await sql`
    create view shown_tool as
    select t.id, t.version, t.recent_changes, t.name, t.display_name, t.description, t.in_code_tool_id, t.passthrough_auth,
      t.mcp_server_id, t.user_id, t.oauth_config_id, t.enabled, t.chat_selectable, t.agent_creation_selectable, t.default_enabled,
      encode(t.definition_hash, 'hex') as definition_hash,
      coalesce((select size_bytes from tool_definition where hash = t.definition_hash), 0) as definition_bytes,
      (select name from oauth_config where id = t.oauth_config_id) as oauth_config_name,
      (select coalesce(json_agg(h), '[]') from (
        select name, encode(mask, 'hex') as mask from tool_header where tool_id = t.id order by position) h) as headers
    from tool t`.execute(db)
  await sql`
    create view sealed_header as
    select tool_id, position, name, key_id, encode(mask, 'hex') as mask, encode(nonce, 'hex') as nonce,
      encode(ciphertext, 'hex') as ciphertext
    from tool_header`.execute(db)
  await sql`
    create view shown_persona as
    select p.id, p.version, p.recent_changes, p.name, p.description, p.num_chunks, p.is_public, p.recency_bias, p.llm_filter_extraction,
      p.llm_relevance_filter, p.system_prompt, p.task_prompt, p.datetime_aware, p.llm_model_provider_override,
      p.llm_model_version_override, p.starter_messages, p.uploaded_image_id, p.icon_name,
      to_char(p.search_start_date at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as search_start_date,
      p.is_default_persona, p.display_priority, p.replace_base_system_prompt, p.is_visible, p.builtin_persona, p.deleted, p.owner_id,
      (select to_json(u) from (select id, email from user_account where id = p.owner_id) u) as owner,
      array(select tool_id from persona_tool where persona_id = p.id order by 1) as tool_ids,
      array(select document_set_id from persona_document_set where persona_id = p.id order by 1) as document_set_ids,
      array(select label_id from persona_label where persona_id = p.id order by 1) as label_ids,
      array(select user_file_id from persona_user_file where persona_id = p.id order by user_file_id collate "C") as user_file_ids,
      (select coalesce(json_agg(s), '[]') from (
        select user_id as id, level from persona_user where persona_id = p.id order by 1) s) as users,
      (select coalesce(json_agg(s), '[]') from (
        select user_group_id as id, level from persona_group where persona_id = p.id order by 1) s) as groups
    from persona p`.execute(db)
  await sql`
    create function persona_related(agent integer) returns table (document_sets json, labels json, people json)
    language sql stable as $$
      select
        (select coalesce(json_agg(s), '[]') from (select * from shown_document_set
          where id = any (array(select document_set_id from persona_document_set where persona_id = agent)) order by id) s),
        (select coalesce(json_agg(l), '[]') from (select id, name from label
          where id = any (array(select label_id from persona_label where persona_id = agent)) order by id) l),
        (select coalesce(json_agg(u), '[]') from (select id, email from user_account
          where id = any (array(select user_id from persona_user where persona_id = agent)) order by id) u)
    $$`.execute(db)
}

/** Allows tokens for runtimes, which can read secrets. For each token, tool and hour, only the first read of secrets is recorded as an event. */
async function addRuntimes(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table token drop constraint token_scopes_known, add constraint token_scopes_known
      check (scopes <@ array['read', 'runtime', 'propose', 'basic', 'manage:actions', 'admin'])`.execute(db)
  await sql`alter table access_event add column actor_id uuid, add column token_id integer`.execute(db)
  await sql`
    create unique index access_event_once_an_hour on access_event
      (token_id, subject, date_trunc('hour', at at time zone 'UTC')) where kind = 'headers'`.execute(db)
}

/**
 * Stores the function names of each definition, so that equal names in different tools of an agent can be found. The list is empty if the current
 * rules refuse the definition.
 */
async function addFunctionNames(db: Kysely<unknown>): Promise<void> {
  await sql`alter table tool_definition add column function_names text[] not null default '{}'`.execute(db)
  // Returns true if an agent with the tool has another tool with a function whose name is in `names`. With `offset 0`, the planner looks up each
  // tool's definition by key. Otherwise, it could read all definitions.
  await sql`
    create function names_beside(tool integer, names text[]) returns table (has_names boolean)
    language sql stable as $$
      select cardinality(names) > 0 and exists (
        select from tool t
        cross join lateral (select function_names from tool_definition where hash = t.definition_hash offset 0) d
        where d.function_names && names and t.id = any (array(
          select o.tool_id from persona_tool l join persona_tool o on o.persona_id = l.persona_id
          where l.tool_id = tool and o.tool_id <> tool)))
    $$`.execute(db)
  const { rows } = await sql<{ hash: Buffer }>`select hash from tool_definition`.execute(db)
  for (const { hash } of rows) {
    const stored = await sql<{
      text: string
    }>`select content::text as text from tool_definition where hash = ${hash}`.execute(db)
    const check = checkDefinition(JSON.parse(stored.rows[0]?.text ?? 'null'))
    const names = check.ok ? functionNames(check.methods) : []
    await sql`update tool_definition set function_names = ${names} where hash = ${hash}`.execute(db)
  }
}
