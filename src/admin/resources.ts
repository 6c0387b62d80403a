import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { ResourceKind, Tables } from '../db/tables.js'
import { isInt4 } from '../validation/vocabulary.js'
import { Refusal } from './refusal.js'

/** How a command names an agent or tool. Anyone can give an agent any name, so a name counts only with its owner. */
export const REFERENCE = 'an id, or OWNER/NAME such as alice@example.com/Support'

/** Finds the id of an agent or tool by its id, or by its owner's email and its name. Throws `Refusal`, which mentions what else has the name. */
export async function resourceId(db: Kysely<Tables>, kind: ResourceKind, text: string): Promise<number> {
  const isTool = kind === 'tool'
  const noun = isTool ? 'tool' : 'agent'
  const find = async (which: RawBuilder<unknown>) => {
    const { rows } = await sql<{ id: number }>`
      select r.id from ${sql.table(kind)} r left join user_account u on u.id = ${sql.ref(isTool ? 'r.user_id' : 'r.owner_id')}
      where ${which} and ${isTool ? sql`true` : sql`not r.deleted`} order by r.id limit 11`.execute(db)
    return rows.map(({ id }) => id)
  }
  const isId = /^[1-9]\d{0,9}$/.test(text) && isInt4(Number(text))
  const ids = await find(isId ? sql`r.id = ${Number(text)}` : sql`u.email || '/' || r.name = ${text}`)
  if (ids.length > 1) throw new Refusal(`several ${noun}s have the name ${text}: say which id, ${ids.join(', ')}`)
  const [id] = ids
  if (id !== undefined) return id
  const named = await find(sql`r.name = ${text}`)
  if (named.length === 0) throw new Refusal(`there is no ${noun} ${text}`)
  const has = named.join(', ')
  throw new Refusal(`a name alone does not identify the ${noun}: say ${REFERENCE}. The name ${text} has: ${has}`)
}
