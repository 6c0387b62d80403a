import type pg from 'pg'
import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { fairnessWorld, managersOfSharedTools } from './world.js'

const POPULARITY = FULL ? 150_000 : 40_000

const world = await fairnessWorld(t, { popularity: POPULARITY })

t.test('row 3: a group manager updates an agent whose tool many agents use', async t => {
  const service = await fairService(t, world)
  let n = 0
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 8, 50, () => callers.update(world.manager, { description: `${n++}` })),
  )
})

/** As many tools as agents usually have at most, and of each nearly as many agents as a group manager may manage it with. */
const SHARED = { managers: 6, tools: 100, agents: FULL ? 990 : 300 }
const managers = await managersOfSharedTools(world, SHARED)

t.test(
  'what a group manager is shown of an agent: no agent that has its tools is looked at for each of them',
  async t => {
    const service = await fairService(t, world)
    const [manager] = managers
    const callers = new Callers(service.port)
    const before = await rowsRead(world.client)
    const answer = await callers.send('GET', `/persona/${manager?.agentId}`, manager?.token ?? '', '')
    callers.close()
    t.equal(answer.status, 200)
    t.equal(answer.body.match(/"custom_headers" ?: ?\[/g)?.length, SHARED.tools, 'they manage each')
    await service.stop('SIGTERM') // what its connections read is counted when they end
    const after = await rowsRead(world.client)
    const agents = SHARED.agents + SHARED.managers
    const links = SHARED.tools * agents
    for (const [table, most] of Object.entries({
      persona_tool: 4 * links,
      persona: links / 10,
      persona_group: links / 10,
    })) {
      const read = (after[table] ?? 0) - (before[table] ?? 0)
      t.ok(read >= agents && read <= most, `${read} rows of ${table}, at most ${most}`)
    }
  },
)

/** The rows of each table that were read ever. */
async function rowsRead(client: pg.Client): Promise<Record<string, number>> {
  const { rows } = await client.query<{ name: string; rows: string }>(
    `select s.relname as name, s.seq_tup_read + sum(i.idx_tup_read) as rows
    from pg_stat_user_tables s join pg_stat_user_indexes i using (relid) group by 1, s.seq_tup_read`,
  )
  return Object.fromEntries(rows.map(({ name, rows }) => [name, Number(rows)]))
}

t.test('six group managers update agents with a hundred tools, each of which many agents have', async t => {
  const service = await fairService(t, world)
  let n = 0
  await requireFairness(t, world, service, async (over, callers) => {
    const attack = managers.map(manager =>
      repeatedly(over, 4, 0, () => callers.update(manager, { description: `${n++}` })),
    )
    await Promise.all(attack)
  })
})

t.test("the statement timeout of a slow row is nobody else's: the same with 300 ms", async t => {
  const service = await fairService(t, world, { STATEMENT_TIMEOUT_MS: '300' })
  let n = 0
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 8, 50, () => callers.update(world.manager, { description: `${n++}` })),
  )
})

t.test('small definitions are validated against a tool that', async t => {
  await world.client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email = 'alice+attacker@example.com'`,
  )
  const service = await fairService(t, world)
  const paths = { '/x': { get: { operationId: 'x', summary: 'X' } } }
  const definition = { openapi: '3.1.0', info: { title: 'x' }, servers: [{ url: 'https://h.example.com' }], paths }
  const body = JSON.stringify({ definition })
  const tools = { 'many agents use': world.popularTool, 'has a definition of 4.9 MB': world.largeTools[0] }
  for (const [what, tool] of Object.entries(tools).slice(0, FULL ? 2 : 1)) {
    await t.test(what, async t => {
      let answered = 0
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, 40, 0, async () => {
          const path = `/admin/tool/custom/validate?tool_id=${tool}`
          const { status } = await callers.send('POST', path, world.attacker.token, Buffer.from(body))
          if (status === 200) answered++
        }),
      )
      t.ok(answered > 0)
    })
  }
})
