import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { canonicalUuid } from '../schema/vocabulary.js'
import { ACCESS_KINDS, type AccessKind, STATEFUL_KINDS } from '../updates/access-events.js'
import { type Selection, selectRows } from './listing.js'

/** What `--kind` takes beside the kinds of access events. `share`: who has, owns or sees something. */
export const LISTED_KINDS = ['agent', 'tool', 'share', ...ACCESS_KINDS] as const
export type ListedKind = (typeof LISTED_KINDS)[number]

/** Which rows and events of the audit trail to list. Times are ISO 8601, `since` inclusive and `until` exclusive. */
export interface AuditFilter {
  resource?: { kind: ResourceKind; id: number }
  kind?: ListedKind
  /** An id; or an email, for what concerns who has it: also what gives or takes access by a list that names them. */
  subject?: string
  /** An email, or `agentctl`. */
  actor?: string
  since?: string
  until?: string
}

/** An audit row of an agent or tool, or an access event; what the other one has is null. */
export interface ListedChange {
  at: string
  kind: string
  subject: string
  /** The version, or of an event the number in its chain. */
  number: number
  action: string
  /** Whom an event concerns. */
  person: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  /** The state of access after the event, or what it did. */
  detail: unknown
  resource_kind: ResourceKind | null
  resource_id: number | null
  version_before: number | null
  version_after: number | null
  fields: string[] | null
  difference: unknown
  hash: string
}

/** The fields of an agent or tool that say who has, owns or sees it. */
const SHARING = ['users', 'groups', 'owner_id', 'user_id', 'is_public']
const SHARING_KINDS = ['document_set', 'mcp_server', 'oauth_config', 'user_file'] as const satisfies AccessKind[]

const CHANGES = sql<ListedChange>`
  select at, case resource_kind when 'persona' then 'agent' else resource_kind end as kind, resource_id::text as subject,
    version_after as number, case version_before when 0 then 'created' else 'changed' end as action, null as person, actor,
    token_id, request_id, client_address, command, null::json as detail, resource_kind, resource_id, version_before,
    version_after, fields, difference, encode(hash, 'hex') as hash
  from audit
  union all
  select at, kind, case kind when 'prune' then replace(subject, 'persona:', 'agent:') else subject end, number, action, person, actor, null, request_id, client_address, command, detail, null, null,
    null, null, null, null, encode(hash, 'hex')
  from access_event`

/** SQL: what a change says of who has access, with what an event said before it. People stand there by their ids. */
const ACCESS = sql`case
  when fields && ${SHARING}::text[] then difference::text
  when kind = any(${STATEFUL_KINDS}::text[]) then concat(detail, (
    select before.detail from access_event before
    where before.kind = change.kind and before.subject = change.subject and before.number = change.number - 1)) end`

/** The ids of who has an email, or, where nobody has it, of who had it; an id is its own. */
async function idsOf(db: Kysely<Database>, subject: string): Promise<string[]> {
  const uuid = canonicalUuid(subject)
  if (uuid !== undefined) return [uuid]
  const { rows } = await sql<{ id: string }>`
    with present as (select id::text from user_account where lower(email) = lower(${subject}::text))
    select id from present
    union select subject from access_event
    where kind = 'user' and lower(person) = lower(${subject}::text) and not exists (select from present)`.execute(db)
  return rows.map(({ id }) => id)
}

/** Rows and events of the audit trail, newest first. */
export async function listAudit(
  db: Kysely<Database>,
  { resource, kind, subject, actor, since, until }: AuditFilter,
  selection: Selection = {},
): Promise<ListedChange[]> {
  const shares = sql`(kind = any(${SHARING_KINDS}::text[]) or fields && ${SHARING}::text[])`
  const conditions = [
    ...(resource ? [sql`resource_kind = ${resource.kind} and resource_id = ${resource.id}`] : []),
    ...(kind === undefined ? [] : [kind === 'share' ? shares : sql`kind = ${kind}`]),
    ...(subject === undefined ? [] : [await concerns(db, subject)]),
    ...(actor === undefined ? [] : [sql`actor = ${actor}`]),
    ...(since === undefined ? [] : [sql`at >= ${since}`]),
    ...(until === undefined ? [] : [sql`at < ${until}`]),
  ]
  const rows = sql<ListedChange>`
    select * from (${CHANGES}) change where ${sql.join([sql`true`, ...conditions], sql` and `)}`
  return await selectRows(db, rows, sql`at desc, number desc`, selection)
}

/** SQL: whether a change is of this id or email, or names who has it in what says of access. */
async function concerns(db: Kysely<Database>, subject: string): Promise<RawBuilder<boolean>> {
  const ids = await idsOf(db, subject)
  const names = ids.map(id => sql`strpos(${ACCESS}, ${id}) > 0`)
  return sql`(subject = any(${[subject, ...ids]}::text[]) or lower(person) = lower(${subject}::text)
    ${names.length > 0 ? sql`or ${sql.join(names, sql` or `)}` : sql``})`
}
