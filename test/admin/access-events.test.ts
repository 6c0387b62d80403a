import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import type { ListedChange } from '../../src/admin/audit.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { operatorActor } from '../../src/admin/operator.js'
import { recordAccess } from '../../src/updates/access-events.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { database, url } = await worldDatabase(t)
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

const WHERE = `${userInfo().username}@${hostname()}`

t.test(
  'everything that changes access at the command line is an event of its subject, with who, where and how',
  async t => {
    const since = new Date().toISOString()
    const made = JSON.parse(await agentctl('user', 'create', 'nora@example.com', '--permission', 'basic', '--json'))
    await agentctl('user', 'grant', 'nora@example.com', 'manage:actions')
    await agentctl('user', 'revoke', 'nora@example.com', 'manage:actions')
    await agentctl('user', 'deactivate', 'nora@example.com')
    await agentctl('user', 'activate', 'nora@example.com')
    const group = JSON.parse(await agentctl('group', 'create', 'Night shift', '--json'))
    await agentctl('group', 'grant', 'Night shift', 'manage:actions')
    await agentctl('group', 'revoke', 'Night shift', 'manage:actions')
    await agentctl('group', 'member', 'add', 'Night shift', 'nora@example.com')
    await agentctl('group', 'manager', 'add', 'Night shift', 'nora@example.com')
    await agentctl('group', 'manager', 'remove', 'Night shift', 'nora@example.com')
    await agentctl('group', 'member', 'remove', 'Night shift', 'nora@example.com')
    const token = JSON.parse(
      await agentctl('token', 'create', '--for', 'nora@example.com', '--scope', 'basic', '--json'),
    )
    const next = JSON.parse(await agentctl('token', 'rotate', String(token.id), '--json'))
    await agentctl('token', 'revoke', String(token.id))
    await agentctl('agent', 'share', '1', '--user', 'nora@example.com', '--level', 'editor')
    await agentctl('user', 'delete', 'nora@example.com', '--yes')

    const actionsOf = async (...filter: string[]) =>
      (await listed(...filter, '--since', since)).reverse().map(({ action }) => action)
    t.same(await actionsOf('--kind', 'user', '--subject', made.id), [
      'created',
      'granted manage:actions',
      'revoked manage:actions',
      'deactivated',
      'activated',
      'deleted',
    ])
    t.same(await actionsOf('--kind', 'group', '--subject', String(group.id)), [
      'created',
      'granted manage:actions',
      'revoked manage:actions',
      'member added',
      'manager added',
      'manager removed',
      'member removed',
    ])
    t.same(await actionsOf('--kind', 'token', '--subject', String(token.id)), [
      'created',
      `rotated to ${next.id}`,
      'revoked',
      'deleted',
    ])
    const shares = await listed('--kind', 'share', '--since', since)
    t.same(
      shares.map(({ kind, subject, fields, command }) => [kind, subject, fields, command]),
      [
        ['agent', '1', ['users'], 'agentctl user delete --yes'],
        ['agent', '1', ['users'], 'agentctl agent share --user --level'],
      ],
      'shares are fields of the agent',
    )
    for (const change of await listed('--since', since)) {
      t.match(change, {
        actor: 'agentctl',
        client_address: WHERE,
        command: /^agentctl (user|group|token|agent) [a-z ]+/,
      })
      t.notMatch(change.command, /nora|Night/, 'the command stands without values')
    }
    const [grant] = await listed('--kind', 'user', '--subject', 'NORA@example.com', '--filter', 'action=granted')
    t.match(grant, {
      person: 'nora@example.com',
      detail: { kind: 'person', active: true, permissions: ['basic', 'manage:actions'] },
      hash: /^[0-9a-f]{64}$/,
    })
    const shown = await agentctl('audit', 'list', '--kind', 'token', '--since', since)
    t.match(shown, /token:\d+ +1 +created +nora@example.com +agentctl/)
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

t.test('what a deleted user owned is an event of each thing: nothing is taken for tampering', async t => {
  const path = join(folder, 'owned.json')
  const owner = 'olga@example.com'
  const owned = {
    oauth_configs: [{ name: 'Olga OAuth', owner }],
    mcp_servers: [{ name: 'Olga MCP', owner }],
    user_files: [{ id: 'olga-file', name: 'Olga file', owner }],
    groups: [{ name: 'Olga group', managers: [owner] }],
    document_sets: [{ name: 'Olga set', users: [owner] }],
  }
  writeFileSync(path, JSON.stringify({ version: 1, users: [{ email: owner }], ...owned }))
  await agentctl('apply', path)
  await agentctl('token', 'create', '--for', owner)
  const since = new Date().toISOString()
  await agentctl('user', 'delete', owner, '--give-to', 'alice@example.com', '--yes')
  t.same((await listed('--since', since)).map(({ kind }) => kind).sort(), [
    ...['document_set', 'group', 'mcp_server', 'oauth_config', 'token', 'user', 'user_file'],
  ])
  t.same((await verifyAudit(database.db)).findings, [])
})

t.test('refused, planned and repeated commands leave no event', async t => {
  const before = (await listed('--limit', '10000')).length
  const refused = (...args: string[]) => agentctlOf({ url, args })
  t.equal((await refused('user', 'create', 'alice@example.com')).status, 1)
  t.equal((await refused('token', 'revoke', '999999')).status, 1)
  t.equal((await refused('group', 'member', 'remove', 'Day shift', 'alice@example.com')).status, 1)
  t.equal((await refused('user', 'delete', 'omar@example.com', '--plan')).status, 2)
  t.equal((await listed('--limit', '10000')).length, before)
  const bob = 'bob@example.com'
  await agentctl('user', 'revoke', bob, 'admin')
  await agentctl('user', 'grant', bob, 'basic')
  await agentctl('group', 'member', 'add', 'Day shift', bob)
  await agentctl('group', 'manager', 'add', 'Day shift', bob)
  const made = (await listed('--limit', '10000')).length
  const nothing: [string, ...string[]][] = [
    [`${bob} does not have admin`, 'user', 'revoke', bob, 'admin'],
    [`${bob} already has basic`, 'user', 'grant', bob, 'basic'],
    [`${bob} is active already`, 'user', 'activate', bob],
    ['omar@example.com is inactive already', 'user', 'deactivate', 'omar@example.com'],
    ['Day shift does not have admin', 'group', 'revoke', 'Day shift', 'admin'],
    [`${bob} is a member of Day shift already`, 'group', 'member', 'add', 'Day shift', bob],
    [`${bob} is a manager of Day shift already`, 'group', 'manager', 'add', 'Day shift', bob],
  ]
  for (const [said, ...args] of nothing) {
    t.equal(await agentctl(...args), `nothing changed: ${said}\n`)
    t.match(JSON.parse(await agentctl(...args, '--json')), { changed: false })
  }
  t.equal((await listed('--limit', '10000')).length, made, 'no event of what did not happen')
  await agentctl('group', 'manager', 'remove', 'Day shift', bob)
  await agentctl('group', 'member', 'remove', 'Day shift', bob)
  t.equal((await listed('--limit', '10000')).length, made + 2)
})

t.test('--subject EMAIL has what gives and takes access by a list, an owner or a group', async t => {
  const [lena, path] = ['lena@example.com', join(folder, 'lists.json')]
  const apply = async (document: object) => {
    writeFileSync(path, JSON.stringify({ version: 1, ...document }))
    await agentctl('apply', path)
  }
  await agentctl('user', 'create', lena)
  const since = new Date().toISOString()
  const lists = (people: string[]) => ({
    document_sets: [{ name: 'Lists', users: people }],
    groups: [{ name: 'Listed', members: people, permissions: ['manage:actions'] }],
  })
  await apply({ ...lists([lena]), oauth_configs: [{ name: 'Lists', owner: lena }] })
  await agentctl('group', 'grant', 'Listed', 'admin')
  await agentctl('agent', 'share', '1', '--user', lena, '--level', 'editor')
  await agentctl('agent', 'share', '1', '--user', 'bob@example.com', '--level', 'viewer')
  await apply(lists([]))
  await agentctl('group', 'grant', 'Listed', 'basic')
  const actionsOf = async (...filter: string[]) =>
    (await listed(...filter, '--since', since)).map(({ kind, action }) => `${kind} ${action}`).sort()
  const gone = ['document_set changed', 'group changed']
  const had = ['agent changed', 'agent changed', 'document_set created', 'group created', 'group granted admin']
  const expected = [...gone, ...had, 'oauth_config created'].sort()
  t.strictSame(await actionsOf('--subject', lena.toUpperCase()), expected)
  const [user] = await listed('--kind', 'user', '--subject', lena)
  t.strictSame(await actionsOf('--subject', user?.subject ?? ''), expected, 'and by the id')
  t.strictSame(
    await actionsOf('--kind', 'share', '--subject', lena),
    expected.filter(one => !one.startsWith('group')),
  )
  t.strictSame(await actionsOf('--kind', 'document_set', '--subject', 'alice@example.com'), [])
})

t.test('events of one subject that are made at once stand in one chain without a gap', async t => {
  const actor = operatorActor('test')
  const writers = Array.from({ length: 20 }, (_, writer) =>
    database.db.transaction().execute(trx =>
      recordAccess(trx, actor, [
        { kind: 'keys', subject: `w${writer}`, action: 'a' },
        { kind: 'keys', subject: 'shared', action: 'b' },
        { kind: 'keys', subject: 'shared', action: 'c' },
      ]),
    ),
  )
  await Promise.all(writers)
  const rows = await database.db
    .selectFrom('access_event')
    .select(['number', 'previous_hash', 'hash'])
    .where('subject', '=', 'shared')
    .orderBy('number')
    .execute()
  t.same(
    rows.map(row => row.number),
    Array.from({ length: 40 }, (_, index) => index + 1),
  )
  for (const [index, row] of rows.entries()) {
    if (index > 0) t.same(row.previous_hash, rows[index - 1]?.hash)
  }
})
