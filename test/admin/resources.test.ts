import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { worldDatabase } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { database, url } = await worldDatabase(t)
const { db } = database
const folder = mkdtempSync(join(tmpdir(), 'resources-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const agentctl = (...args: string[]) => agentctlOf({ url, args })
const json = async (...args: string[]) => JSON.parse((await agentctl(...args, '--json')).stdout)

const definition = (name: string) => ({
  openapi: '3.1.0',
  info: { title: 'Maps' },
  servers: [{ url: 'https://maps.example.com' }],
  paths: { '/route': { get: { operationId: name, summary: 'The way' } } },
})

function file(name: string, content: unknown): string {
  const path = join(folder, name)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

t.test('an agent is made with what is named, planned first, and found by its name', async t => {
  const from = file('agent.yaml', 'system_prompt: Be brief.\nlabels: [beta]\n')
  const create = ['agent', 'create', 'Porter', '--owner', 'alice@example.com', '--tool', 'items', '--from', from]
  const planned = await agentctl(...create, '--plan')
  t.equal(planned.status, 2)
  t.match(planned.stdout, /\+ agents new Porter[\s\S]*system_prompt: "Be brief."/)
  t.match(await json(...create), { name: 'Porter', action: 'created' })
  t.match(await json('agent', 'show', 'Porter'), {
    version: 1,
    owner: 'alice@example.com',
    system_prompt: 'Be brief.',
    tool_ids: [10],
    is_public: false,
  })
  t.match((await agentctl('history', 'agent', 'Porter')).stdout, 'agentctl')
  t.match((await agentctl('agent', 'create', 'x', '--owner', 'nobody@example.com')).stdout, /owner.*not found/)
})

t.test('1: a name that several have is refused with their ids', async t => {
  t.equal((await agentctl('agent', 'create', 'Porter')).status, 0)
  const { status, stderr } = await agentctl('agent', 'show', 'Porter')
  t.equal(status, 1)
  t.match(stderr, /several agents have the name Porter: say which id, \d+, \d+/)
})

t.test('a tool is changed where something is named; the rest stays, secrets too', async t => {
  const before = await json('tool', 'show', '16')
  const update = ['tool', 'update', 'full_tool', '--definition', file('one.json', definition('one'))]
  const planned = await agentctl(...update, '--plan')
  t.equal(planned.status, 2)
  t.match(planned.stdout, /~ tools 16 full_tool\n {4}definition: /)
  t.match((await agentctl(...update)).stdout, 'changed tool 16 full_tool: definition')
  t.match((await agentctl(...update)).stdout, 'is so already')
  t.equal((await agentctl(...update, '--plan')).status, 0)
  const after = await json('tool', 'show', '16')
  t.same(after.custom_headers, before.custom_headers)
  t.match(after, { version: 2, display_name: before.display_name, definition: definition('one') })
  t.match((await agentctl('tool', 'update', '16', '--enabled', 'on', '--name', 'Fuller')).stdout, 'name, enabled')
  const faulty = await agentctl(
    'tool',
    'update',
    'Fuller',
    '--definition',
    file('bad.yaml', 'openapi: 3.1.0\npaths: {}\n'),
  )
  t.equal(faulty.status, 1)
  t.match(faulty.stdout, /line \d+ +definition\.paths/)
  t.equal((await agentctl('tool', 'update', '99', '--name', 'x')).status, 1)
})

t.test('an agent is deleted after a question: marked, out of every relation, as a version', async t => {
  t.equal((await agentctl('agent', 'delete', '11', '--plan')).status, 2)
  const unasked = await agentctl('agent', 'delete', '11')
  t.equal(unasked.status, 1)
  t.match(unasked.stderr, 'add --yes')
  t.match((await agentctl('agent', 'delete', '11', '--yes')).stdout, 'deleted agent 11 Full')
  const row = await db.selectFrom('persona').select(['deleted', 'version']).where('id', '=', 11).executeTakeFirst()
  t.same(row, { deleted: true, version: 2 })
  t.notOk(await db.selectFrom('persona_tool').select('tool_id').where('persona_id', '=', 11).executeTakeFirst())
  t.equal((await agentctl('agent', 'delete', '11', '--yes')).status, 1)
})

t.test('a tool is deleted with its secrets; each agent that had it has a new version without', async t => {
  const plan = await json('tool', 'delete', '10', '--plan')
  t.ok(plan.agents.length > 0)
  const versions = () =>
    db.selectFrom('persona').select(['id', 'version']).where('id', 'in', plan.agents).orderBy('id').execute()
  const before = await versions()
  t.equal((await agentctl('tool', 'delete', '10', '--yes')).status, 0)
  t.same(
    await versions(),
    before.map(({ id, version }) => ({ id, version: version + 1 })),
  )
  t.notOk(await db.selectFrom('tool').select('id').where('id', '=', 10).executeTakeFirst())
  t.equal((await agentctl('tool', 'delete', '1', '--yes')).status, 1, 'a built-in tool stays')
  t.same((await verifyAudit(db)).findings, [])
})

t.test('a user is deleted; what they own goes to somebody, as versions', async t => {
  const refused = await agentctl('user', 'delete', 'alice@example.com', '--yes')
  t.equal(refused.status, 1)
  t.match(refused.stderr, /alice@example\.com owns agents .*--give-to EMAIL/)
  const plan = await json('user', 'delete', 'alice@example.com', '--give-to', 'bob@example.com', '--plan')
  t.match(plan, { heir: 'bob@example.com', owned: { agents: [/\d/] } })
  t.equal((await agentctl('user', 'delete', 'alice@example.com', '--give-to', 'bob@example.com', '--yes')).status, 0)
  const users: { email: string }[] = await json('user', 'list')
  t.notOk(users.some(({ email }) => email === 'alice@example.com'))
  for (const id of plan.owned.agents) t.match(await json('agent', 'show', String(id)), { owner: 'bob@example.com' })
  t.same((await verifyAudit(db)).findings, [])
})

t.test('lists take a limit, a filter and a format', async t => {
  t.equal((await json('user', 'list', '--limit', '2')).length, 2)
  t.match(await json('user', 'list', '--filter', 'BOB@'), [{ email: 'bob@example.com' }])
  t.match(await json('agent', 'list', '--filter', 'owner=bob@example.com', '--filter', 'porter'), [{ name: 'Porter' }])
  const csv = (await agentctl('group', 'list', '--output', 'csv', '--limit', '1')).stdout
  t.match(csv, /^id,name,permissions,members,managers\r\n1,Engineering,\[\],/)
  const { status, stderr } = await agentctl('tool', 'list', '--filter', 'colour=red')
  t.equal(status, 2)
  t.match(stderr, 'colour is not one of id, name, kind')
  t.match((await agentctl('config', '--filter', 'name=PORT')).stdout, /^PORT +8080/m)
})
