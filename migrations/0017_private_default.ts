import { type Kysely, sql } from 'kysely'

export const oldestProgram = '2.1.0'

/** Today's product has featured agents that are private, and its clients set them below `/api`. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table persona drop constraint if exists persona_default_public`.execute(db)
}
