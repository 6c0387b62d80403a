import { sql } from 'kysely'
import t from 'tap'
import { MANAGED_TOOL_AGENTS_MAX, managesTool } from '../../src/auth/access.js'
import { worldDatabase } from '../world.js'

/*
 * The rule of a group manager's tools, as SQL over many tools and over one, beside the same in a few words of TypeScript, in organisations
 * of chance.
 */

const USERS = 4
const GROUPS = 3
const AGENTS = 14
const TOOLS = 40
const FIRST_ID = 5_000

interface Link {
  agent: number
  tool: number
  by: number | null
}

interface Organisation {
  owners: (number | null)[]
  deleted: boolean[]
  /** Of each agent the groups that it is shared with. */
  groups: number[][]
  /** Of each tool who owns it. */
  toolOwners: (number | null)[]
  builtin: boolean[]
  links: Link[]
}

t.test('many tools at once, one alone and the rule say the same', async t => {
  const { database } = await worldDatabase(t)
  const found = { yes: 0, no: 0 }
  for (let seed = 1; seed <= 12; seed++) {
    const organisation = organisationOf(seed)
    await database.db
      .transaction()
      .execute(async trx => {
        await store(organisation).execute(trx)
        for (const [user, managed] of [
          [0, [0]],
          [0, [0, 1]],
          [1, [2]],
          [2, [0, 1, 2]],
          [3, []],
        ] as [number, number[]][]) {
          const expected = organisation.toolOwners.map((_, tool) => manages(organisation, tool, user, managed))
          for (const is of expected) found[is ? 'yes' : 'no'] += 1
          const viewer = {
            user: sql`${userId(user)}::uuid`,
            managesAll: sql`false`,
            managedGroups: sql`${managed.map(id => FIRST_ID + id)}::integer[]`,
          }
          const ids = sql`${expected.map((_, tool) => FIRST_ID + tool)}::integer[]`
          const { rows } = await sql<{ together: boolean; alone: boolean }>`
            select coalesce(${managesTool(viewer, ids)}, false) as together, coalesce(${managesTool(viewer)}, false) as alone
            from tool t where t.id = any(${ids}) order by t.id`.execute(trx)
          t.strictSame(
            rows.map(({ together }) => together),
            expected,
            `seed ${seed}, user ${user} of groups ${managed}`,
          )
          t.strictSame(
            rows.map(({ alone }) => alone),
            expected,
          )
        }
        throw new Undone()
      })
      .catch(error => {
        if (!(error instanceof Undone)) throw error
      })
  }
  t.ok(found.yes > 200 && found.no > 200, JSON.stringify(found))
})

t.test('a tool on as many agents as a group manager may manage it with, and on one more', async t => {
  const { database } = await worldDatabase(t)
  const organisation = organisationOf(1)
  const agents = Array.from({ length: MANAGED_TOOL_AGENTS_MAX + 1 }, (_, agent) => agent)
  Object.assign(organisation, {
    owners: agents.map(() => 1),
    deleted: agents.map(agent => agent === 0),
    groups: agents.map(() => [0]),
    toolOwners: [null, null],
    builtin: [false, false],
    links: agents.flatMap(agent => [
      { agent, tool: 0, by: null },
      ...(agent < 1_000 ? [{ agent, tool: 1, by: 1 }] : []),
    ]),
  })
  await store(organisation).execute(database.db)
  const viewer = {
    user: sql`${userId(0)}::uuid`,
    managesAll: sql`false`,
    managedGroups: sql`array[${FIRST_ID}::integer]`,
  }
  const ids = sql`array[${FIRST_ID}::integer, ${FIRST_ID + 1}::integer]`
  const { rows } = await sql<{ is: boolean }>`
    select coalesce(${managesTool(viewer, ids)}, false) as is from tool t where t.id = any(${ids}) order by t.id`.execute(
    database.db,
  )
  t.strictSame(
    rows.map(({ is }) => is),
    [false, true],
  )
})

class Undone extends Error {}

