import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { COMMANDS } from '../../src/admin/commands/run.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { testDatabase } from '../postgres.js'
import { worldDatabase, worldFile } from '../world.js'

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

const agentctl = (args: string[], options: { env?: Record<string, string>; input?: string } = {}) =>
  agentctlOf({ url, args, ...options })

t.test('0: every command has help that needs no database', async t => {
  const nowhere = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' }
  t.equal((await agentctl(['--help'], { env: nowhere })).status, 0)
  for (const name of ['apply', 'token create', 'group member add', 'audit verify']) {
    const { status, stdout } = await agentctl([...name.split(' '), '--help'], { env: nowhere })
    t.equal(status, 0, name)
    t.match(stdout, `Usage: agentctl ${name}`)
  }
  t.equal(new Set(COMMANDS.map(command => command.name)).size, COMMANDS.length)
})

t.test('help fits 80 columns', async t => {
  for (const { name } of [{ name: '' }, ...COMMANDS]) {
    const { stdout } = await agentctl([...name.split(' '), '--help'].filter(Boolean))
    t.strictSame(
      stdout.split('\n').filter(line => line.length > 80),
      [],
      name,
    )
  }
})

t.test('2: what is no command line of ours', async t => {
  for (const args of [
    [],
    ['nothing'],
    ['audit', 'nothing'],
    ['agent', 'show'],
    ['token', 'revoke', 'x'],
    ['agent', 'show', '1', '2'],
    ['token', 'create'],
    ['token', 'create', '--for', 'a@b', '--expires', 'soon'],
    ['token', 'create', '--for', 'a@b', '--expires', '1d', '--never'],
    ['user', 'list', '--unknown'],
    ['agent', 'share', '1', '--user', 'bob@example.com', '--level', 'owner'],
  ]) {
    const { status, stderr } = await agentctl(args)
    t.equal(status, args.length === 0 ? 0 : 2, args.join(' '))
    t.notMatch(stderr, /\n\s+at /)
  }
})

