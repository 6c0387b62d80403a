import pg from 'pg'
import t from 'tap'
import { fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

t.test('row 4: forty updates of one locked agent', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const holder = new pg.Client({ connectionString: world.url })
  await holder.connect()
  t.teardown(() => holder.end())
  const { attacker } = world
  let n = 0
  await requireFairness(t, world, service, async (over, callers) => {
    await holder.query('begin')
    await holder.query('select from persona where id = $1 for update', [attacker.agentId])
    const attacking = repeatedly(over, 40, 100, () => callers.update(attacker, { description: `${n++}` }))
    over.addEventListener('abort', () => void holder.query('rollback'))
    await attacking
  })
})
