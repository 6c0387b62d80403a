import type { Expression, SqlBool } from 'kysely'
import { anyOf, arrayOf, isOnly, itemsOf, listOf, lit, materialized, on, queries } from '../db/statements/queries.js'

/* Rights on one agent or tool, as SQL (DECISIONS section 6). Reads and the check under the lock use the same expressions. */

/** The access that ownership and shares give a caller to an agent; `none` means that they cannot see it. */
export type PersonaAccess = 'owner' | 'editor' | 'viewer' | 'none'

const persona = on<{ p: 'persona' }>()
const level = (access: PersonaAccess) => lit(access)

/** SQL: the user's access to the agent `p`, by ownership and by shares with them or their groups. */
export function personaAccess(user: Expression<string>): Expression<PersonaAccess> {
  const toUser = persona
    .selectFrom('persona_user as s')
    .select('s.level')
    .whereRef('s.persona_id', '=', 'p.id')
    .where('s.user_id', '=', user)
  const toGroups = persona
    .selectFrom('persona_group as s')
    .innerJoin('user_group_member as m', 'm.user_group_id', 's.user_group_id')
    .select('s.level')
    .whereRef('s.persona_id', '=', 'p.id')
    .where('m.user_id', '=', user)
  const shared = queries()
    .selectFrom(toUser.unionAll(toGroups).as('share'))
    .select(({ eb, fn }) => {
      const isEditor = fn.agg<boolean>('bool_or', [eb('share.level', '=', lit('editor' as const))])
      return eb.case().when(isEditor).then(level('editor')).else(level('viewer')).end().as('level')
    })
    .having(({ eb, fn }) => eb(fn.countAll(), '>', eb.lit(0)))
  const byDefault = persona.case().when(persona.ref('p.is_public')).then(level('viewer')).else(level('none')).end()
  const otherwise = persona.fn.coalesce(shared, byDefault)
  return persona.case().when('p.owner_id', '=', user).then(level('owner')).else(otherwise).end()
}

/**
 * SQL expressions for the viewer: user id, whether they manage all custom tools, the groups that they manage, and the tools that their
 * token can see (null: all).
 */
export interface Viewer {
  user: Expression<string>
  managesAll: Expression<SqlBool>
  managedGroups: Expression<number[]>
  tools: Expression<number[]>
}

const tool = on<{ t: 'tool' }>()
const id = tool.ref('t.id')

/** SQL: true if the viewer's token can see the tool `t`. */
export function seesTool({ tools }: Viewer): Expression<SqlBool> {
  return tool.or([tool(tools, 'is', null), tool('t.id', '=', anyOf(tools))])
}

/** Group managers cannot manage a tool used by more agents, because checking each agent would take too long. */
export const MANAGED_TOOL_AGENTS_MAX = 1_000

/**
 * SQL: true if the viewer may manage the tool `t` (DECISIONS section 6). A group manager may if they own it, or if others attached it to
 * agents of their groups and it is on no other agent. `ids` are all tools of the statement, so that each agent is checked once.
 */
export function managesTool(viewer: Viewer, ids: Expression<number[]> = listOf(id)) {
  const isInScope = tool('t.id', '=', anyOf(toolsInScope(viewer, ids)))
  return tool.and([
    tool('t.in_code_tool_id', 'is', null),
    tool('t.mcp_server_id', 'is', null),
    seesTool(viewer),
    tool.or([
      viewer.managesAll,
      tool.and([
        tool(tool.fn<number>('cardinality', [viewer.managedGroups]), '>', lit(0)),
        tool.or([tool('t.user_id', '=', viewer.user), isInScope]),
      ]),
    ]),
  ])
}

/** Most tools used outside the groups appear on one of their first 20 agents, so check those first. */
const FIRST_AGENTS = 20

