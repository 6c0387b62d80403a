import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { COMMANDS } from '../../src/admin/commands/run.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { TEST_SECRET_KEYS, worldDatabase, worldFile } from '../world.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))
const { database, url } = await worldDatabase(t)
const folder = mkdtempSync(join(tmpdir(), 'cli-'))
t.teardown(() => rmSync(folder, { recursive: true }))

const GOOD = `openapi: 3.1.0
info: { title: Maps }
servers: [{ url: https://maps.example.com }]
paths:
  /route:
    get: { operationId: get_route, summary: The way }
`
const BAD = GOOD.replace('get_route', '').replace('    get:', '    # nothing\n    get:')

function file(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

function agentctl(args: string[], options: { env?: Record<string, string>; input?: string } = {}) {
  const env = { PATH: process.env.PATH ?? '', DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, ...options.env }
  const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, ...args], {
    env,
    encoding: 'utf8',
    ...(options.input !== undefined && { input: options.input }),
  })
  return { status, stdout, stderr, json: () => JSON.parse(stdout) }
}

t.test('0: every command has help that needs no database', async t => {
  const nowhere = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' }
  t.equal(agentctl(['--help'], { env: nowhere }).status, 0)
  for (const name of ['apply', 'token create', 'group member add', 'audit verify']) {
    const { status, stdout } = agentctl([...name.split(' '), '--help'], { env: nowhere })
    t.equal(status, 0, name)
    t.match(stdout, `Usage: agentctl ${name}`)
  }
  t.equal(new Set(COMMANDS.map(command => command.name)).size, COMMANDS.length)
})

t.test('2: what is no command line of ours', async t => {
  for (const args of [
    [],
    ['nothing'],
    ['audit', 'nothing'],
    ['agent', 'show'],
    ['agent', 'show', 'x'],
    ['agent', 'show', '1', '2'],
    ['token', 'create'],
    ['token', 'create', '--for', 'a@b', '--expires', 'soon'],
    ['token', 'create', '--for', 'a@b', '--expires', '1d', '--never'],
    ['user', 'list', '--unknown'],
    ['agent', 'share', '1', '--user', 'bob@example.com', '--level', 'owner'],
  ]) {
    const { status, stderr } = agentctl(args)
    t.equal(status, args.length === 0 ? 0 : 2, args.join(' '))
    t.notMatch(stderr, /\n\s+at /)
  }
})

