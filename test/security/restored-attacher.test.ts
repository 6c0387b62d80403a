import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

const email = (name: string) => `${name}@example.com`
t.test('403: no restoration brings a tool into the scope of the manager who attached it', async t => {
  const world = await worldApp(t)
  await applyOrganisation(
    world.database,
    {
      version: 1,
      users: ['owner', 'manager'].map(name => ({ email: email(name) })),
      groups: [{ name: 'Managed', managers: [email('manager')] }],
      tools: [
        {
          id: 200,
          name: 'tool 200',
          owner: email('owner'),
          definition: DEFINITION,
          custom_headers: [{ key: 'X-Key', value: 'a-secret-of-the-owner' }],
        },
      ],
      agents: [
        {
          id: 103,
          name: 'agent 103',
          owner: email('owner'),
          recency_bias: 'auto',
          users: [{ email: email('manager'), level: 'editor' }],
          groups: [{ name: 'Managed', level: 'viewer' }],
        },
      ],
    },
    { ring: world.ring, env: {} },
  )
  const [owner, manager, admin] = [
    await world.token(email('owner')),
    await world.token(email('manager')),
    await world.token(email('admin')),
  ]
  const patch = async (token: string, body: object) => {
    const answer = await world.call('PATCH', `/persona/103?update_mask=${Object.keys(body)}`, { token, body })
    t.equal(answer.statusCode, 200, answer.body)
  }
  const put = () =>
    world.call('PUT', '/admin/tool/custom/200?dry_run=true', { token: manager, body: { description: 'mine now' } })
  await patch(manager, { tool_ids: [200] })
  t.equal((await put()).statusCode, 403, 'attached by the manager')
  await patch(owner, { tool_ids: [] })
  const { version } = await world.database.db
    .selectFrom('persona')
    .select('version')
    .where('id', '=', 103)
    .executeTakeFirstOrThrow()
  const restored = await world.call('POST', '/persona/103/restore', {
    token: admin,
    body: { version: version - 1 },
  })
  t.equal(restored.statusCode, 200, restored.body)
  const now = await put()
  t.equal(now.statusCode, 403, now.body.slice(0, 200))
})
