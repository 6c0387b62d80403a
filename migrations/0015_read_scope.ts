import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.15.1'

export const locks = ['token, for a moment: a constraint is replaced, and its few rows are read']

/**
 * Tokens that only read have the scope `read`. An older program would take it for `basic`, which writes: so these tokens have a form that it
 * refuses, and their hash is one byte longer, which it neither finds nor stores when it rotates one.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table token
      drop constraint token_scopes_known,
      add constraint token_scopes_known check (scopes <@ array['read', 'basic', 'manage:actions', 'admin']),
      add constraint token_read_hash check (not 'read' = any (scopes) or octet_length(hash) = 33)`.execute(db)
}
