import type { LightMyRequestResponse } from 'fastify'
import { type Kysely, sql } from 'kysely'
import { createUser } from '../../src/admin/people.js'
import type { Database } from '../../src/db/database.js'
import type { Permission, Tables } from '../../src/db/tables.js'
import type { WorldApp } from '../app.js'
import { eventually } from '../eventually.js'

/** An agent as stored in the tables, with the field names of the update. Dates are in UTC with microseconds. */
export interface StoredAgent {
  [field: string]: unknown
  version: number
}

/** Reads an agent from the tables without the code of the service. */
export async function storedAgent({ database }: Pick<WorldApp, 'database'>, id: number): Promise<StoredAgent> {
  const links = (table: string, column: string, value = column) =>
    sql.raw(`(select coalesce(jsonb_agg(${value} order by ${column}), '[]') from ${table} where persona_id = p.id)`)
  const shares = (table: string, column: string) =>
    links(table, column, `jsonb_build_object('id', ${column}, 'level', level)`)
  const { rows } = await sql<{ agent: StoredAgent }>`
    select to_jsonb(p) - array['created_at', 'recent_changes', 'audit_head', 'audit_anchor'] || jsonb_build_object(
      'search_start_date', to_char(p.search_start_date at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
      'document_set_ids', ${links('persona_document_set', 'document_set_id')},
      'tool_ids', ${links('persona_tool', 'tool_id')}, 'label_ids', ${links('persona_label', 'label_id')},
      'user_file_ids', ${links('persona_user_file', 'user_file_id')},
      'users', ${shares('persona_user', 'user_id')}, 'groups', ${shares('persona_group', 'user_group_id')}) as agent
    from persona p where p.id = ${id}`.execute(database.db)
  const [row] = rows
  if (row === undefined) throw new Error(`there is no agent ${id}`)
  return row.agent
}

/** A tool as stored in the tables: the definition as text, and header names with encrypted bytes. */
export interface StoredTool {
  [column: string]: unknown
  version: number
  definition: string | null
  headers: { name: string; ciphertext: string }[]
}

/** Reads a tool from the tables without the code of the service. */
export async function storedTool({ database }: Pick<WorldApp, 'database'>, id: number): Promise<StoredTool> {
  const { rows } = await sql<{ tool: StoredTool }>`
    select to_jsonb(t) - array['created_at', 'recent_changes', 'audit_head', 'audit_anchor', 'definition_hash'] || jsonb_build_object(
      'definition', (select d.content::text from tool_definition d where d.hash = t.definition_hash),
      'headers', (select coalesce(jsonb_agg(jsonb_build_object('name', h.name, 'ciphertext', encode(h.ciphertext, 'hex'))
                                            order by h.position), '[]')
                  from tool_header h where h.tool_id = t.id)) as tool
    from tool t where t.id = ${id}`.execute(database.db)
  const [row] = rows
  if (row === undefined) throw new Error(`there is no tool ${id}`)
  return row.tool
}

/** Returns a hash of all rows of each table. Ignores the last use of tokens, which any request can change. */
export async function hashOfEverything(db: Kysely<Tables>): Promise<Record<string, string>> {
  const { rows: tables } = await sql<{ name: string }>`
    select table_name as name from information_schema.tables
    where table_schema = current_schema() and table_type = 'BASE TABLE' order by 1`.execute(db)
  const parts = tables.map(({ name }) => {
    const rows = sql`select md5((to_jsonb(r) - 'last_used_at')::text) as content from ${sql.table(name)} r`
    const hash = sql`coalesce(md5(string_agg(content, '' order by content)), '')`
    return sql`select ${sql.lit(name)} as name, ${hash} as hash from (${rows}) hashed`
  })
  const all = sql<{ name: string; hash: string }>`${sql.join(parts, sql` union all `)} order by 1`
  const { rows } = await all.execute(db)
  return Object.fromEntries(rows.map(({ name, hash }) => [name, hash]))
}

/** Returns the audit rows of a resource with the emails of their authors, oldest first. */
export async function auditRows(db: Kysely<Tables>, kind: 'persona' | 'tool', id: number) {
  return await db
    .selectFrom('audit_entry')
    .selectAll()
    .select('author as actor')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .orderBy('version_after')
    .execute()
}

export function warningsOf(answer: LightMyRequestResponse): string[] {
  const header = answer.headers.warning
  return header === undefined ? [] : [...String(header).matchAll(/299 - "([^"]*)"/g)].map(found => found[1] ?? '')
}

/** Formats the faults of a 422, for example `body.tool_ids.1 not_found`. */
export function faultsOf(answer: LightMyRequestResponse): string[] {
  if (answer.statusCode !== 422) return [`status ${answer.statusCode}`]
  return answer.json().detail.map(({ loc, type }: { loc: unknown[]; type: string }) => `${loc.join('.')} ${type}`)
}

/** Returns the version in the entity tag of an answer. */
export function versionOf({ headers }: Pick<LightMyRequestResponse, 'headers'>): number {
  return Number(/-([0-9]+)(?:\.[0-9a-f]+)?"$/.exec(String(headers.etag))?.[1])
}

/** Waits until at least `count` transactions in the database wait for a lock. */
export async function untilLocked({ db }: Pick<Database, 'db'>, count = 1): Promise<void> {
  const waiting = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await eventually(async () => (await waiting.execute(db)).rows.length >= count)
}

/** Returns the number of runs of a property: a quarter in a brief run, which repeats the tests on another server. */
export function repetitions(usual: number): number {
  return process.env.TEST_CAMPAIGN === 'brief' ? Math.ceil(usual / 4) : usual
}

/** Returns a generator of pseudo-random numbers below `n`, with the same sequence in every run. */
export function sequence(seed: number): (n: number) => number {
  let state = seed
  return n => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * n)
  }
}

export async function newPerson({ db }: Database, email: string, ...permissions: Permission[]): Promise<string> {
  return await db.transaction().execute(trx => createUser(trx, { email, kind: 'person', permissions }))
}
