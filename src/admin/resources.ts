import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { shownHeaders } from '../tool/headers.js'
import { isInt4 } from '../validation/vocabulary.js'
import { readToolStates } from './apply/tools.js'
import { readReferences } from './apply/words.js'
import { exportTools } from './export.js'
import { Refusal } from './refusal.js'

export const NOUN = { persona: 'agent', tool: 'tool' } as const

/** How a command names an agent or tool. Anyone can give an agent any name, so a name counts only with its owner. */
export const REFERENCE = 'an id, or OWNER/NAME such as alice@example.com/Support'

/**
 * Finds the id of an agent or tool by its id, or by its owner's email and its name; with `deleted` also of a deleted one. Throws `Refusal`,
 * which mentions a deletion, and what else has the name.
 */
export async function resourceId(
  db: Kysely<Tables>,
  kind: ResourceKind,
  text: string,
  deleted = false,
): Promise<number> {
  const noun = NOUN[kind]
  const alive = kind === 'persona' ? sql`not r.deleted` : sql`true`
  const owner = sql.ref(kind === 'persona' ? 'r.owner_id' : 'r.user_id')
  const id = /^[1-9]\d{0,9}$/.test(text) && isInt4(Number(text)) ? Number(text) : undefined
  const isMeant = id === undefined ? sql`u.email || '/' || r.name = ${text}` : sql`r.id = ${id}`
  const find = async (which: RawBuilder<unknown>) => {
    const found = sql<{ id: number; alive: boolean }>`
      select r.id, ${alive} as alive from ${sql.table(kind)} r left join user_account u on u.id = ${owner}
      where ${which} order by alive desc, id limit 11`
    return (await found.execute(db)).rows
  }
  const rows = await find(isMeant)
  const there = rows.some(row => row.alive) ? rows.filter(row => row.alive) : rows
  const [one, ...others] = there
  const ids = there.map(({ id }) => id).join(', ')
  if (one === undefined) {
    const removed = id === undefined ? undefined : await deletionOf(db, kind, id)
    if (id !== undefined && removed !== undefined && deleted) return id
    if (removed !== undefined) throw new Refusal(`there is no ${noun} ${text}: ${noun} ${text} was ${removed}`)
    const named = (await find(sql`r.name = ${text} and ${alive}`)).map(({ id }) => id).join(', ')
    if (named === '') throw new Refusal(`there is no ${noun} ${text}`)
    throw new Refusal(`a name alone does not identify the ${noun}: say ${REFERENCE}. The name ${text} has: ${named}`)
  }
  if (!one.alive && !deleted)
    throw new Refusal(`there is no ${noun} ${text}: ${noun} ${one.id} was ${await deletionOf(db, kind, one.id)}`)
  if (others.length > 0) throw new Refusal(`several ${noun}s have the name ${text}: say which id, ${ids}`)
  return one.id
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
