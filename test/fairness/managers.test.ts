import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

t.test('row 3: a group manager updates an agent whose tool many agents use', async t => {
  const world = await fairnessWorld(t, { popularity: FULL ? 150_000 : 100_000 })
  const service = await fairService(t, world)
  let n = 0
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 8, 50, () => callers.update(world.manager, { description: `${n++}` })),
  )
})

t.test("the statement timeout of a slow row is nobody else's: the same with 300 ms", async t => {
  const world = await fairnessWorld(t, { popularity: FULL ? 150_000 : 100_000 })
  const service = await fairService(t, world, { STATEMENT_TIMEOUT_MS: '300' })
  let n = 0
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 8, 50, () => callers.update(world.manager, { description: `${n++}` })),
  )
})
