import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { appOver } from '../app.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { database, url, token } = await worldDatabase(t)
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

t.test('an agent that is made with a name alone: what view=update reads is a whole update', async t => {
  const { call } = await appOver(t, database)
  const admin = await token('admin@example.com')
  const { id } = await json('agent', 'create', 'Plain', '--owner', 'alice@example.com')
  const read = await call('GET', `/persona/${id}?view=update`, { token: admin })
  t.equal(read.headers.link, `<${id}>; rel="edit"`)
  const body = { ...read.json(), system_prompt: 'Be brief.' }
  const written = await call('PATCH', `/persona/${id}`, { token: admin, body })
  t.equal(written.statusCode, 200, written.body)
  t.equal(written.headers.warning, undefined)
  t.match(written.json(), { system_prompt: 'Be brief.', task_prompt: '', num_chunks: 10 })
  t.equal((await agentctl('audit', 'verify')).status, 0)
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

t.test('the versions of a tool are listed up to a limit, and it is said that there are more', async t => {
  for (const words of ['one', 'two', 'three']) await agentctl('tool', 'update', '16', '--description', words)
  const { current } = await json('history', 'tool', '16')
  const short = await agentctl('tool', 'history', '16', '--limit', '2')
  t.same(
    short.stdout
      .trimEnd()
      .split('\n')
      .map(line => line.split(' ', 1)[0]),
    ['VERSION', String(current), String(current - 1)],
  )
  t.match(short.stderr, /there are more than 2/)
  const all = await agentctl('history', 'tool', '16', '--limit', String(current))
  t.equal(all.stderr, '')
  t.equal(all.stdout.trimEnd().split('\n').length, current + 1)
  t.match(await json('history', 'tool', '16', '--limit', '1'), {
    current,
    kept_from: 1,
    versions: [{ version: current }],
  })
  const csv = await agentctl('history', 'tool', '16', '--filter', 'fields=enabled', '--output', 'csv')
  t.match(csv.stdout, /^version,at,actor,.*\r\n3,.*enabled/)
  t.match((await agentctl('tool', 'list', '--limit', '1')).stderr, /there are more than 1/)
})

t.test('a tool is shown as it was in a version and at a time', async t => {
  const { versions } = await json('history', 'tool', '16')
  const now = await json('tool', 'show', '16')
  const first = await json('tool', 'show', '16', '--version', '1')
  t.match(first, { id: 16, version: 1, name: 'full_tool' })
  t.notSame(first.definition, now.definition)
  t.same(first.custom_headers, now.custom_headers)
  for (const { version, at } of versions) {
    const then = await json('tool', 'show', '16', '--at', at)
    t.match(then, { version, at })
    t.same(then, await json('tool', 'show', '16', '--at', String(version)))
  }
  const { at: _, ...last } = await json('tool', 'show', '16', '--version', String(now.version))
  t.match(now, last)
  t.match((await agentctl('tool', 'show', '16', '--version', '99')).stderr, 'The versions of tool 16 go to')
  t.match((await agentctl('tool', 'show', '16', '--at', '2999-01-01')).stderr, '--at is in the future')
  t.equal((await agentctl('tool', 'show', '16', '--at', 'yesterday')).status, 2)
  t.match(await json('agent', 'show', 'Full', '--version', '1'), { version: 1 })
})

t.test('a rollback is planned first: what would be set back, and nothing is stored', async t => {
  const before = await json('tool', 'show', '16')
  const planned = await agentctl('tool', 'rollback', '16', '--to', '1', '--plan')
  t.equal(planned.status, 2)
  t.match(planned.stdout, /~ tools 16 Fuller\n[\s\S]* {4}name: "Fuller" -> "full_tool"/)
  t.same(await json('tool', 'show', '16'), before)
  t.match((await agentctl('agent', 'share', '1', '--group', 'Sales')).stdout, 'version 2')
  t.match(await json('agent', 'rollback', '1', '--to', '1', '--plan'), { version: 3, fields: ['groups'] })
  t.match((await agentctl('rollback', 'agent', '1', '--to', '1')).stdout, 'agent 1 is version 3: set back groups')
  t.equal((await agentctl('rollback', 'agent', '1', '--to', '1', '--plan')).status, 0)
  const misplaced = await agentctl('rollback', 'agent', '1', '1')
  t.equal(misplaced.status, 2)
  t.match(misplaced.stderr, 'agentctl rollback <agent|tool> <ID> --to <VERSION>')
  t.match((await agentctl('rollback', 'agent', '5', '--to', '7')).stderr, 'agent 5 has version 1 only, not 7')
})

t.test('what would be deleted is told without counts of nothing', async t => {
  const { id } = await json('agent', 'create', 'Bare')
  t.equal((await agentctl('agent', 'delete', 'Bare', '--plan')).stdout, `agent ${id} Bare would be deleted\n`)
})

t.test('a fault of an option has no line, one of a file has its own', async t => {
  const from = file('faulty.yaml', 'description: x\nlabels: [nothing]\n')
  const { stdout } = await agentctl('agent', 'create', 'y', '--owner', 'nobody@example.com', '--from', from)
  t.match(stdout, /^ +owner +user "nobody@example.com" not found/m)
  t.match(stdout, /^line 2 +labels\[0\] +label "nothing" not found/m)
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
