import { type Kysely, sql } from 'kysely'
import { schemaState } from '../db/migrate.js'
import type { Database } from '../db/tables.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { VERSION } from '../version.js'
import { listAudit } from './audit.js'
import { keyStatus } from './keys.js'

const RECENT_CHANGES = 10

/** How things stand, for a human. Without a key ring nothing is known of the keys, which then are null. */
export async function readStatus(db: Kysely<Database>, ring: KeyRing | null) {
  const { rows } = await sql<{ server: string; size: string; reads_only: boolean }>`
    select current_setting('server_version') as server, pg_size_pretty(pg_database_size(current_database())) as size,
      current_setting('transaction_read_only') = 'on' as reads_only`.execute(db)
  const { rows: counts } = await sql<Record<string, number>>`
    select (select count(*)::integer from user_account) as users,
      (select count(*)::integer from user_account where not active) as users_inactive,
      (select count(*)::integer from user_group) as groups,
      (select count(*)::integer from persona where not deleted) as agents,
      (select count(*)::integer from persona where deleted) as agents_deleted,
      (select count(*)::integer from tool where in_code_tool_id is null and mcp_server_id is null) as custom_tools,
      (select count(*)::integer from tool where in_code_tool_id is not null or mcp_server_id is not null) as other_tools,
      (select count(*)::integer from token where revoked_at is null
         and (expires_at is null or expires_at > clock_timestamp())) as tokens_live,
      (select count(*)::integer from token where revoked_at is null
         and expires_at between clock_timestamp() and clock_timestamp() + interval '7 days') as tokens_expiring_in_7_days,
      (select count(*)::integer from audit) as audit_rows,
      (select count(*)::integer from access_event) as access_events`.execute(db)
  const [database] = rows
  return {
    version: VERSION,
    database: { server: database?.server, size: database?.size, read_only: database?.reads_only },
    schema: await schemaState(db, VERSION),
    counts: counts[0] ?? {},
    keys: ring === null ? null : await keyStatus(db, ring),
    recent_changes: (await listAudit(db, {}, { limit: RECENT_CHANGES })).map(
      ({ at, kind, subject, number, actor, action, fields }) => ({
        at,
        resource: subject === '' ? kind : `${kind}:${subject}`,
        version: number,
        actor,
        fields: fields ?? [action],
      }),
    ),
  }
}
