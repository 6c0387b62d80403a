import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = ['persona, tool and audit, for a moment: new columns that may be null']

/**
 * What an update with an `Idempotency-Key` is found again by, and when the last pruned change of a resource was made.
 *
 * `idempotency_key` is the SHA-256 of the caller's id and the key, `request_fingerprint` that of what the request asks for.
 * Both go with their audit row.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table persona add column audit_anchor_at timestamptz;
    alter table tool add column audit_anchor_at timestamptz;
    alter table audit add column idempotency_key bytea, add column request_fingerprint bytea;
  `.execute(db)
}
