import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

const POPULARITY = FULL ? 150_000 : 100_000

const world = await fairnessWorld(t, { popularity: POPULARITY })

t.test('row 3: a group manager updates an agent whose tool many agents use', async t => {
  const service = await fairService(t, world)
  let n = 0
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 8, 50, () => callers.update(world.manager, { description: `${n++}` })),
  )
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
