import { type Kysely, sql } from 'kysely'

export const oldestProgram = '3.0.0'

/**
 * The mask of a header value is random, and no longer computed from the value: the stored fingerprints become the masks, and their key goes.
 * `request_key.key_id` is the key of the ring that header values in the request's fingerprint are hashed with.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table tool_header rename column fingerprint to mask`.execute(db)
  await sql`drop table deployment_key`.execute(db)
  await sql`alter table request_key add column key_id text`.execute(db)
}
