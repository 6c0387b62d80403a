import { type Kysely, sql } from 'kysely'

export const oldestProgram = '3.0.0'

/**
 * Requests with an `Idempotency-Key` have a table of their own. `key` is the SHA-256 of the caller's id and the key, `fingerprint` that of
 * what the request asks for. A row without a fingerprint belongs to a running transaction. `unchanged`: the request made no version.
 * Keys of earlier versions are taken over; of those that changed nothing the resource is not known.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table request_key (
      key bytea not null constraint request_key_pk primary key,
      fingerprint bytea,
      resource_id integer,
      version integer,
      unchanged boolean not null default false,
      at timestamptz not null default clock_timestamp())`.execute(db)
  await sql`
    insert into request_key
    select idempotency_key, request_fingerprint, resource_id, version_after, false, at from audit
    where idempotency_key is not null`.execute(db)
  await sql`
    insert into request_key
    select idempotency_key, request_fingerprint, null, version, true, at from unchanged_update
    on conflict do nothing`.execute(db)
  await sql`drop table unchanged_update`.execute(db)
  await sql`alter table audit drop column idempotency_key, drop column request_fingerprint`.execute(db)
}
