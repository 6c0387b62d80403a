import type { LightMyRequestResponse } from 'fastify'
import { type Kysely, sql } from 'kysely'
import type { Database } from '../../src/db/tables.js'

/** Everything that is stored of one resource, by the name of the field or column. */
export type Stored = Record<string, unknown>

/** What moves with every effective change; a test of the content leaves it aside. */
const BOOKKEEPING = ['version', 'field_versions', 'audit_head', 'audit_count'] as const

/** The content of an agent as its tables hold it: every column but the bookkeeping, and every relation in order. */
export async function storedAgent(db: Kysely<Database>, id: number): Promise<Stored> {
  const { rows } = await sql<{ stored: Stored }>`
    select to_jsonb(p) - ${BOOKKEEPING}::text[] || jsonb_build_object(
      'tool_ids', array(select tool_id from persona_tool where persona_id = p.id order by 1),
      'document_set_ids', array(select document_set_id from persona_document_set where persona_id = p.id order by 1),
      'label_ids', array(select label_id from persona_label where persona_id = p.id order by 1),
      'user_file_ids', array(select user_file_id from persona_user_file where persona_id = p.id order by 1),
      'users', array(select user_id || ' ' || level from persona_user where persona_id = p.id order by 1),
      'groups', array(select user_group_id || ' ' || level from persona_group where persona_id = p.id order by 1)
    ) as stored
    from persona p where p.id = ${id}`.execute(db)
  return only(rows).stored
}

/** The content of a tool as its tables hold it; the definition as its text, the headers with what encrypts them. */
export async function storedTool(db: Kysely<Database>, id: number): Promise<Stored> {
  const { rows } = await sql<{ stored: Stored }>`
    select to_jsonb(t) - ${[...BOOKKEEPING, 'definition_hash']}::text[] || jsonb_build_object(
      'definition', (select content::text from tool_definition d where d.hash = t.definition_hash),
      'custom_headers', (select jsonb_agg(to_jsonb(h) order by h.position) from tool_header h where h.tool_id = t.id)
    ) as stored
    from tool t where t.id = ${id}`.execute(db)
  return only(rows).stored
}

/** The names of what differs, and what it became. */
export function difference(before: Stored, after: Stored): Stored {
  const names = Object.keys({ ...before, ...after })
  return Object.fromEntries(
    names.filter(name => JSON.stringify(before[name]) !== JSON.stringify(after[name])).map(name => [name, after[name]]),
  )
}

/** A hash over every row of every table, by table; a token's last use aside, which any request may write. */
export async function hashOfEverything(db: Kysely<Database>): Promise<Record<string, string>> {
  const { rows: tables } = await sql<{ name: string }>`
    select table_name as name from information_schema.tables
    where table_schema = current_schema() and table_type = 'BASE TABLE' order by 1`.execute(db)
  const parts = tables.map(
    ({
      name,
    }) => sql`select ${sql.lit(name)} as name, coalesce(md5(string_agg(content, '' order by content)), '') as hash
      from (select md5((to_jsonb(r) - 'last_used_at')::text) as content from ${sql.table(name)} r) hashed`,
  )
  const { rows } = await sql<{ name: string; hash: string }>`${sql.join(parts, sql` union all `)} order by 1`.execute(
    db,
  )
  return Object.fromEntries(rows.map(({ name, hash }) => [name, hash]))
}

/** The audit rows of a resource, oldest first. */
export async function auditRows(db: Kysely<Database>, kind: 'persona' | 'tool', id: number) {
  return await db
    .selectFrom('audit')
    .selectAll()
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .orderBy('version_after')
    .execute()
}

/** The texts of an answer's `Warning` header. */
export function warningsOf(answer: LightMyRequestResponse): string[] {
  const header = answer.headers.warning
  return header === undefined ? [] : [...String(header).matchAll(/299 - "([^"]*)"/g)].map(found => found[1] ?? '')
}

/** The faults of a 422, each as its place and type: `body.tool_ids.1 not_found`. */
export function faultsOf(answer: LightMyRequestResponse): string[] {
  if (answer.statusCode !== 422) return [`status ${answer.statusCode}`]
  return answer.json().detail.map(({ loc, type }: { loc: unknown[]; type: string }) => `${loc.join('.')} ${type}`)
}

/** The version that an answer's entity tag names. */
export function versionOf(answer: LightMyRequestResponse): number {
  return Number(/-([0-9]+)"$/.exec(String(answer.headers.etag))?.[1])
}

/**
 * How often a campaign repeats: a few times in every test run, in full with `TEST_CAMPAIGN=full`; a quarter of the few where a run does
 * the same once more, on another server.
 */
export function repetitions({ few, full }: { few: number; full: number }): number {
  const { TEST_CAMPAIGN: campaign } = process.env
  if (campaign === 'full') return full
  return campaign === 'brief' ? Math.ceil(few / 4) : few
}

export function only<Row>(rows: readonly Row[]): Row {
  const [row] = rows
  if (row === undefined || rows.length > 1) throw new Error(`${rows.length} rows where there is one`)
  return row
}
