import { type Kysely, sql } from 'kysely'
import type { Tables } from '../db/tables.js'
import { ACCESS_KINDS } from '../updates/access-events.js'

/** The values of `--kind`. */
export const LISTED_KINDS = ['agent', 'tool', ...ACCESS_KINDS] as const

/** Selects rows and events of the audit trail. `since` is ISO 8601. */
export interface AuditFilter {
  kind?: (typeof LISTED_KINDS)[number]
  /** An id, or the email of the person concerned. */
  subject?: string
  since?: string
  limit?: number
}

/** An audit row of an agent or tool, or an access event. Fields that it does not have are null. */
export interface ListedChange {
  at: string
  kind: string
  subject: string
  /** The version, or the number of an event in its chain. */
  number: number
  action: string
  /** The email of the person that an event concerns. */
  person: string | null
  actor: string
  token_id: number | null
  request_id: string
  client_address: string
  command: string | null
  /** The state of access after the event, or its details. */
  detail: unknown
  fields: string[] | null
  difference: unknown
  hash: string
}

/** Lists rows and events of the audit trail, newest first. */
export async function listAudit(db: Kysely<Tables>, filter: AuditFilter): Promise<ListedChange[]> {
  const { kind, subject, since, limit } = filter
  const conditions = [
    ...(kind === undefined ? [] : [sql`kind = ${kind}`]),
    ...(subject === undefined ? [] : [sql`(subject = ${subject} or lower(person) = lower(${subject}))`]),
    ...(since === undefined ? [] : [sql`at >= ${since}`]),
  ]
  const { rows } = await sql<ListedChange>`
    select at, kind, subject, number, action, person, actor, token_id, request_id, client_address, command, detail, fields,
      difference, hash
    from (
      select at, case resource_kind when 'persona' then 'agent' else resource_kind end as kind,
        resource_id::text as subject, version_after as number,
        case version_before when 0 then 'created' else 'changed' end as action, null as person, actor, token_id,
        request_id, client_address, command, null::json as detail, fields, difference, encode(hash, 'hex') as hash
      from audit
      union all
      select at, kind, case kind when 'prune' then replace(subject, 'persona:', 'agent:') else subject end, number,
        action, person, actor, null, request_id, client_address, command, detail, null, null, encode(hash, 'hex')
      from access_event) change
    where ${sql.join([sql`true`, ...conditions], sql` and `)}
    order by at desc, number desc limit ${limit ?? null}::bigint`.execute(db)
  return rows
}
