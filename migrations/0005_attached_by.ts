import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = [
  'persona_tool and oauth_config, for a moment: columns that may be null',
  'user_account against writers, for that moment: oauth_config refers to it',
]

/**
 * Who attached a tool to an agent, and who owns an OAuth configuration. A link without a name was made before, or by the
 * operator: it counts as made by the agent's owner. A configuration without an owner is linked by anybody with `manage:actions`.
 * `attached_by` refers to nobody in the database's eyes, as the audit trail does: a link outlives the user who made it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table persona_tool add column attached_by uuid;
    alter table oauth_config add column owner_id uuid constraint oauth_config_owner_fk references user_account;
    create index oauth_config_by_owner on oauth_config (owner_id);
  `.execute(db)
}
