import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = ['none that matter: the index is built beside writers']

/** One effect for each key: of two instances that store the same one, the second fails. */
export async function prepare(db: Kysely<unknown>): Promise<void> {
  await sql`drop index concurrently if exists audit_idempotency_key_unique`.execute(db)
  await sql`
    create unique index concurrently audit_idempotency_key_unique on audit (idempotency_key)
    where idempotency_key is not null`.execute(db)
}

export async function up(): Promise<void> {
  // The index is all of this step.
}
