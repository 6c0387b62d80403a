import { type Kysely, sql } from 'kysely'

export const oldestProgram = '1.0.0'

export const locks = [
  'persona, persona_user, persona_group and tool, for a moment, to drop the indexes that others replace',
]

/** Each replaces an index of the same columns without the last one: lists are read a page at a time in the order of ids. */
const INDEXES = {
  persona_by_owner_and_id: ['persona (owner_id, id)', 'persona_by_owner'],
  persona_by_name_and_id: ['persona (name, id)', 'persona_by_name'],
  persona_public: ['persona (id) where is_public and not deleted', null],
  persona_user_by_user_and_persona: ['persona_user (user_id, persona_id)', 'persona_user_by_user'],
  persona_group_by_group_and_persona: ['persona_group (user_group_id, persona_id)', 'persona_group_by_group'],
  tool_by_name_and_id: ['tool (name, id)', 'tool_by_name'],
} as const

/** Makes the indexes without holding up writers. One that was cut short is made anew. */
export async function prepare(db: Kysely<unknown>): Promise<void> {
  for (const [name, [columns]] of Object.entries(INDEXES)) {
    const { rows } = await sql`
      select from pg_index i join pg_class c on c.oid = i.indexrelid
      where c.relname = ${name} and c.relnamespace = quote_ident(current_schema())::regnamespace and not i.indisvalid`.execute(
      db,
    )
    if (rows.length > 0) await sql`drop index concurrently ${sql.id(name)}`.execute(db)
    await sql`create index concurrently if not exists ${sql.id(name)} on ${sql.raw(columns)}`.execute(db)
  }
}

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const [, replaced] of Object.values(INDEXES)) {
    if (replaced !== null) await sql`drop index if exists ${sql.id(replaced)}`.execute(db)
  }
}
