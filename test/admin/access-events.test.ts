import { writeFileSync } from 'node:fs'
import { hostname, userInfo } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import type { ListedChange } from '../../src/admin/audit-list.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase } from '../world.js'

const { url } = await worldDatabase(t)
const path = join(t.testdir(), 'change.json')
const agentctl = async (...args: string[]) => {
  const answer = await agentctlOf({ url, args })
  t.equal(answer.status, 0, `agentctl ${args.join(' ')}: ${answer.stderr}`)
  return answer.stdout
}
const listed = async (...args: string[]): Promise<ListedChange[]> =>
  JSON.parse(await agentctl('audit', 'list', '--limit', '10000', ...args, '--json'))
const actionsOf = async (...filter: string[]) => (await listed(...filter)).reverse().map(({ action }) => action)
const apply = async (document: object) => {
  writeFileSync(path, JSON.stringify({ version: 1, ...document }))
  await agentctl('apply', path)
}

t.test('each change of access at the command line is an event, with who, where and how', async t => {
  const since = ['--since', new Date().toISOString()]
  const nora = 'nora@example.com'
  const made = JSON.parse(await agentctl('user', 'create', nora, '--json'))
  await apply({ groups: [{ name: 'Night shift' }] })
  await apply({ groups: [{ name: 'Night shift', members: [nora] }] })
  await apply({ users: [{ email: nora, permissions: ['basic', 'manage:actions'] }] })
  await apply({ groups: [{ name: 'Night shift', members: [], permissions: ['manage:actions'] }] })
  const token = JSON.parse(await agentctl('token', 'create', '--for', nora, '--scope', 'basic', '--json'))
  await agentctl('token', 'revoke', String(token.id))
  await apply({ agents: [{ id: 1, name: 'Alice Private', users: [{ email: nora, level: 'editor' }] }] })
  await agentctl('user', 'deactivate', nora)
  const [share] = await listed('--kind', 'agent', ...since)
  t.match(share, { subject: '1', action: 'applied', fields: ['users'], command: 'agentctl apply' })
  t.match(share?.difference, { users: { to: [{ id: made.id, level: 'editor' }] } }, 'shares are fields of the agent')

  t.same(await actionsOf('--kind', 'user', '--subject', made.id), ['created', 'changed', 'deactivated'])
  t.same(await actionsOf('--kind', 'group', ...since), ['created', 'changed', 'changed'])
  t.same(await actionsOf('--kind', 'token', '--subject', String(token.id)), ['created', 'revoked'])
  const client_address = `${userInfo().username}@${hostname()}`
  const all = await listed(...since)
  for (const change of all) {
    t.match(change, { actor: 'agentctl', client_address, command: /^agentctl [a-z -]+$/ })
    t.notMatch(change.command, /nora|Night/, 'the command is without values')
  }
  t.notMatch(JSON.stringify(all), token.token)
  const [, grant] = await listed('--kind', 'user', '--subject', 'NORA@example.com')
  t.match(grant, { person: nora, detail: { kind: 'person', active: true, permissions: ['basic', 'manage:actions'] } })
  const earlier = all.filter(({ at }) => at < (grant?.at ?? ''))
  t.same(await listed(...since, '--until', grant?.at ?? ''), earlier)
  const shown = await agentctl('audit', 'list', '--kind', 'token', ...since)
  t.match(shown, /token:\d+ +- +created +nora@example.com +agentctl/)
})

t.test('a document is an event with counts, and each of its rows is one', async t => {
  const since = ['--since', new Date().toISOString()]
  await apply({
    users: [{ email: 'omar@example.com', permissions: ['basic'] }],
    document_sets: [{ name: 'Rota', users: ['omar@example.com'] }],
    tools: [{ id: 990, name: 'rota', definition: DEFINITION, custom_headers: [{ key: 'X-Rota', value: 'a secret' }] }],
  })
  const events = await listed(...since)
  const kinds = ['apply applied', 'document_set created', 'tool created', 'user created']
  t.same(events.map(({ kind, action }) => `${kind} ${action}`).sort(), kinds)
  t.equal(new Set(events.map(({ request_id }) => request_id)).size, 1, 'one command')
  t.match(events.find(({ kind }) => kind === 'apply')?.detail, { created: 3, changed: 0 })
})

t.test('refused and repeated commands leave no event', async t => {
  const before = (await listed()).length
  for (const line of ['user create alice@example.com', 'token revoke 999999'])
    t.equal((await agentctlOf({ url, args: line.split(' ') })).status, 1)
  const again = await agentctl('user', 'deactivate', 'nora@example.com')
  t.equal(again, 'nothing changed: nora@example.com is already inactive\n')
  await agentctl('apply', path)
  t.equal((await listed()).length, before)
})
