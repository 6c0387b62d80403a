import { sql } from 'kysely'
import { isAttachedBy, isInside, MANAGED_TOOL_AGENTS_MAX, usedBy } from '../auth/access.js'
import { type ViewerParameters, viewerOf, viewerParameters } from '../auth/viewer.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ToolOutOfScope } from '../errors.js'
import type { ReadRequest } from '../updates/resource.js'

/** How many agents have a tool, by what keeps it from a group manager or brings it to them. */
interface Scope {
  private: number
  shared: number
  public: number
  /** Agents inside the manager's groups to which the manager attached the tool. */
  own: number
  all: number
}

/** Who asks. */
export type Asker = Pick<ReadRequest, 'caller' | 'bounds'>

/**
 * Does `work`, and says of a tool that is beyond a group manager which kind of agents keep it so: how many, never which.
 * Passes every error on, `ToolOutOfScope` with the reason.
 */
export async function withScopeTold<T>(
  database: ServiceDatabase,
  { caller, bounds }: Asker,
  id: number,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ToolOutOfScope)) throw error
    const parameters = { ...viewerParameters(caller), id }
    const ask = () => readScope.run(database.db, parameters)
    const [scope] = await bounds.expensive(String(caller.token.id), ask).catch(() => [])
    throw scope === undefined ? error : new ToolOutOfScope(reasonOf(scope))
  }
}

function reasonOf(scope: Scope): string {
  if (scope.all > MANAGED_TOOL_AGENTS_MAX) return `More than ${MANAGED_TOOL_AGENTS_MAX} agents have it.`
  const kinds = [
    counted(scope.private, 'private agent'),
    counted(scope.shared, 'agent', ' shared with others'),
    counted(scope.public, 'public agent'),
  ].flat()
  if (kinds.length > 0) return `Outside your groups it is on ${inWords(kinds)}.`
  if (scope.own > 0)
    return `You attached it yourself to ${counted(scope.own, 'agent').join('')} of your groups, which does not count.`
  return 'It is on no agent of your groups.'
}

function counted(count: number, noun: string, rest = ''): string[] {
  return count === 0 ? [] : [`${count} ${noun}${count === 1 ? '' : 's'}${rest}`]
}

function inWords(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`
}

const readScope = statement<ViewerParameters & { id: number }, Scope>('tool_scope', param => {
  const viewer = viewerOf(param)
  return sql`
    select count(*) filter (where not inside and not is_public and not is_shared)::integer as private,
      count(*) filter (where not inside and not is_public and is_shared)::integer as shared,
      count(*) filter (where not inside and is_public)::integer as public,
      count(*) filter (where inside and own)::integer as own,
      count(*)::integer as all
    from (
      select a.is_public, ${isInside(viewer)} as inside, ${isAttachedBy(viewer)} as own,
        exists (select from persona_user where persona_id = a.id)
          or exists (select from persona_group where persona_id = a.id) as is_shared
      from tool t cross join lateral (select used.attached_by, a.* from ${usedBy(MANAGED_TOOL_AGENTS_MAX + 1)}) a
        cross join lateral (select a.attached_by) used
      where t.id = ${param('id')}::integer) agents`
})
