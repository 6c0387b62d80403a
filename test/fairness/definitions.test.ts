import t from 'tap'
import { fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

const HEAD = { openapi: '3.1.0', info: { title: 'Hostile' }, servers: [{ url: 'https://h.example.com' }] }

/** A base address of two million characters that 30,000 references would be resolved against. */
function longBase(): object {
  const allOf = Array.from({ length: 30_000 }, (_, i) => ({ $ref: `r${i}.json` }))
  const schema = { $id: `https://h.example.com/${'a'.repeat(2_000_000)}`, allOf }
  const requestBody = { content: { 'application/json': { schema } } }
  return { ...HEAD, paths: { '/x': { post: { operationId: 'x', summary: 'X', requestBody } } } }
}

t.test('row 7: a definition with an $id of two million characters and 30,000 references', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const { attacker, client } = world
  await client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email = 'alice+attacker@example.com'`,
  )
  const body = Buffer.from(JSON.stringify({ definition: longBase() }))
  const statuses = new Set<number>()
  await requireFairness(t, world, service, (over, callers) =>
    repeatedly(over, 1, 900, async () => {
      statuses.add((await callers.send('POST', '/admin/tool/custom/validate', attacker.token, body)).status)
    }),
  )
  t.strictSame(
    [...statuses].filter(status => status !== 429),
    [422],
  )
})
