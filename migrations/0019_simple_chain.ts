import { type Kysely, sql } from 'kysely'

export const oldestProgram = '3.0.0'

/**
 * The chain of an agent or tool names its people by id only, and its hashes cover neither emails nor addresses nor request ids: so an erased
 * person leaves nothing, and needs no salt. Rows of before stay readable without hashes. Each chain begins anew with its next row, after the
 * anchor, a hash of zeros. Events of access have no chain; those about chains go with them.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table audit drop column actor, drop column salt, drop column identity_hash, drop column content_hash,
      drop column previous_hash, drop column hash, add column previous_hash bytea, add column hash bytea`.execute(db)
  for (const table of ['persona', 'tool']) {
    await sql`
      alter table ${sql.table(table)} drop column audit_head, drop column audit_count, drop column audit_anchor,
        drop column audit_anchor_version, drop column audit_anchor_at,
        add column audit_head bytea not null default decode(repeat('00', 32), 'hex'),
        add column audit_anchor bytea not null default decode(repeat('00', 32), 'hex')`.execute(db)
  }
  await sql`drop table access_chain; drop table audit_upgrade_head`.execute(db)
  await sql`delete from access_event where kind in ('prune', 'erasure')`.execute(db)
  await sql`
    alter table access_event drop constraint access_event_pk, drop column number, drop column actor, drop column salt,
      drop column identity_hash, drop column person, drop column person_salt, drop column person_hash,
      drop column previous_hash, drop column hash,
      add column id bigint generated always as identity constraint access_event_pk primary key`.execute(db)
  await sql`create index access_event_by_subject on access_event (kind, subject)`.execute(db)
}
