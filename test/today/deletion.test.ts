import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { worldApp } from '../app.js'
import { ALICE } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, hashOfEverything, newPerson, warningsOf } from '../updates/stored-state.js'
import { SEVEN } from './seven.js'

/* Below `/api` a deletion takes the tool off the agents that the caller may update. */

const world = await worldApp(t)
const { call, database } = world
await newPerson(database, 'maker@example.com', 'manage:actions')
const maker = await world.token('maker@example.com')
const alice = await world.token('alice@example.com')

async function made(path: string, body: object, token: string): Promise<number> {
  const answer = await call('POST', `/api${path}`, { token, body })
  if (answer.statusCode !== 201) throw new Error(answer.body)
  return answer.json().id
}
const tool = () =>
  made('/admin/tool/custom', { name: 'weather', definition: DEFINITION, passthrough_auth: false }, maker)
const agentWith = (tool: number, name: string, token = maker) =>
  made('/persona', { ...SEVEN, name, tool_ids: [tool] }, token)
const remove = (id: number, query = '', prefix = '/api', token = maker) =>
  call('DELETE', `${prefix}/admin/tool/custom/${id}${query}`, { token })

t.test('204: each agent of the caller loses the tool by a version of its own; at the root 409', async t => {
  const id = await tool()
  const agents = [await agentWith(id, 'One'), await agentWith(id, 'Two')]
  const before = await hashOfEverything(database.db)
  t.equal((await remove(id, '', '')).json().error_code, 'TOOL_IN_USE')
  const dry = await remove(id, '?dry_run=true')
  t.match(dry, { statusCode: 204, headers: { 'dry-run': 'true' } })
  t.same(await hashOfEverything(database.db), before)
  const deleted = await remove(id)
  t.equal(deleted.statusCode, 204, deleted.body)
  t.match(warningsOf(dry), [`it would be taken off the agents ${agents.join(', ')}`])
  t.match(warningsOf(deleted), [`it was taken off the agents ${agents.join(', ')}`])
  for (const agent of agents) {
    const read = await call('GET', `/api/persona/${agent}`, { token: maker })
    t.match(read.json(), { tools: [] })
    t.match(read.headers.etag, new RegExp(`^"persona-${agent}-2\\.`))
    const last = { actor: 'maker@example.com', difference: { tool_ids: { from: [id], to: [] } } }
    t.match((await auditRows(database.db, 'persona', agent)).at(-1), last)
  }
  t.equal((await call('GET', `/api/tool/${id}`, { token: maker })).statusCode, 404)
  t.strictSame((await verifyAudit(database.db)).findings, [])
})

t.test('409 for a tool on more than 100 agents of the caller: all keep it', async t => {
  const id = await tool()
  const agents: number[] = []
  while (agents.length < 101) agents.push(await agentWith(id, `Agent ${agents.length}`))
  const before = await hashOfEverything(database.db)
  t.match(await remove(id), { statusCode: 409 })
  t.same(await hashOfEverything(database.db), before)
  await call('DELETE', `/persona/${agents.pop()}`, { token: maker })
  t.equal((await remove(id)).statusCode, 204)
})

t.test('409 names the agents that stay, as far as the caller sees them, and changes nothing', async t => {
  const id = await tool()
  await agentWith(id, 'Mine')
  const shown = await agentWith(id, 'Public', alice)
  await agentWith(id, 'Private', alice)
  await call('PATCH', `/api/persona/${shown}/share`, { token: alice, body: { is_public: true } })
  const before = await hashOfEverything(database.db)
  const refused = await remove(id)
  t.equal(refused.statusCode, 409)
  t.match(refused.json(), { error_code: 'TOOL_IN_USE', agents: [{ id: shown, name: 'Public' }], others: 1 })
  t.equal(refused.json().agents.length, 1)
  t.same(await hashOfEverything(database.db), before)
})

t.test(
  '409 for a group manager, whose right comes from these agents, and for a token that is bound to others',
  async t => {
    await newPerson(database, 'leader@example.com')
    await sql`insert into user_group_member (user_id, user_group_id, is_manager)
    select id, 1, true from user_account where email = 'leader@example.com'`.execute(database.db)
    const id = await tool()
    const agent = await agentWith(id, 'Of the group')
    await sql`insert into persona_group (persona_id, user_group_id, level) values (${agent}, 1, 'editor')`.execute(
      database.db,
    )
    const leader = await world.token('leader@example.com')
    t.equal((await call('PUT', `/api/admin/tool/custom/${id}`, { token: leader, body: {} })).statusCode, 200)
    t.equal((await remove(id, '', '/api', leader)).statusCode, 409)
    const bound = await world.token('maker@example.com', { toolIds: [id] })
    t.equal((await remove(id, '', '/api', bound)).statusCode, 409)
  },
)

t.test('409 where the right to an agent ends while the deletion waits for it', async t => {
  const id = await tool()
  const agent = await agentWith(id, 'Shared', alice)
  await sql`insert into persona_user (persona_id, user_id, level)
    select ${agent}, id, 'editor' from user_account where email = 'maker@example.com'`.execute(database.db)
  const trx = await database.db.startTransaction().execute()
  await sql`update persona set name = name where id = ${agent}`.execute(trx)
  await sql`delete from persona_user where persona_id = ${agent}`.execute(trx)
  const deleting = remove(id)
  const isWaiting = async () => {
    const locks = sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    return (await locks.execute(database.db)).rows.length > 0
  }
  while (!(await Promise.race([isWaiting(), deleting.then(() => true)])));
  await trx.commit().execute()
  t.match((await deleting).json(), { error_code: 'TOOL_IN_USE', others: 1 })
  t.match((await call('GET', `/api/persona/${agent}`, { token: alice })).json(), {
    tools: [{ id }],
    owner: { id: ALICE },
  })
})
