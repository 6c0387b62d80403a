import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type pg from 'pg'
import { statement } from '../src/db/statements/statement.js'
import { personaSnapshot, storedRelations } from '../src/persona/snapshot.js'
import { withDefinitions } from '../src/tool/definition-cache.js'
import { AnswerText } from '../src/updates/answer-text.js'

/** The fields of an agent update that the control stores. */
interface AgentBody {
  name: string
  description: string
  num_chunks: number
  is_public: boolean
  recency_bias: string
  llm_filter_extraction: boolean
  llm_relevance_filter: boolean
  system_prompt: string
  task_prompt: string
  datetime_aware: boolean
  starter_messages: unknown
  tool_ids: number[]
  document_set_ids: number[]
  label_ids: number[]
}

/**
 * The control of the benchmark: an agent update as a plain handler writes it, eleven prepared statements one after the
 * other in a transaction: token, begin, lock and right, row, three associations (tools in two), audit row, snapshot,
 * commit. It validates nothing and has no preconditions. Answers the snapshot as JSON text.
 */
export async function elevenStatementUpdate(
  pool: pg.Pool,
  token: string,
  id: number,
  body: AgentBody,
  address: string,
): Promise<string> {
  const client = await pool.connect()
  const run = async (name: string, text: string, values: unknown[] = []) =>
    (await client.query<Record<string, never>>({ name, text, values })).rows[0]
  try {
    const hash = createHash('sha256').update(token).digest()
    const caller = await run('e1', CALLER, [hash])
    if (caller === undefined) throw new Error('unknown token')
    await run('e2', 'begin')
    const before = await run('e3', LOCK, [id, caller.user_id])
    if (before === undefined) throw new Error('not an editor')
    const entry = createHash('sha256')
      .update(JSON.stringify([before, body]))
      .digest()
    await run('e4', UPDATE, [id, ...SCALARS.map(field => body[field]), JSON.stringify(body.starter_messages), entry])
    await run('e5', 'delete from persona_tool where persona_id = $1 and tool_id <> all($2::integer[])', [
      id,
      body.tool_ids,
    ])
    await run('e6', insertLinks('persona_tool', 'tool_id'), [id, body.tool_ids])
    await run('e7', replaceLinks('persona_document_set', 'document_set_id'), [id, body.document_set_ids])
    await run('e8', replaceLinks('persona_label', 'label_id'), [id, body.label_ids])
    await run('e9', AUDIT, [id, before.version, caller.user_id, caller.email, address, JSON.stringify(body), entry])
    const { sql: text, parameters } = SNAPSHOT.bind({
      id,
      user: String(caller.user_id),
      manages_all: false,
      managed_groups: [],
    })
    const snapshot = await run('e10', text, [...parameters])
    await run('e11', 'commit')
    return String(new AnswerText(await withDefinitions(String(snapshot?.snapshot), new Map())))
  } catch (error) {
    await client.query('rollback')
    throw error
  } finally {
    client.release()
  }
}

const SCALARS = [
  'name',
  'description',
  'num_chunks',
  'is_public',
  'recency_bias',
  'llm_filter_extraction',
  'llm_relevance_filter',
  'system_prompt',
  'task_prompt',
  'datetime_aware',
] as const

const CALLER = `
  select u.id as user_id, u.email from token t join user_account u on u.id = t.user_id
  where t.hash = $1 and u.active and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())`

const LOCK = `
  select p.version, p.audit_head, p.description from persona p
  where p.id = $1 and not p.deleted and not p.builtin_persona
    and (p.owner_id = $2 or exists (select from persona_user s where s.persona_id = p.id and s.user_id = $2 and s.level = 'editor'))
  for update`

const UPDATE = `
  update persona set ${SCALARS.map((field, i) => `${field} = $${i + 2}`).join(', ')},
    starter_messages = $${SCALARS.length + 2}::json, audit_head = $${SCALARS.length + 3},
    version = version + 1, audit_count = audit_count + 1
  where id = $1`

const AUDIT = `
  insert into audit (resource_kind, resource_id, version_before, version_after, at, actor_id, actor, request_id,
    client_address, fields, difference, difference_bytes, difference_hash, previous_hash, hash)
  values ('persona', $1, $2, $2 + 1, now(), $3, $4, 'bench', $5, '{description}', $6::text::json, length($6::text), $7, $7, $7)`

function insertLinks(table: string, column: string): string {
  return `insert into ${table} (persona_id, ${column}) select $1, unnest($2::integer[]) on conflict do nothing`
}

function replaceLinks(table: string, column: string): string {
  return `with gone as (delete from ${table} where persona_id = $1 and ${column} <> all($2::integer[]))
    ${insertLinks(table, column)}`
}

const SNAPSHOT = statement<SnapshotParameters, { snapshot: string }>('eleven_snapshot', param => {
  const viewer = {
    user: sql`${param('user')}::uuid`,
    managesAll: sql`${param('manages_all')}::boolean`,
    managedGroups: sql`${param('managed_groups')}::integer[]`,
  }
  return sql`select ${personaSnapshot(storedRelations, viewer, sql`'{}'::bytea[]`)} as snapshot
    from persona p where p.id = ${param('id')}::integer`
})

interface SnapshotParameters {
  id: number
  user: string
  manages_all: boolean
  managed_groups: number[]
}