/** SQL: the tools among `ids` that the viewer may manage because of the agents that use them. Agents are looked up once, by hash joins. */
function toolsInScope(viewer: Viewer, ids: Expression<number[]>): Expression<number[]> {
  const { exists, not, and } = tool
  const inScope = queries()
    .with(materialized('asked'), db =>
      db
        .selectFrom(itemsOf(ids, 't'))
        .select('t.id')
        .where(({ eb, selectFrom }) => {
          const outside = usedBy(FIRST_AGENTS).where(not(isInside(viewer)))
          const others = selectFrom('persona_tool')
            .whereRef('tool_id', '=', 't.id')
            .offset(lit(MANAGED_TOOL_AGENTS_MAX))
          return eb
            .case()
            .when(exists(outside))
            .then(lit(false))
            .else(not(exists(others)))
            .end()
        }),
    )
    .with(materialized('inside'), db => {
      const used = db
        .selectFrom('asked as t')
        .crossJoinLateral(linksOf(id).select('l.persona_id').offset(lit(0)).as('used'))
        .select('used.persona_id')
        .distinct()
      const agent = on<{ used: { persona_id: number } }>()
        .selectFrom('persona')
        .select(['id', 'deleted', 'owner_id'])
        .whereRef('id', '=', 'used.persona_id')
        .offset(lit(0))
      return db
        .selectFrom(used.as('used'))
        .crossJoinLateral(agent.as('a'))
        .select(eb => ['a.id', eb.not('a.deleted').as('lives'), 'a.owner_id'])
        .where(eb => eb.or([eb.ref('a.deleted'), isInside(viewer)]))
    })
    .with(materialized('of_others'), db =>
      db
        .selectFrom('inside')
        .select('id')
        .where('lives', '=', lit(true))
        .where('owner_id', 'is distinct from', viewer.user),
    )
  const parts = queries<{ asked: Id; inside: Id & { lives: SqlBool }; of_others: Id }>()
  const inside = parts.selectFrom('inside').select('inside.id')
  const ofOthers = parts.selectFrom('of_others').select('of_others.id')
  const outside = linksOf(id).where('l.persona_id', 'not in', inside)
  const counting = linksOf(id).where(({ eb }) => {
    const byOther = and([
      eb('l.attached_by', '<>', viewer.user),
      eb('l.attached_by', '<>', lit(UNKNOWN_ATTACHER)),
      eb(
        'l.persona_id',
        'in',
        inside.where(({ ref }) => ref('lives')),
      ),
    ])
    return eb
      .case()
      .when('l.attached_by', 'is', null)
      .then(eb('l.persona_id', 'in', ofOthers))
      .else(byOther)
      .end()
  })
  return arrayOf(
    inScope
      .selectFrom('asked as t')
      .select('t.id')
      .where(not(exists(outside)))
      .where(exists(counting)),
  )
}

/** The value of `attached_by` if a restored link has no known author. Such a link gives no group manager rights on its tool. */
export const UNKNOWN_ATTACHER = '00000000-0000-0000-0000-000000000000'

interface Id {
  id: number
}

/** SQL: the links `l` of a tool. The redundant second condition keeps the planner from reading all links for a tool with hundreds of agents. */
export function linksOf(tool: Expression<number>) {
  return queries()
    .selectFrom('persona_tool as l')
    .where('l.tool_id', '=', tool)
    .where(({ ref }) => isOnly(ref('l.tool_id'), tool))
}

/** SQL: at most `most` agents `a` that use the tool `t`, with the link `used`. */
export function usedBy(most: number) {
  const links = linksOf(id).select(['l.persona_id', 'l.attached_by']).limit(lit(most))
  return queries()
    .selectFrom(links.as('used'))
    .innerJoin('persona as a', 'a.id', 'used.persona_id')
    .where(({ not, ref }) => not(ref('a.deleted')))
}

const used = on<{ a: 'persona'; used: { attached_by: string | null } }>()

/** SQL: true if the agent `a` is shared with a group that the viewer manages. */
export function isInside({ managedGroups }: Viewer) {
  const shares = used.selectFrom('persona_group as s').whereRef('s.persona_id', '=', 'a.id')
  return used.exists(shares.where('s.user_group_id', '=', anyOf(managedGroups)))
}

/** SQL: true if the viewer made the link `used` of the agent `a`. A link without a name counts as made by the agent's owner. */
export function isAttachedBy({ user }: Viewer) {
  return used(used.fn.coalesce('used.attached_by', 'a.owner_id'), 'is not distinct from', user)
}