t.test('69: the database cannot be reached', async t => {
  const { status, stderr } = agentctl(['user', 'list'], { env: { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' } })
  t.equal(status, 69)
  t.match(stderr, 'the database cannot be reached')
})

t.test('78: the configuration is not usable', async t => {
  t.equal(agentctl(['user', 'list'], { env: { PORT: 'x' } }).status, 78)
  t.equal(agentctl(['status'], { env: { SECRET_KEYS: '' } }).status, 78)
})

t.test('token create prints id, token and expiry as JSON; the token works until it is revoked', async t => {
  const args = [
    'token',
    'create',
    '--for',
    'alice@example.com',
    '--scope',
    'basic',
    '--persona',
    '2',
    '--expires',
    '12h',
    '--json',
  ]
  const { id, token, expires_at } = agentctl(args).json()
  t.match(expires_at, /^\d{4}-/)
  const { caller } = await authenticate(database.db, `Bearer ${token}`, undefined)
  t.match(caller, { email: 'alice@example.com', token: { personaIds: [2] } })
  const rotated = agentctl(['token', 'rotate', String(id), '--overlap', '1h', '--json']).json()
  t.match(await authenticate(database.db, `Bearer ${rotated.token}`, undefined), {
    caller: { token: { personaIds: [2] } },
  })
  t.equal(agentctl(['token', 'revoke', String(id)]).status, 0)
  await t.rejects(authenticate(database.db, `Bearer ${token}`, undefined), { code: 'INVALID_TOKEN' })
  t.equal(agentctl(['token', 'create', '--for', 'nobody@example.com']).status, 1)
})

t.test('people: made, granted, listed, shut out', async t => {
  t.equal(agentctl(['user', 'create', 'dora@example.com']).status, 0)
  t.equal(agentctl(['user', 'create', 'DORA@example.com']).status, 1)
  t.equal(agentctl(['user', 'grant', 'dora@example.com', 'manage:actions']).status, 0)
  t.equal(agentctl(['group', 'create', 'Night shift']).status, 0)
  t.equal(agentctl(['group', 'manager', 'add', 'Night shift', 'dora@example.com']).status, 0)
  t.equal(agentctl(['group', 'member', 'add', 'Night shift', 'dora@example.com']).status, 0)
  t.match(agentctl(['group', 'list', '--json']).json().at(-1), {
    name: 'Night shift',
    members: [],
    managers: ['dora@example.com'],
  })
  t.equal(agentctl(['user', 'deactivate', 'dora@example.com']).status, 0)
  const dora = agentctl(['user', 'list', '--json'])
    .json()
    .find((user: { email: string }) => user.email === 'dora@example.com')
  t.match(dora, { active: false, permissions: ['manage:actions'], groups: ['Night shift'] })
})

t.test('an agent is shared and unshared, each a version of its own', async t => {
  t.match(
    agentctl(['agent', 'share', '1', '--user', 'bob@example.com', '--group', 'Sales', '--level', 'editor']).stdout,
    'version 2',
  )
  t.match(agentctl(['agent', 'show', '1', '--json']).json(), {
    users: [{ email: 'bob@example.com', level: 'editor' }],
    groups: [{ name: 'Sales', level: 'editor' }],
  })
  t.match(agentctl(['agent', 'unshare', '1', '--user', 'bob@example.com', '--group', 'Sales']).stdout, 'version 3')
  t.match(agentctl(['diff', 'persona', '1', '1', '3']).stdout, 'same content')
  t.equal(agentctl(['agent', 'share', '1', '--user', 'alice@example.com']).status, 1)
})

t.test('a tool is made with secrets from standard input, which nothing prints', async t => {
  const args = ['tool', 'create', '--definition', file('good.yaml', GOOD), '--headers-stdin', '--json']
  const { id, name } = agentctl(args, { input: '# for the maps\nX-Api-Key: very secret\n' }).json()
  t.equal(name, 'Maps')
  const shown = agentctl(['tool', 'show', String(id)]).stdout
  t.match(shown, /X-Api-Key.*\*{4}#/)
  t.notMatch(shown, 'very secret')
  t.match(agentctl(['tool', 'show', String(id), '--as-functions']).json(), [{ name: 'get_route' }])
  const refused = agentctl(['tool', 'create', '--definition', file('bad.yaml', BAD), '--headers-stdin'], {
    input: 'no colon, secret',
  })
  t.equal(refused.status, 1)
  t.notMatch(refused.stderr, 'secret,')
})

t.test('validate: 0 with the methods, 1 with the faults at their lines', async t => {
  const good = agentctl(['validate', '-', '--json'], {
    input: GOOD,
    env: { DATABASE_URL: '', DATA_DIR: '/nonexistent' },
  })
  t.equal(good.status, 0)
  t.match(good.json(), { ok: true, methods: [{ name: 'get_route', method: 'get', path: '/route' }], faults: [] })
  const bad = agentctl(['validate', file('bad.yaml', BAD), '--json'])
  t.equal(bad.status, 1)
  t.match(bad.json(), { ok: false, faults: [{ line: 7, loc: ['paths', '/route', 'get', 'operationId'] }] })
  t.match(agentctl(['validate', file('broken.json', '{"a": ]')]).stderr, /line 1/)
  const against = agentctl(['validate', file('good.yaml', GOOD), '--against', 'tool:10'])
  t.equal(against.status, 0)
  t.match(against.stdout, /breaking/)
  t.match(against.stdout, 'agents 8, 11')
})

t.test('apply: a document with faults names the lines and exits with 1', async t => {
  const path = file(
    'faults.yaml',
    'version: 1\nlabels:\n  - name: x\n  - nam: y\nagents:\n  - name: z\n    tools:\n      - nothing\n',
  )
  const shape = agentctl(['apply', path, '--json'])
  t.equal(shape.status, 1)
  t.same(
    shape.json().faults.map((fault: { line: number; type: string }) => [fault.line, fault.type]),
    [
      [4, 'missing'],
      [4, 'extra_forbidden'],
    ],
  )
  const again = file('faults2.yaml', 'version: 1\nagents:\n  - name: z\n    tools:\n      - nothing\n')
  t.match(agentctl(['apply', again]).stdout, /line 5.*agents\[0\]\.tools\[0\].*not found/)
  t.match(agentctl(['apply', worldFile(), '--plan']).stdout, 'a plan: nothing was stored')
})

t.test('audit verify: 0 and the head; 1 when the head is not the expected one', async t => {
  const { status, stdout } = agentctl(['audit', 'verify', '--json'])
  t.equal(status, 0, stdout)
  const { head } = JSON.parse(stdout)
  t.equal(agentctl(['audit', 'verify', '--expect-head', head]).status, 0)
  t.equal(agentctl(['audit', 'verify', '--expect-head', '00']).status, 1)
  t.match(agentctl(['audit', 'list', '--resource', 'persona:1', '--json']).json(), [
    { version_after: 3 },
    {},
    { version_after: 1 },
  ])
})

t.test('status, config and migrate answer', async t => {
  t.match(agentctl(['status', '--json']).json(), { schema: { kind: 'current' }, keys: { current: 'test' } })
  t.match(agentctl(['status']).stdout, 'recent changes')
  t.match(agentctl(['config']).stdout, 'DATABASE_POOL_SIZE')
  t.same(agentctl(['migrate', '--plan', '--json']).json(), { pending: [] })
})
