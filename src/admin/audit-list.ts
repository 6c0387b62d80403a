import { type Kysely, sql } from 'kysely'
import type { Tables } from '../db/tables.js'
import { ACCESS_KINDS } from './access-events.js'

export const LISTED_KINDS = ['agent', 'tool', ...ACCESS_KINDS] as const

/** Filters of the audit trail. Times are in ISO 8601. */
export interface AuditFilter {
  kind?: (typeof LISTED_KINDS)[number]
  /** The id of a record, or the email of the affected person. */
  subject?: string
  since?: string
  until?: string
  limit?: number
}

/** An audit row (of an agent or tool) or an access event. Fields that do not apply are null. */
export interface ListedChange {
  at: string
  kind: string
  subject: string
  version: number | null
  action: string
  /** The email of the person affected by an access event. */
  person: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  /** For a change of access, the new values of the fields that determine access. For other access events, their details. */
  detail: unknown
  fields: string[] | null
  /** The old and new values of the changed fields; null if they were pruned. */
  difference: Record<string, { from: unknown; to: unknown }> | null
  hash: string | null
}

/** Lists audit rows and access events, newest first. */
export async function listAudit(db: Kysely<Tables>, filter: AuditFilter): Promise<ListedChange[]> {
  const { kind, subject, since, until, limit } = filter
  const conditions = [
    ...(kind === undefined ? [] : [sql`kind = ${kind}`]),
    ...(subject === undefined ? [] : [sql`(subject = ${subject} or lower(person) = lower(${subject}))`]),
    ...(since === undefined ? [] : [sql`at >= ${since}`]),
    ...(until === undefined ? [] : [sql`at < ${until}`]),
  ]
  const { rows } = await sql<ListedChange>`
    select at, kind, subject, version, action, person, author as actor, token_id, request_id, client_address, command, detail, fields,
      difference, hash
    from (
      select at, case resource_kind when 'persona' then 'agent' else resource_kind end as kind,
        resource_id::text as subject, version_after as version, null::bigint as event,
        action, null as person, author, token_id,
        request_id, client_address, command, null::json as detail, fields, difference, encode(hash, 'hex') as hash
      from audit_entry
      union all
      select e.at, e.kind, e.subject, null, e.id, e.action, u.email,
        coalesce((select email from user_account where id = e.actor_id), e.actor_id::text, 'agentctl'), e.token_id, e.request_id, e.client_address,
        e.command, e.detail, null, null, null
      from access_event e left join user_account u on u.id = (case e.kind
        when 'user' then e.subject when 'token' then e.detail ->> 'user' end)::uuid) change
    where ${sql.join([sql`true`, ...conditions], sql` and `)}
    order by at desc, coalesce(version, event) desc limit ${limit ?? null}::bigint`.execute(db)
  return rows
}