function manages(organisation: Organisation, tool: number, user: number, managed: number[]): boolean {
  const { owners, deleted, groups, toolOwners, builtin, links } = organisation
  if (builtin[tool] || managed.length === 0) return false
  if (toolOwners[tool] === user) return true
  const live = links.filter(link => link.tool === tool && !deleted[link.agent])
  const isInside = ({ agent }: Link) => groups[agent]?.some(group => managed.includes(group)) === true
  return live.every(isInside) && live.some(({ agent, by }) => (by ?? owners[agent] ?? null) !== user)
}

/** Most agents are in the first groups, so that many tools are inside. */
function organisationOf(seed: number): Organisation {
  let state = seed
  const chance = (part: number) => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647 < part
  }
  const oneOf = (count: number) => Array.from({ length: count }, (_, i) => i).find(i => chance(1 / (count - i))) ?? 0
  const someone = (part: number) => (chance(part) ? oneOf(USERS) : null)
  const list = <T>(count: number, make: () => T) => Array.from({ length: count }, make)
  const links = new Map<string, Link>()
  for (let tool = 0; tool < TOOLS; tool++) {
    for (let i = oneOf(5); i > 0; i--) {
      const agent = oneOf(AGENTS)
      links.set(`${agent} ${tool}`, { agent, tool, by: someone(0.5) })
    }
  }
  return {
    owners: list(AGENTS, () => someone(0.8)),
    deleted: list(AGENTS, () => chance(0.2)),
    groups: list(AGENTS, () => list(GROUPS, () => 0).flatMap((_, group) => (chance(0.6) ? [group] : []))),
    toolOwners: list(TOOLS, () => someone(0.2)),
    builtin: list(TOOLS, () => chance(0.1)),
    links: [...links.values()],
  }
}

function userId(user: number | null): string | null {
  return user === null ? null : `b0000000-0000-4000-8000-00000000000${user}`
}

function store({ owners, deleted, groups, toolOwners, builtin, links }: Organisation) {
  const shares = groups.flatMap((of, agent) => of.map(group => ({ agent: FIRST_ID + agent, group: FIRST_ID + group })))
  const agents = owners.map((owner, id) => ({ id: FIRST_ID + id, owner: userId(owner), deleted: deleted[id] }))
  const tools = toolOwners.map((owner, id) => ({ id: FIRST_ID + id, owner: userId(owner), builtin: builtin[id] }))
  const stored = links.map(({ agent, tool, by }) => ({
    agent: FIRST_ID + agent,
    tool: FIRST_ID + tool,
    by: userId(by),
  }))
  const users = Array.from({ length: USERS }, (_, user) => userId(user))
  return sql`
    with u as (
      insert into user_account (id, email, kind, permissions)
      select id, 'alice+' || id || '@example.com', 'person', '{basic}' from unnest(${users}::uuid[]) id on conflict do nothing
    ), g as (
      insert into user_group (id, name) overriding system value
      select id, 'scope ' || id from generate_series(${FIRST_ID}::integer, ${FIRST_ID + GROUPS - 1}::integer) id
    ), a as (
      insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id, deleted)
        overriding system value
      select id, 'scope', '', 'auto', false, false, owner, deleted
      from json_to_recordset(${JSON.stringify(agents)}::json) as x(id integer, owner uuid, deleted boolean)
    ), t as (
      insert into tool (id, name, user_id, in_code_tool_id) overriding system value
      select id, 'scope ' || id, owner, case when builtin then 'builtin ' || id end
      from json_to_recordset(${JSON.stringify(tools)}::json) as x(id integer, owner uuid, builtin boolean)
    ), s as (
      insert into persona_group (persona_id, user_group_id)
      select agent, "group" from json_to_recordset(${JSON.stringify(shares)}::json) as x(agent integer, "group" integer)
    )
    insert into persona_tool (persona_id, tool_id, attached_by)
    select agent, tool, by from json_to_recordset(${JSON.stringify(stored)}::json) as x(agent integer, tool integer, by uuid)`
}
