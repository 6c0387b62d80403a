import { type RawBuilder, sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { pageRows } from '../db/statements/page-rows.js'
import { isOnly, statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import { jsonRow } from '../updates/statements.js'

/* Lists of agents, a page at a time, by indexes. What a caller sees comes from four places; of a name, each agent is asked. */

interface Parameters {
  user: string
  sees_all: boolean
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** Which agents are looked at: all of an administrator, those that a token is bound to, those of a name, else those that one sees. */
const SCOPES = ['all', 'all of a name', 'bound', 'bound of a name', 'seen', 'seen of a name'] as const
type Scope = (typeof SCOPES)[number]

/** A constant, so that the planner knows that a page is short. */
const MOST = sql.lit(PAGE_RECORDS_MAX + 1)

/** Each candidate is read by its key: `offset 0` keeps the planner from reading the agents in their order until it meets them. */
const BY_ID = sql`candidate cross join lateral (select * from persona where id = candidate.id offset 0) p`

const OWNER = jsonRow(sql`select u.id, u.email from user_account u where u.id = p.owner_id`)
const RECORD = sql`${jsonRow(sql`
      select p.id, p.name, p.description, ${OWNER} as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag`)}::text`

/** The statement of each scope. */
export const personaPages = Object.fromEntries(SCOPES.map(scope => [scope, pageOf(scope)])) as Record<
  Scope,
  ReturnType<typeof pageOf>
>

/** Reads so many agents behind an id that the caller sees and the token is not bound away from. */
export async function readPersonaPage(
  database: ServiceDatabase,
  caller: Caller,
  { name }: AskedPage,
  after: number,
  rows: number,
): Promise<PageRow[]> {
  const ids = caller.token.personaIds
  const scope: 'all' | 'bound' | 'seen' = ids !== null ? 'bound' : isAdmin(caller) ? 'all' : 'seen'
  const parameters = { user: caller.userId, sees_all: isAdmin(caller), after, rows, name: name ?? '', ids: ids ?? [] }
  return await personaPages[name === undefined ? scope : (`${scope} of a name` as const)].run(database.db, parameters)
}

function pageOf(scope: Scope) {
  return statement<Parameters, PageRow>(`persona_page(${scope})`, param => {
    const user = sql`${param('user')}::uuid`
    const name = sql`${param('name')}::text`
    const behind = (id: RawBuilder<unknown>) => sql`${id} > ${param('after')}::integer`
    const seen = sql`(${param('sees_all')}::boolean or ${personaAccess(user)} <> 'none')`
    const isSeen = scope === 'seen'
    const first = isSeen ? sql`with candidate as materialized (${candidates(user, behind)})` : sql``
    const conditions = [
      sql`${behind(sql`p.id`)} and not p.deleted`,
      ...(scope.endsWith('name') ? [isOnly(sql`p.name`, name)] : []),
      ...(scope.startsWith('bound') ? [sql`p.id = any(${param('ids')}::integer[])`] : []),
      ...(scope.startsWith('all') || isSeen ? [] : [seen]),
    ]
    const order = scope.endsWith('name') ? sql`p.name, p.id` : sql`p.id`
    const found = sql`
      select p.* from ${isSeen ? BY_ID : sql`persona p`}
      where ${sql.join(conditions, sql` and `)} order by ${order} limit ${MOST}`
    return sql`${first}${pageRows(found, 'p', RECORD, sql`${param('rows')}::integer`)}`
  })
}

/** SQL: the ids of the first agents that the user owns, that are public, and that are shared with them or a group of theirs. */
function candidates(user: RawBuilder<unknown>, behind: (id: RawBuilder<unknown>) => RawBuilder<unknown>) {
  const first = (id: RawBuilder<unknown>) => sql`and ${behind(id)} order by ${id} limit ${MOST}`
  return sql`
      select id from (
        (select c.id from persona c where c.owner_id = ${user} and not c.deleted ${first(sql`c.id`)})
        union (select c.id from persona c where c.is_public and not c.deleted ${first(sql`c.id`)})
        union (
          select s.persona_id from persona_user s join persona c on c.id = s.persona_id and not c.deleted
          where s.user_id = ${user} ${first(sql`s.persona_id`)})
        union (
          select s.persona_id from user_group_member m
          cross join lateral (
            select s.persona_id from persona_group s join persona c on c.id = s.persona_id and not c.deleted
            where s.user_group_id = m.user_group_id ${first(sql`s.persona_id`)}
          ) s where m.user_id = ${user})
      ) one order by id limit ${MOST}`
}
