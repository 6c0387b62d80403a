import { type Kysely, sql } from 'kysely'
import { limitStatements } from '../src/db/time-limit.js'

export const oldestProgram = '1.15.1'

export const locks = ['none: it reads where each chain of the audit trail ends, and notes that in a new table']

/**
 * Notes the last row of each chain of the audit trail as 2.0 finds it. What older versions wrote up to there is held by its
 * links; from there on every row is verified whole. Version 1.15.1 may go on writing meanwhile and afterwards.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await limitStatements(db, 0, 'transaction')
  await sql`
    create table audit_upgrade_head (
      kind text not null,
      subject text not null,
      number integer not null,
      hash bytea not null,
      constraint audit_upgrade_head_pk primary key (kind, subject)
    );
    insert into audit_upgrade_head (kind, subject, number, hash)
    select 'persona', id::text, version, audit_head from persona where version > 0
    union all select 'tool', id::text, version, audit_head from tool where version > 0
    union all select kind, subject, number, hash from access_chain where number > 0
    union all (
      select distinct on (resource_kind, resource_id) resource_kind, resource_id::text, version_after, hash from audit a
      where case resource_kind
        when 'persona' then not exists (select from persona p where p.id = a.resource_id)
        else not exists (select from tool t where t.id = a.resource_id) end
      order by resource_kind, resource_id, version_after desc
    );
  `.execute(db)
}
