import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = ['audit_leaf: exclusive for a moment, without reading it']

/**
 * Leaves stand at 0 and up. What stands below already was put there by SQL: it holds up no upgrade, and `audit verify` names it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table audit_leaf add constraint audit_leaf_position_counts check (position >= 0) not valid`.execute(
    db,
  )
}