t.test('69: the database cannot be reached', async t => {
  const { status, stderr } = await agentctl(['user', 'list'], {
    env: { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' },
  })
  t.equal(status, 69)
  t.match(stderr, 'the database cannot be reached')
})

t.test('78: the configuration is not usable', async t => {
  t.equal((await agentctl(['user', 'list'], { env: { PORT: 'x' } })).status, 78)
  t.equal((await agentctl(['keys', 'status'], { env: { SECRET_KEYS: '' } })).status, 78)
})

t.test('config lists the settings also where the environment has a bad one, and names it', async t => {
  const { status, stdout, stderr } = await agentctl(['config'], { env: { PORT: 'abc' } })
  t.equal(status, 0)
  t.match(stdout, /^PORT +8080 /m)
  t.match(stderr, 'PORT: must be a whole number')
})

t.test('an agent is agent on the command line; persona is another word for it', async t => {
  for (const word of ['agent', 'persona']) {
    t.match((await agentctl(['history', word, '8'])).stdout, 'VERSION')
    t.match((await agentctl(['audit', 'list', '--resource', `${word}:8`])).stdout, 'agent:8')
    t.equal((await agentctl(['token', 'create', '--for', 'alice@example.com', `--${word}`, '8'])).status, 0)
  }
  t.match((await agentctl(['history', 'agnet', '8'])).stderr, 'agent or tool, not agnet')
  t.notMatch((await agentctl(['history', '--help'])).stdout, 'persona')
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
  const { id, token, expires_at } = JSON.parse((await agentctl(args)).stdout)
  t.match(expires_at, /^\d{4}-/)
  const { caller } = await authenticate(database, hashToken(token), undefined)
  t.match(caller, { email: 'alice@example.com', token: { personaIds: [2] } })
  const rotated = JSON.parse((await agentctl(['token', 'rotate', String(id), '--overlap', '1h', '--json'])).stdout)
  t.match(await authenticate(database, hashToken(rotated.token), undefined), {
    caller: { token: { personaIds: [2] } },
  })
  t.equal((await agentctl(['token', 'revoke', String(id)])).status, 0)
  await t.rejects(authenticate(database, hashToken(token), undefined), {
    code: 'INVALID_TOKEN',
  })
  t.equal((await agentctl(['token', 'create', '--for', 'nobody@example.com'])).status, 1)
})

t.test('2: an argument too many is told as such, and not repeated; a name has its option', async t => {
  const named = await agentctl(['tool', 'create', 'Weather', '--definition', 'x.json'])
  t.equal(named.status, 2)
  t.match(named.stderr, 'it takes no argument, and a name as --name NAME: the form is ')
  t.notMatch(named.stderr, 'Weather')
  const shown = await agentctl(['agent', 'show', '1', '2'])
  t.match(shown.stderr, 'it takes no more than AGENT: the form is ')
})

t.test('a mistyped option is told before a missing one', async t => {
  t.match((await agentctl(['token', 'create', '--fo', 'alice@example.com'])).stderr, 'Did you mean --for?')
  t.match((await agentctl(['token', 'create'])).stderr, 'token create --for <EMAIL> [options]')
})

t.test('every command that changes something answers JSON when asked', async t => {
  const json = async (...args: string[]) => JSON.parse((await agentctl([...args, '--json'])).stdout)
  const email = 'erin@example.com'
  t.match(await json('user', 'create', email), { email })
  t.same(await json('user', 'grant', email, 'admin'), { email, permission: 'admin', granted: true, changed: true })
  t.same(await json('user', 'revoke', email, 'admin'), { email, permission: 'admin', granted: false, changed: true })
  t.match(await json('group', 'create', 'Early shift'), { name: 'Early shift' })
  t.same(await json('group', 'member', 'add', 'Early shift', email), {
    group: 'Early shift',
    email,
    done: 'added',
    changed: true,
  })
  const { id } = await json('token', 'create', '--for', email)
  t.same(await json('token', 'revoke', String(id)), { id, revoked: true })
  t.same(await json('user', 'deactivate', email), { email, active: false, changed: true })
  t.match(await json('keys', 'generate'), { key: /./ })
  const without = COMMANDS.filter(({ options }) => !('json' in options)).map(({ name }) => name)
  t.same(without, ['schema', 'audit checkpoint', 'audit prove', 'completion'], 'these print what has a form of its own')
})

t.test('export writes over a file with --force only', async t => {
  const path = file('there.yaml', 'mine')
  const refused = await agentctl(['export', path])
  t.match(refused, { status: 1, stderr: /there\.yaml is there already: --force writes over it\n$/ })
  t.equal(readFileSync(path, 'utf8'), 'mine')
  t.equal((await agentctl(['export', path, '--force'])).status, 0)
  t.match(readFileSync(path, 'utf8'), /^version: 1$/m)
})

t.test('1: an owner whose name is empty is not found', async t => {
  const { status, stdout } = await agentctl(['agent', 'create', 'X', '--owner', ''])
  t.equal(status, 1)
  t.match(stdout, /owner +user "" not found/)
})

t.test('a file that cannot be written is refused with the reason', async t => {
  for (const args of [
    ['export', '/nonexistent/x'],
    ['audit', 'keygen', 'x', '--file', '/nonexistent/x'],
    ['keys', 'generate', '--file', '/nonexistent/x'],
    ['validate', file('fine.yaml', GOOD), '--complete', '-o', '/nonexistent/x'],
  ]) {
    const { status, stderr } = await agentctl(args)
    t.equal(status, 1, args.join(' '))
    t.match(stderr, /\/nonexistent\/x(\.\d+)? cannot be written \(ENOENT\)$/m)
  }
})

t.test('74: a file on a full disk is output that is not written', async t => {
  t.match(await agentctl(['export', '/dev/full', '--force']), { status: 74, stderr: /ENOSPC/ })
})

t.test('1: a name in a refusal does not end its line', async t => {
  const { status, stderr } = await agentctl(['user', 'activate', 'f\nrow 1  forged'])
  t.equal(status, 1)
  t.equal(stderr, 'agentctl user activate: there is no user f\\nrow 1  forged\n')
})

t.test('2: a user or group that no document can have is not made', async t => {
  for (const args of [
    ['group', 'create', ''],
    ['group', 'create', 'g'.repeat(256)],
    ['user', 'create', `${'a'.repeat(400)}@example.com`],
    ['user', 'create', 'alice\u001b@example.com'],
    ['init', `${'a'.repeat(400)}@example.com`],
  ]) {
    const { status, stderr } = await agentctl(args)
    t.equal(status, 2, args.join(' '))
    t.match(stderr, /(NAME|EMAIL): |not an email: /)
  }
  const { stdout } = await agentctl(['export'])
  t.equal((await agentctl(['apply', '-', '--plan'], { input: stdout })).status, 0)
})

t.test('people: made, granted, listed, shut out', async t => {
  t.equal((await agentctl(['user', 'create', 'dora@example.com'])).status, 0)
  t.equal((await agentctl(['user', 'create', 'DORA@example.com'])).status, 1)
  t.equal((await agentctl(['user', 'grant', 'dora@example.com', 'manage:actions'])).status, 0)
  t.equal((await agentctl(['group', 'create', 'Night shift'])).status, 0)
  t.equal((await agentctl(['group', 'manager', 'add', 'Night shift', 'dora@example.com'])).status, 0)
  t.equal((await agentctl(['group', 'member', 'add', 'Night shift', 'dora@example.com'])).status, 0)
  t.match(JSON.parse((await agentctl(['group', 'list', '--json'])).stdout).at(-1), {
    name: 'Night shift',
    members: [],
    managers: ['dora@example.com'],
  })
  t.equal((await agentctl(['user', 'deactivate', 'dora@example.com'])).status, 0)
  const users: { email: string }[] = JSON.parse((await agentctl(['user', 'list', '--json'])).stdout)
  const dora = users.find(user => user.email === 'dora@example.com')
  t.match(dora, { active: false, permissions: ['manage:actions'], groups: ['Night shift'] })
})

t.test('an agent is shared and unshared, each a version of its own', async t => {
  const planned = await agentctl(['agent', 'share', '1', '--user', 'bob@example.com', '--plan'])
  t.equal(planned.status, 2)
  t.match(planned.stdout, 'agent 1 would be version 2')
  t.match(
    (await agentctl(['agent', 'share', '1', '--user', 'bob@example.com', '--group', 'Sales', '--level', 'editor']))
      .stdout,
    'version 2',
  )
  t.match(JSON.parse((await agentctl(['agent', 'show', '1', '--json'])).stdout), {
    users: [{ email: 'bob@example.com', level: 'editor' }],
    groups: [{ name: 'Sales', level: 'editor' }],
  })
  t.match(
    (await agentctl(['agent', 'unshare', '1', '--user', 'bob@example.com', '--group', 'Sales'])).stdout,
    'version 3',
  )
  t.match((await agentctl(['diff', 'agent', '1', '1', '3'])).stdout, 'same content')
  t.equal((await agentctl(['agent', 'share', '1', '--user', 'alice@example.com'])).status, 1)
})

t.test('a tool is made with secrets from standard input, which nothing prints', async t => {
  const args = ['tool', 'create', '--definition', file('good.yaml', GOOD), '--headers-stdin', '--json']
  const { id, name } = JSON.parse((await agentctl(args, { input: '# for the maps\nX-Api-Key: very secret\n' })).stdout)
  t.equal(name, 'Maps')
  const shown = (await agentctl(['tool', 'show', String(id)])).stdout
  t.match(shown, /X-Api-Key.*\*{4}#/)
  t.notMatch(shown, 'very secret')
  t.match(JSON.parse((await agentctl(['tool', 'show', String(id), '--as-functions'])).stdout), [{ name: 'get_route' }])
  const refused = await agentctl(['tool', 'create', '--definition', file('bad.yaml', BAD), '--headers-stdin'], {
    input: 'no colon, secret',
  })
  t.equal(refused.status, 1)
  t.notMatch(refused.stderr, 'secret,')
})

t.test('validate: 0 with the methods, 1 with the faults at their lines', async t => {
  const good = await agentctl(['validate', '-', '--json'], {
    input: GOOD,
    env: { DATABASE_URL: '', DATA_DIR: '/nonexistent' },
  })
  t.equal(good.status, 0)
  t.match(JSON.parse(good.stdout), {
    ok: true,
    methods: [{ name: 'get_route', method: 'get', path: '/route' }],
    faults: [],
  })
  const bad = await agentctl(['validate', file('bad.yaml', BAD), '--json'])
  t.equal(bad.status, 1)
  t.match(JSON.parse(bad.stdout), { ok: false, faults: [{ line: 7, loc: ['paths', '/route', 'get', 'operationId'] }] })
  t.match((await agentctl(['validate', file('broken.json', '{"a": ]')])).stderr, /line 1/)
  const against = await agentctl(['validate', file('good.yaml', GOOD), '--against', 'tool:10'])
  t.equal(against.status, 0)
  t.match(against.stdout, /breaking/)
  t.match(against.stdout, 'agents 8, 11')
})

t.test('apply: a document with faults names the lines and exits with 1', async t => {
  const path = file(
    'faults.yaml',
    'version: 1\nlabels:\n  - name: x\n  - nam: y\nagents:\n  - name: z\n    tools:\n      - nothing\n',
  )
  const shape = await agentctl(['apply', path, '--json'])
  t.equal(shape.status, 1)
  t.same(
    JSON.parse(shape.stdout).faults.map((fault: { line: number; type: string }) => [fault.line, fault.type]),
    [
      [4, 'missing'],
      [4, 'extra_forbidden'],
    ],
  )
  const again = file('faults2.yaml', 'version: 1\nagents:\n  - name: z\n    tools:\n      - nothing\n')
  t.match((await agentctl(['apply', again])).stdout, /line 5.*agents\[0\]\.tools\[0\].*not found/)
  t.match((await agentctl(['apply', worldFile(), '--plan'])).stdout, 'a plan: nothing was stored')
})

t.test('apply: what would break a rule of the database exits with 1 and names the rule, without a stack', async t => {
  const taken = { version: 1, tools: [{ name: 'another search', in_code_tool_id: 'SearchTool' }] }
  const { status, stderr } = await agentctl(['apply', '-'], { input: JSON.stringify(taken) })
  t.equal(status, 1)
  t.match(stderr, 'tool_in_code_tool_id_unique')
  t.notMatch(stderr, /\n +at /)
})

t.test('audit verify: 0 and the head; 1 when the head is not the expected one', async t => {
  const { status, stdout } = await agentctl(['audit', 'verify', '--json'])
  t.equal(status, 0, stdout)
  const { head } = JSON.parse(stdout)
  t.equal((await agentctl(['audit', 'verify', '--expect-head', head])).status, 0)
  t.equal((await agentctl(['audit', 'verify', '--expect-head', '00'])).status, 1)
  t.match(JSON.parse((await agentctl(['audit', 'list', '--resource', 'persona:1', '--json'])).stdout), [
    { version_after: 3 },
    {},
    { version_after: 1 },
  ])
})

t.test('status, config and migrate answer', async t => {
  t.match(JSON.parse((await agentctl(['status', '--json'])).stdout), {
    schema: { kind: 'current' },
    keys: { current: 'test' },
  })
  t.match((await agentctl(['status'])).stdout, 'recent changes')
  const withoutKeys = { env: { SECRET_KEYS: '' } }
  t.match(await agentctl(['status'], withoutKeys), { status: 0, stdout: /keys {6}unknown: .*SECRET_KEYS/ })
  t.equal(JSON.parse((await agentctl(['status', '--json'], withoutKeys)).stdout).keys, null)
  t.match((await agentctl(['config'])).stdout, 'DATABASE_POOL_SIZE')
  t.same(JSON.parse((await agentctl(['migrate', '--plan', '--json'])).stdout), { pending: [] })
})

t.test('a hint names the command as it can be typed: npx agentctl where no folder of PATH has it', async t => {
  const folder = t.testdir({ bin: { agentctl: '' }, node_modules: { '.bin': { agentctl: '' } } })
  const own = `${folder}/node_modules/.bin`
  for (const [PATH, typed] of [
    [`${own}:${folder}/bin`, 'agentctl'],
    [own, 'npx agentctl'],
    ['', 'npx agentctl'],
  ] as const) {
    const { stderr } = await agentctl(['init', 'bob@example.com'], { env: { PATH } })
    t.match(stderr, /^agentctl init: there is an administrator already, /m)
    t.ok(stderr.includes(`: ${typed} token create --for `), PATH)
    t.ok((await agentctl(['user'], { env: { PATH } })).stderr.startsWith(`See: ${typed} user --help`), PATH)
  }
})

t.test('an external database is migrated by command: 78 until then, the plan names the locks', async t => {
  const empty = await testDatabase(t)
  const env = { DATABASE_URL: empty.url }
  const refused = await agentctl(['user', 'list'], { env })
  t.equal(refused.status, 78)
  t.match(refused.stderr, /the database is empty: run (npx )?agentctl init EMAIL/)
  t.match(JSON.parse((await agentctl(['migrate', '--plan', '--json'], { env })).stdout).pending[0], {
    migration: '0001_organisation',
    locks: [/\w/],
  })
  t.match((await agentctl(['migrate'], { env })).stdout, 'applied 0001_organisation')
  t.equal((await agentctl(['user', 'list'], { env })).status, 0)
})
