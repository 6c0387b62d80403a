import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { MANAGED_TOOL_AGENTS_MAX } from '../../src/auth/access.js'
import { worldApp } from '../app.js'
import { matrixCallers, matrixOrganisation } from '../matrix-organisation.js'

/* The rule of who manages a tool is asked of one tool by an update, and of all the tools of an agent by a read. */

const PUBLIC = 1_000

t.test('headers are shown, alone and in an agent, exactly to callers that may update the tool', async t => {
  const world = await worldApp(t)
  const { db } = world.database
  await applyOrganisation(world.database, matrixOrganisation(), { vault: world.vault, env: {} })
  const callers = [...(await matrixCallers(world))].filter(([, authorization]) => authorization?.startsWith('Bearer '))
  const tools = (await db.selectFrom('tool').select('id').orderBy('id').execute()).map(({ id }) => id)

  /** Which tools each caller may update, by the statuses of updates that change nothing. */
  const managedBy = async (authorization: string, ids: number[]) => {
    const headers = { authorization }
    const asked = ids.map(id => world.call('PUT', `/admin/tool/custom/${id}`, { headers, body: {} }))
    const answers = await Promise.all(asked)
    return ids.filter((_, i) => answers[i]?.statusCode === 200)
  }
  const shownIn = (records: { id: number; custom_headers: unknown }[]) =>
    records.filter(one => one.custom_headers !== null).map(({ id }) => id)

  let shown = 0
  for (const [caller, authorization = ''] of callers) {
    const read = tools.map(id => world.call('GET', `/tool/${id}`, { headers: { authorization } }))
    const records = (await Promise.all(read))
      .filter(({ statusCode }) => statusCode === 200)
      .map(answer => answer.json())
    const ids = records.map(({ id }) => id)
    t.strictSame(shownIn(records), await managedBy(authorization, ids), caller)
    shown += shownIn(records).length
  }
  t.ok(shown > 50, `${shown} shown`)

  await sql`insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
    overriding system value values (${PUBLIC}, 'public', '', 'auto', false, false, true)`.execute(db)
  await sql`insert into persona_group select ${PUBLIC}, id, 'viewer' from user_group where name = 'Managed'`.execute(db)
  await sql`insert into persona_tool (persona_id, tool_id) select ${PUBLIC}, id from tool`.execute(db)
  for (const [caller, authorization = ''] of callers) {
    const read = await world.call('GET', `/persona/${PUBLIC}`, { headers: { authorization } })
    if (read.statusCode !== 200) continue
    t.strictSame(shownIn(read.json().tools), await managedBy(authorization, tools), `${caller}, in an agent`)
  }
})

t.test(`403 for a group manager and a tool on more than ${MANAGED_TOOL_AGENTS_MAX} agents of the group`, async t => {
  const world = await worldApp(t)
  const { db } = world.database
  await applyOrganisation(world.database, matrixOrganisation(), { vault: world.vault, env: {} })
  const token = await world.token('manager@example.com')
  const update = () => world.call('PUT', '/admin/tool/custom/200', { token, body: {} })
  const attach = (first: number, last: number) =>
    sql`
    with a as (
      insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
      overriding system value select n, 'one', '', 'auto', false, false from generate_series(${first}::integer, ${last}) n
      returning id
    ), g as (insert into persona_group select a.id, g.id, 'viewer' from a, user_group g where g.name = 'Managed')
    insert into persona_tool (persona_id, tool_id) select id, 200 from a`.execute(db)
  await attach(5_001, 5_000 + MANAGED_TOOL_AGENTS_MAX)
  t.equal((await update()).statusCode, 200)
  await attach(9_000, 9_000)
  const refused = await update()
  t.equal(refused.statusCode, 403)
  t.match(refused.json().detail, 'More than 1000 agents have it.')
})
