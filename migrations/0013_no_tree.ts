import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.15.1'

export const locks = ['audit_leaf, audit_tree: exclusive for a moment, to drop them']

/**
 * Drops the tree of the audit trail of 1.15, which no statement reads any more. Version 1.15.1 uses it outside of requests
 * only: where it still runs, its updates go on, and its pruning and its checkpoints are left to the newer program.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`drop table audit_leaf; drop table audit_tree`.execute(db)
}
