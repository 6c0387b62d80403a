import { sql } from 'kysely'
import { linksOf, personaAccess } from '../auth/access.js'
import type { Lookup } from '../auth/authenticate.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import type { CallerNow } from '../auth/hook.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { Forbidden, ResourceNotFound } from '../errors.js'
import type { WorkBounds } from '../updates/resource.js'
import type { ToolUse } from './impact.js'
import { requireManageable } from './rules.js'
import { withScopeTold } from './scope.js'
import { callerAndTool, type ToolState } from './state.js'
import { textOf } from './stored-definition.js'
import type { StoredText } from './worker/pool.js'

const AGENTS_LISTED_MAX = 1_000

/** So many agents that have the tool are looked at: what a look at each of them costs, others would wait for. */
const AGENTS_MAX = 10_000

/** A tool's use, and its definition, if it has one. */
interface UsedTool {
  use: ToolUse
  stored: StoredText | undefined
}

/** A request that asks for a tool's use. */
interface Asking {
  authenticateAgain(lookup: Lookup): Promise<CallerNow>
}

/**
 * Reads what the caller may know of a tool's use, under the permission of its update: `ResourceNotFound`, `Forbidden`,
 * `BuiltinReadOnly`. `request` establishes who calls along with the tool. An undefined id is one that no tool can have.
 */
export async function readToolUse(
  database: ServiceDatabase,
  request: Asking,
  bounds: WorkBounds,
  id: number | undefined,
): Promise<UsedTool> {
  const { caller, prefetched } = await request.authenticateAgain({ statement: callerAndTool, id })
  requireBinding(caller, id)
  if (id === undefined || prefetched === null) throw new ResourceNotFound('tool')
  const state = prefetched as ToolState // of this lookup
  return await withScopeTold(database, { caller, bounds }, id, async () => {
    requireManageable(state)
    const ask = () => readUse.run(database.db, { id, user: caller.userId, sees_all: isAdmin(caller) })
    const [use] = await bounds.expensive(String(caller.token.id), ask)
    if (use === undefined) throw new ResourceNotFound('tool')
    const { definition_hash: hash, definition_bytes: bytes } = state
    if (hash === null) return { use, stored: undefined }
    const text = async () => {
      const stored = await textOf(database, { hash, bytes })
      if (stored === undefined) throw new ResourceNotFound('tool')
      return stored
    }
    return { use, stored: { bytes, text } }
  })
}

/** What `impact` leaves out. */
export function useNotes(use: ToolUse | null): string[] {
  return use === null || use.isWhole
    ? []
    : [`more than ${AGENTS_MAX} agents have the tool: impact.agents counts ${AGENTS_MAX} of them`]
}

/** A token bound to resources learns nothing of others; the path of validation names none, so it is checked here. */
function requireBinding({ token }: Caller, id: number | undefined): void {
  if (token.toolIds !== null && (id === undefined || !token.toolIds.includes(id))) {
    throw new Forbidden('This token is bound to other resources.')
  }
}

const readUse = statement<{ id: number; user: string | null; sees_all: boolean }, ToolUse>('tool_use', param => {
  const access = personaAccess(sql`${param('user')}::uuid`)
  return sql`
    with link as materialized (
      select persona_id from ${linksOf(sql`${param('id')}::integer`)} limit ${sql.lit(AGENTS_MAX)}
    ), used as materialized (
      select p.id from link join persona p on p.id = link.persona_id and not p.deleted
    ), listed as materialized (
      select used.id
      from (select id from used order by id) used join persona p on p.id = used.id
      where ${param('sees_all')}::boolean or ${access} <> 'none'
      order by used.id limit ${sql.lit(AGENTS_LISTED_MAX)}
    )
    select array(select id from listed order by id) as ids,
      ((select count(*) from used) - (select count(*) from listed))::integer as others,
      not exists (select from persona_tool where tool_id = t.id offset ${sql.lit(AGENTS_MAX)}) as "isWhole"
    from tool t
    where t.id = ${param('id')}::integer`
})
