import { type Kysely, sql } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { shownHeaders } from '../tool/rules.js'
import { readToolStates } from './apply/tools.js'
import { readReferences } from './apply/words.js'
import { exportTools } from './export.js'
import { Refusal } from './refusal.js'

export const NOUN = { persona: 'agent', tool: 'tool' } as const

/** Finds the id of an agent or tool by its id or unique name; with `deleted` also of a deleted one. Throws `Refusal`, which mentions a deletion. */
export async function resourceId(
  db: Kysely<Tables>,
  kind: ResourceKind,
  text: string,
  deleted = false,
): Promise<number> {
  const isId = /^[1-9]\d{0,9}$/.test(text)
  const alive = kind === 'persona' ? sql`not deleted` : sql`true`
  const isMeant = isId ? sql`id = ${text}::bigint` : sql`name = ${text} and ${alive}`
  const { rows } = await sql<{ id: number }>`
    select id from ${sql.table(kind)} where ${isMeant} order by id limit 11`.execute(db)
  const gone = rows.length > 0 ? [] : await deletedIds(db, kind, text, isId)
  const ids = (rows.length > 0 ? rows : gone).map(({ id }) => id)
  const [id, ...others] = ids
  if (id === undefined) throw new Refusal(`there is no ${NOUN[kind]} ${text}`)
  if (others.length > 0) {
    const state = rows.length > 0 ? 'have the name' : 'that were deleted had the name'
    throw new Refusal(`several ${NOUN[kind]}s ${state} ${text}: say which id, ${ids.join(', ')}`)
  }
  if (rows.length === 0 && !deleted) {
    throw new Refusal(`there is no ${NOUN[kind]} ${text}: ${NOUN[kind]} ${id} was ${await deletionOf(db, kind, id)}`)
  }
  return id
}

/** The ids of deleted resources with this id or last name. A removed tool is only in the audit trail. */
async function deletedIds(db: Kysely<Tables>, kind: ResourceKind, text: string, isId: boolean) {
  const rows =
    kind === 'persona'
      ? sql<{ id: number }>`select id from persona where deleted and name = ${text} order by id limit 11`
      : sql<{ id: number }>`
          select last.id from (
            select distinct on (resource_id) resource_id as id, difference -> 'name' ->> 'to' as name from audit
            where resource_kind = 'tool' and ${isId ? sql`resource_id = ${text}::bigint` : sql`true`} and 'name' = any(fields)
              and not exists (select from tool where id = resource_id)
            order by resource_id, version_after desc) last
          where ${isId ? sql`true` : sql`last.name = ${text}`} order by last.id limit 11`
  return (await rows.execute(db)).rows
}

/** Time and author of a deletion, as the end of a sentence; undefined for an existing resource. */
export async function deletionOf(db: Kysely<Tables>, kind: ResourceKind, id: number): Promise<string | undefined> {
  const [field, isThere] =
    kind === 'persona' ? ['deleted', sql`not p.deleted and p.id = ${id}`] : ['removed', sql`p.id = ${id}`]
  const { rows } = await sql<{ at: string; actor: string; client_address: string }>`
    select at, actor, client_address from audit
    where resource_kind = ${kind} and resource_id = ${id} and ${field} = any(fields)
      and not exists (select from ${sql.table(kind)} p where ${isThere})
    order by version_after desc limit 1`.execute(db)
  return rows[0] && `deleted at ${rows[0].at} by ${rows[0].actor} (${rows[0].client_address})`
}

/** One tool: its version, its entry in a document with redactions for secrets, and its agents. Throws `Refusal`. */
export async function showTool(db: Kysely<Tables>, id: number): Promise<Record<string, unknown>> {
  const state = (await readToolStates(db, [id])).get(id)
  if (state === undefined) throw new Refusal(`there is no tool ${id}`)
  const [{ definition = null, ...entry } = {}] = await exportTools(db, await readReferences(db), id)
  const custom_headers = shownHeaders(state.headers)
  return { version: state.version, ...entry, custom_headers, agents: await agentsWithTool(db, id), definition }
}

/** The agents that have a tool, with what decides whether its group managers may change it: owner, who attached it, and groups. */
async function agentsWithTool(db: Kysely<Tables>, id: number): Promise<object[]> {
  const { rows } = await sql<object>`
    select p.id, p.name, o.email as owner, coalesce(u.email, l.attached_by::text) as attached_by, p.is_public,
      array(select g.name from persona_group s join user_group g on g.id = s.user_group_id
            where s.persona_id = p.id order by g.name) as groups
    from persona_tool l join persona p on p.id = l.persona_id and not p.deleted
    left join user_account o on o.id = p.owner_id
    left join user_account u on u.id = l.attached_by
    where l.tool_id = ${id}::integer order by p.id`.execute(db)
  return rows
}
