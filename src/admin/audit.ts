import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { ACCESS_KINDS, type AccessKind } from '../updates/access-events.js'
import { type Selection, selectRows } from './listing.js'

/** What `--kind` takes beside the kinds of access events. `share`: who has, owns or sees something. */
export const LISTED_KINDS = ['agent', 'tool', 'share', ...ACCESS_KINDS] as const
export type ListedKind = (typeof LISTED_KINDS)[number]

/** Which rows and events of the audit trail to list. Times are ISO 8601, `since` inclusive and `until` exclusive. */
export interface AuditFilter {
  resource?: { kind: ResourceKind; id: number }
  kind?: ListedKind
  /** An id, or the email of whom an event concerns. */
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

const CHANGES = sql<ListedChange>`
  select at, case resource_kind when 'persona' then 'agent' else resource_kind end as kind, resource_id::text as subject,
    version_after as number, case version_before when 0 then 'created' else 'changed' end as action, null as person, actor,
    token_id, request_id, client_address, command, null::json as detail, resource_kind, resource_id, version_before,
    version_after, fields, difference, encode(hash, 'hex') as hash
  from audit
  union all
  select at, kind, subject, number, action, person, actor, null, request_id, client_address, command, detail, null, null,
    null, null, null, null, encode(hash, 'hex')
  from access_event`

/** The fields of an agent or tool that say who has, owns or sees it. */
const SHARING = ['users', 'groups', 'owner_id', 'user_id', 'is_public']
const SHARING_KINDS = ['document_set', 'mcp_server', 'oauth_config', 'user_file'] as const satisfies AccessKind[]

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
    ...(subject === undefined ? [] : [sql`(subject = ${subject} or lower(person) = lower(${subject}))`]),
    ...(actor === undefined ? [] : [sql`actor = ${actor}`]),
    ...(since === undefined ? [] : [sql`at >= ${since}`]),
    ...(until === undefined ? [] : [sql`at < ${until}`]),
  ]
  const rows = sql<ListedChange>`
    select * from (${CHANGES}) change where ${sql.join([sql`true`, ...conditions], sql` and `)}`
  return await selectRows(db, rows, sql`at desc, number desc`, selection)
}
