import { sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { Forbidden, ResourceNotFound } from '../errors.js'
import type { ToolUse } from './impact.js'
import { toolResource } from './resource.js'
import { requireManageable } from './rules.js'
import { type Asker, withScopeTold } from './scope.js'

const AGENTS_LISTED_MAX = 1000

/**
 * Reads what the caller may know of a tool's use, under the permission of its update: `ResourceNotFound`, `Forbidden`,
 * `BuiltinReadOnly`. An undefined id is one that no tool can have.
 */
export async function readToolUse(database: ServiceDatabase, asker: Asker, id: number | undefined): Promise<ToolUse> {
  const { caller } = asker
  requireBinding(caller, id)
  if (id === undefined) throw new ResourceNotFound('tool')
  return await withScopeTold(database, asker, id, async () => {
    const state = await toolResource.read(database.db, id, viewerParameters(caller))
    if (state === undefined) throw new ResourceNotFound('tool')
    requireManageable(state)
    const [use] = await readUse.run(database.db, { id, user: caller.userId, sees_all: isAdmin(caller) })
    if (use === undefined) throw new ResourceNotFound('tool')
    return use
  })
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
    with used as (
      select p.id, ${param('sees_all')}::boolean or ${access} <> 'none' as visible
      from persona_tool link join persona p on p.id = link.persona_id and not p.deleted
      where link.tool_id = ${param('id')}::integer
    ), listed as (
      select id from used where visible order by id limit ${sql.lit(AGENTS_LISTED_MAX)}
    )
    select d.content::text as definition, array(select id from listed order by id) as ids,
      ((select count(*) from used) - (select count(*) from listed))::integer as others
    from tool t left join tool_definition d on d.hash = t.definition_hash
    where t.id = ${param('id')}::integer`
})
