import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { Actor } from './audit.js'

/** SQL: what decides on access, as one JSON object per subject. An event records it. */
const STATES = {
  user: sql`
    select id::text as subject, json_build_object('kind', kind, 'active', active, 'permissions', permissions) as detail
    from user_account`,
  group: sql`
    select id::text as subject, json_build_object('name', name, 'permissions', permissions,
      'members', array(select user_id from user_group_member where user_group_id = g.id and not is_manager order by 1),
      'managers', array(select user_id from user_group_member where user_group_id = g.id and is_manager order by 1)) as detail
    from user_group g`,
  token: sql`
    select id::text as subject, json_build_object('user', user_id, 'scopes', scopes, 'persona_ids', persona_ids,
      'tool_ids', tool_ids, 'requires_if_match', requires_if_match, 'expires_at', expires_at, 'revoked_at', revoked_at) as detail
    from token`,
  document_set: sql`
    select id::text as subject, json_build_object('is_public', is_public,
      'users', array(select user_id from document_set_user where document_set_id = s.id order by 1),
      'groups', array(select user_group_id from document_set_group where document_set_id = s.id order by 1)) as detail
    from document_set s`,
  mcp_server: ownedBy('mcp_server'),
  oauth_config: ownedBy('oauth_config'),
  user_file: ownedBy('user_file'),
} as const satisfies Record<string, RawBuilder<unknown>>

function ownedBy(table: string) {
  return sql`select id::text as subject, json_build_object('owner', owner_id) as detail from ${sql.table(table)}`
}

/** `keys` and `apply` have no stored state. `headers` events record reads by runtimes. */
const NO_STATE = sql`select null::text as subject, null::json as detail`

export type AccessKind = keyof typeof STATES | 'keys' | 'apply'

export const ACCESS_KINDS = [...(Object.keys(STATES) as (keyof typeof STATES)[]), 'keys', 'apply', 'headers'] as const

/** A change of access. `subject` is an id, or empty for a kind without subjects. */
interface AccessChange {
  kind: AccessKind
  subject: string
  /** A past participle: `created`, `deactivated`. */
  action: string
  /** The details to record for a kind without a stored state. */
  detail?: unknown
}

/** Adds an event for each change, in the transaction of the change. */
export async function recordAccess(
  trx: Transaction<Tables>,
  { requestId, clientAddress, command }: Actor,
  changes: readonly AccessChange[],
): Promise<void> {
  for (const kind of new Set(changes.map(change => change.kind))) {
    const given = JSON.stringify(changes.filter(change => change.kind === kind))
    await sql`
      insert into access_event (kind, subject, at, action, request_id, client_address, command, detail)
      select ${kind}, g.change ->> 'subject', clock_timestamp(), g.change ->> 'action', ${requestId}, ${clientAddress},
        ${command}, coalesce(s.detail, g.change -> 'detail', 'null')
      from json_array_elements(${given}::json) with ordinality g (change, place)
      left join (${kind in STATES ? STATES[kind as keyof typeof STATES] : NO_STATE}) s on s.subject = g.change ->> 'subject'
      order by g.place`.execute(trx)
  }
}
