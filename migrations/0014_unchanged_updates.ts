import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.15.1'

export const locks = ['none: a new table']

/**
 * The `Idempotency-Key` of an update that changed nothing, which has no audit row to hold it, as `0006_idempotency.ts` describes.
 * `version` and `at` say what the update was answered. Rows are kept as long as audit rows.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table unchanged_update (
      idempotency_key bytea not null,
      request_fingerprint bytea not null,
      version integer not null,
      at timestamptz not null default clock_timestamp(),
      constraint unchanged_update_pk primary key (idempotency_key)
    )`.execute(db)
}
