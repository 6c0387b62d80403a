import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import type { ListedChange } from '../../src/admin/audit-list.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase } from '../world.js'

const { url } = await worldDatabase(t)
const folder = mkdtempSync(join(tmpdir(), 'access-events-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const agentctl = async (...args: string[]) => {
  const answer = await agentctlOf({ url, args })
  t.equal(answer.status, 0, `agentctl ${args.join(' ')}: ${answer.stderr}`)
  return answer.stdout
}
const listed = async (...args: string[]): Promise<ListedChange[]> => {
  return JSON.parse(await agentctl('audit', 'list', ...args, '--json'))
}

const apply = async (document: object) => {
  const path = join(folder, 'change.json')
  writeFileSync(path, JSON.stringify({ version: 1, ...document }))
  await agentctl('apply', path)
}

const WHERE = `${userInfo().username}@${hostname()}`

t.test(
  'everything that changes access at the command line is an event of its subject, with who, where and how',
  async t => {
    const since = new Date().toISOString()
    const nora = 'nora@example.com'
    await apply({ groups: [{ name: 'Night shift' }] })
    const made = JSON.parse(await agentctl('user', 'create', nora, '--json'))
    await apply({ groups: [{ name: 'Night shift', members: [nora] }] })
    await apply({ users: [{ email: nora, permissions: ['basic', 'manage:actions'] }] })
    await apply({ groups: [{ name: 'Night shift', members: [], permissions: ['manage:actions'] }] })
    const token = JSON.parse(await agentctl('token', 'create', '--for', nora, '--scope', 'basic', '--json'))
    const next = JSON.parse(await agentctl('token', 'rotate', String(token.id), '--json'))
    await agentctl('token', 'revoke', String(token.id))
    await apply({ agents: [{ id: 1, name: 'Alice Private', users: [{ email: nora, level: 'editor' }] }] })
    await agentctl('user', 'deactivate', nora)

    const actionsOf = async (...filter: string[]) =>
      (await listed(...filter, '--since', since)).reverse().map(({ action }) => action)
    t.same(await actionsOf('--kind', 'user', '--subject', made.id), ['created', 'changed', 'deactivated'])
    t.same(await actionsOf('--kind', 'group'), ['created', 'changed', 'changed'])
    t.same(await actionsOf('--kind', 'token', '--subject', String(token.id)), [
      'created',
      `rotated to ${next.id}`,
      'revoked',
    ])
    const [share] = await listed('--kind', 'agent', '--since', since)
    t.match(share, { subject: '1', fields: ['users'], command: 'agentctl apply' }, 'shares are fields of the agent')
    for (const change of await listed('--since', since)) {
      t.match(change, { actor: 'agentctl', client_address: WHERE, command: /^agentctl [a-z -]+$/ })
      t.notMatch(change.command, /nora|Night/, 'the command stands without values')
    }
    const [, grant] = await listed('--kind', 'user', '--subject', 'NORA@example.com')
    t.match(grant, {
      person: nora,
      detail: { kind: 'person', active: true, permissions: ['basic', 'manage:actions'] },
    })
    const shown = await agentctl('audit', 'list', '--kind', 'token', '--since', since)
    t.match(shown, /token:\d+ +- +created +nora@example.com +agentctl/)
    t.notMatch(JSON.stringify(await listed('--since', since)), token.token, 'no token stands in the trail')
  },
)

t.test(
  'applying a document and rotating keys: counts, the digest of the document, and an event for every row of access',
  async t => {
    const since = new Date().toISOString()
    const organisation = {
      version: 1,
      users: [{ email: 'omar@example.com', permissions: ['basic'] }],
      groups: [{ name: 'Day shift', members: ['omar@example.com'] }],
      document_sets: [{ name: 'Rota', users: ['omar@example.com'] }],
      labels: [{ name: 'rota' }],
    }
    const path = join(folder, 'organisation.json')
    writeFileSync(path, JSON.stringify(organisation))
    await agentctl('apply', path)
    const changes = await listed('--since', since)
    t.same(changes.map(({ kind, action }) => `${kind} ${action}`).sort(), [
      'apply applied',
      'document_set created',
      'group created',
      'user created',
    ])
    t.equal(new Set(changes.map(change => change.request_id)).size, 1, 'one command')
    t.match(changes.find(({ kind }) => kind === 'apply')?.detail, {
      created: 4,
      changed: 0,
      document_sha256: createHash('sha256').update(JSON.stringify(organisation)).digest('hex'),
    })
    await agentctl('apply', path)
    t.equal((await listed('--since', since)).length, changes.length, 'nothing changed, nothing is said')
    writeFileSync(path, JSON.stringify({ version: 1, users: [{ email: 'omar@example.com', active: false }] }))
    await agentctl('apply', path)
    t.match((await listed('--kind', 'user', '--subject', 'omar@example.com'))[0], {
      action: 'changed',
      detail: { active: false },
    })
  },
)

t.test('the digest of a document covers everything but header values', async t => {
  const digest = async (description: string, value: string) => {
    const custom_headers = [{ key: 'X-Rota', value }]
    const document = {
      version: 1,
      tools: [{ id: 990, name: 'rota', description, definition: DEFINITION, custom_headers }],
    }
    await apply(document)
    const without = { ...document, tools: document.tools.map(({ custom_headers: _, ...tool }) => tool) }
    const [event] = await listed('--kind', 'apply')
    t.match(event?.detail, { document_sha256: createHash('sha256').update(JSON.stringify(without)).digest('hex') })
    return JSON.stringify(event?.detail).match(/document_sha256":"(\w+)/)?.[1]
  }
  const first = await digest('a', 'one')
  t.equal(await digest('a', 'two'), first)
  t.not(await digest('b', 'two'), first)
})

t.test('refused and repeated commands leave no event', async t => {
  const before = (await listed('--limit', '10000')).length
  const refused = (...args: string[]) => agentctlOf({ url, args })
  t.equal((await refused('user', 'create', 'alice@example.com')).status, 1)
  t.equal((await refused('token', 'revoke', '999999')).status, 1)
  const again = await agentctl('user', 'deactivate', 'omar@example.com')
  t.equal(again, 'nothing changed: omar@example.com is inactive already\n')
  t.equal((await listed('--limit', '10000')).length, before)
})
