import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { Actor } from '../updates/resource.js'

/** For each kind of row, SQL that builds a JSON object of the fields that determine access. Access events store this object. */
const STATES = {
  user: sql`
    select json_build_object('kind', kind, 'active', active, 'permissions', permissions)
    from user_account where id = subject::uuid`,
  group: sql`
    select json_build_object('name', name, 'permissions', permissions,
      'members', array(select user_id from user_group_member where user_group_id = g.id and not is_manager order by 1),
      'managers', array(select user_id from user_group_member where user_group_id = g.id and is_manager order by 1))
    from user_group g where id = subject::integer`,
  token: sql`
    select json_build_object('user', user_id, 'scopes', scopes, 'persona_ids', persona_ids,
      'tool_ids', tool_ids, 'requires_if_match', requires_if_match, 'expires_at', expires_at, 'revoked_at', revoked_at)
    from token where id = subject::integer`,
  document_set: sql`
    select json_build_object('is_public', is_public,
      'users', array(select user_id from document_set_user where document_set_id = s.id order by 1),
      'groups', array(select user_group_id from document_set_group where document_set_id = s.id order by 1))
    from document_set s where id = subject::integer`,
  mcp_server: sql`select json_build_object('owner', owner_id) from mcp_server where id = subject::integer`,
  oauth_config: sql`select json_build_object('owner', owner_id) from oauth_config where id = subject::integer`,
  user_file: sql`select json_build_object('owner', owner_id) from user_file where id = subject`,
} as const satisfies Record<string, RawBuilder<unknown>>

const NO_STATE = sql`null`

export type AccessKind = keyof typeof STATES | 'keys' | 'apply'

/** The kinds of access events. API requests record only `headers` events, when a runtime token reads the header values of a tool. */
export const ACCESS_KINDS = [...(Object.keys(STATES) as (keyof typeof STATES)[]), 'keys', 'apply', 'headers'] as const

/** A change to record as an access event. `subject` is the id of the changed row. It is empty for `keys` and `apply`. */
interface AccessChange {
  kind: AccessKind
  subject: string
  action: string
  /** The details to store if the kind has no entry in `STATES` or the row no longer exists. */
  detail?: unknown
}

/** Records an access event for each change. `trx` must be the transaction that makes the changes. */
export async function recordAccess(
  trx: Transaction<Tables>,
  { request_id, client_address, command }: Actor,
  changes: readonly AccessChange[],
): Promise<void> {
  for (const kind of new Set(changes.map(change => change.kind))) {
    const given = JSON.stringify(changes.filter(change => change.kind === kind))
    await sql`
      insert into access_event (kind, subject, at, action, request_id, client_address, command, detail)
      select ${kind}, subject, clock_timestamp(), action, ${request_id}, ${client_address}, ${command},
        coalesce((${kind in STATES ? STATES[kind as keyof typeof STATES] : NO_STATE}), detail, 'null')
      from rows from (json_to_recordset(${given}::json) as (subject text, action text, detail json)) with ordinality c
      order by c.ordinality`.execute(trx)
  }
}
