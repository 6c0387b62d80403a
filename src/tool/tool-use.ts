import type { Expression, Kysely, SqlBool } from 'kysely'
import { isAttachedBy, isInside, linksOf, MANAGED_TOOL_AGENTS_MAX, personaAccess, usedBy } from '../auth/access.js'
import type { Lookup } from '../auth/authenticate.js'
import { type Caller, isAdmin, visibleAgents } from '../auth/caller.js'
import type { CallerNow } from '../auth/hook.js'
import { VIEWER_TYPES, type ViewerParameters, viewerOf, viewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { anyOf, arrayOf, lit, materialized, on, queries, val } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { Forbidden, ResourceNotFound, ToolInUse, ToolOutOfScope } from '../errors.js'
import type { OperationOptions, ReadRequest } from '../updates/resource.js'
import { requireManageable } from './rules.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import { textOf } from './stored-definition.js'
import type { StoredText } from './worker/pool.js'
import type { ToolUse } from './worker/tasks.js'

/** Numbers of agents that have a tool, by their effect on a group manager's scope. */
interface Scope {
  private: number
  shared: number
  public: number
  /** Agents in the manager's groups that got the tool from the manager. */
  own: number
  all: number
}

/** Runs `work`. Its refusal of a group manager reports how many agents of each kind keep the tool out of scope, never which. */
export async function withScopeTold<T>(
  database: Database,
  { caller, bounds }: Pick<ReadRequest, 'caller' | 'bounds'>,
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
  if (kinds.length > 0) return `Outside your groups it is on ${new Intl.ListFormat('en-GB').format(kinds)}.`
  if (scope.own > 0)
    return `You attached it yourself to ${counted(scope.own, 'agent').join('')} of your groups, which does not count.`
  return 'It is on no agent of your groups.'
}

function counted(count: number, noun: string, rest = ''): string[] {
  return count === 0 ? [] : [`${count} ${noun}${count === 1 ? '' : 's'}${rest}`]
}

const readScope = statement<ViewerParameters & { id: number }, Scope>(
  'tool_scope',
  { ...VIEWER_TYPES, id: 'integer' },
  param => {
    const viewer = viewerOf(param)
    const agents = queries()
      .selectFrom('tool as t')
      .crossJoinLateral(
        usedBy(MANAGED_TOOL_AGENTS_MAX + 1)
          .select(['used.attached_by', 'a.id', 'a.is_public', 'a.owner_id'])
          .as('a'),
      )
      .crossJoinLateral(
        queries()
          .selectNoFrom(on<{ a: { attached_by: string | null } }>().ref('a.attached_by').as('attached_by'))
          .as('used'),
      )
      .select(({ exists, or, selectFrom }) => {
        const shares = [selectFrom('persona_user as s'), selectFrom('persona_group as s')] as const
        const [users, groups] = shares
        return [
          'a.is_public',
          isInside(viewer).as('inside'),
          isAttachedBy(viewer).as('own'),
          or([
            exists(users.whereRef('s.persona_id', '=', 'a.id')),
            exists(groups.whereRef('s.persona_id', '=', 'a.id')),
          ]).as('is_shared'),
        ]
      })
      .where('t.id', '=', param('id'))
    return queries()
      .selectFrom(agents.as('agents'))
      .select(({ and, cast, fn, not, ref }) => {
        const [inside, isPublic, isShared] = [ref('inside'), ref('is_public'), ref('is_shared')]
        const count = (...which: Expression<SqlBool>[]) => {
          return cast<number>(fn.countAll().filterWhere(and(which)), 'integer')
        }
        return [
          count(not(inside), not(isPublic), not(isShared)).as('private'),
          count(not(inside), not(isPublic), isShared).as('shared'),
          count(not(inside), isPublic).as('public'),
          count(inside, ref('own')).as('own'),
          count(lit(true)).as('all'),
        ]
      })
  },
)

const AGENTS_LISTED_MAX = 1_000

/** The most agents of a tool that are read: more would delay other requests. */
const AGENTS_MAX = 10_000

/** Reads the agents of a tool that the caller may see, with the rights of an update. Throws `ResourceNotFound`, `Forbidden`. */
export async function readToolUse(
  { database, bounds }: OperationOptions,
  request: { authenticateAgain(lookup: Lookup): Promise<CallerNow> },
  id: number | undefined,
): Promise<{
  use: ToolUse
  tool: { id: number; name: string }
  stored: StoredText | undefined
  headerNames: string[]
}> {
  const { caller, prefetched } = await request.authenticateAgain({ statement: TOOL_LOOKUP.statement, id })
  requireBinding(caller, id)
  if (id === undefined || prefetched === null) throw new ResourceNotFound('tool')
  const state = prefetched as ToolState // the route's lookup sets it
  return await withScopeTold(database, { caller, bounds }, id, async () => {
    requireManageable(state)
    const [agents, sees_all] = [visibleAgents(caller.token), isAdmin(caller)]
    const ask = () => readUse.run(database.db, { id, user: caller.userId, sees_all, agents })
    const [use] = await bounds.expensive(String(caller.token.id), ask)
    if (use === undefined) throw new ResourceNotFound('tool')
    const { definition_hash: hash, definition_bytes: bytes } = state
    const headerNames = state.headers.map(({ name }) => name)
    const tool = { id, name: state.name }
    if (hash === null) return { use, tool, stored: undefined, headerNames }
    const text = async () => {
      const stored = await textOf(database, hash)
      if (stored === undefined) throw new ResourceNotFound('tool')
      return stored
    }
    return { use, tool, stored: { bytes, text }, headerNames }
  })
}

const AGENTS_NAMED_MAX = 100

/** Requires that no agent has the tool; deleted agents do not count. Throws `ToolInUse` with the agents that the caller sees. */
export async function requireUnused(db: Kysely<Tables>, id: number, caller: Caller): Promise<void> {
  const asked = { id, user: caller.userId, sees_all: isAdmin(caller), agents: visibleAgents(caller.token) }
  const [use] = await readUse.run(db, asked)
  if (use === undefined || use.ids.length + use.others === 0) return
  const named = db
    .selectFrom('persona')
    .select(['id', 'name'])
    .where('id', '=', anyOf(val(use.ids.slice(0, AGENTS_NAMED_MAX))))
  const agents = await named.orderBy('id').execute()
  throw new ToolInUse(agents, use.ids.length + use.others - agents.length)
}

/** Returns notes about agents that `impact` leaves out. */
export function useNotes(use: ToolUse | null): string[] {
  return use === null || use.isWhole
    ? []
    : [`more than ${AGENTS_MAX} agents have the tool: impact.agents counts ${AGENTS_MAX} of them`]
}

/** A token bound to resources must name one of them. The path of a validation has no id, so this checks it. */
function requireBinding({ token }: Caller, id: number | undefined): void {
  if (token.toolIds !== null && (id === undefined || !token.toolIds.includes(id))) {
    throw new Forbidden('This token is bound to other resources.')
  }
}

type UseParameters = { id: number; user: string | null; sees_all: boolean; agents: number[] | null }

const USE_TYPES = { id: 'integer', user: 'uuid', sees_all: 'boolean', agents: 'integer[]' }

const readUse = statement<UseParameters, ToolUse>('tool_use', USE_TYPES, param => {
  const { eb, or, not, exists } = on<{ p: 'persona' }>()
  const isSeen = or([param('sees_all'), eb(personaAccess(param('user')), '<>', lit('none'))])
  const isAsked = or([eb(param('agents'), 'is', null), eb('p.id', '=', anyOf(param('agents')))])
  const db = queries()
    .with(materialized('link'), () => linksOf(param('id')).select('l.persona_id').limit(lit(AGENTS_MAX)))
    .with(materialized('used'), db =>
      db
        .selectFrom('link')
        .innerJoin('persona as p', 'p.id', 'link.persona_id')
        .select('p.id')
        .where(({ not, ref }) => not(ref('p.deleted'))),
    )
    .with(materialized('listed'), db =>
      db
        .selectFrom(db.selectFrom('used').select('used.id').orderBy('used.id').as('u'))
        .innerJoin('persona as p', 'p.id', 'u.id')
        .select('u.id')
        .where(isSeen)
        .where(isAsked)
        .orderBy('u.id')
        .limit(lit(AGENTS_LISTED_MAX)),
    )
  const all = on<{ t: 'tool'; listed: { id: number }; used: { id: number } }>()
  const more = all.selectFrom('persona_tool as l').whereRef('l.tool_id', '=', 't.id').offset(lit(AGENTS_MAX))
  return db
    .selectFrom('tool as t')
    .select(({ cast, eb, selectFrom }) => {
      const listed = selectFrom('listed').select(({ fn }) => fn.countAll<number>().as('count'))
      const used = selectFrom('used').select(({ fn }) => fn.countAll<number>().as('count'))
      return [
        arrayOf(selectFrom('listed').select('listed.id').orderBy('listed.id')).as('ids'),
        cast<number>(eb(used, '-', listed), 'integer').as('others'),
        not(exists(more)).as('isWhole'),
      ]
    })
    .where('t.id', '=', param('id'))
})
