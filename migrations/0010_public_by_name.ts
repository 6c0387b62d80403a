import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = ['none that matter: the index is built beside writers']

/** Public agents of a name are found without reading the other agents of that name. */
export async function prepare(db: Kysely<unknown>): Promise<void> {
  await sql`drop index concurrently if exists persona_public_by_name`.execute(db)
  await sql`
    create index concurrently persona_public_by_name on persona (name, id)
    where is_public and not deleted`.execute(db)
}

export async function up(): Promise<void> {
  // The index is all of this step.
}
