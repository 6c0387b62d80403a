import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { CommandLine, nameOf } from '../../src/admin/commands/command.js'
import { allCommands, programOf } from '../../src/admin/commands/run.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { VERSION } from '../../src/version.js'
import { appOver, REQUIRED_FIELDS } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase, worldFile } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { database, url, token } = await worldDatabase(t)
const folder = t.testdir()
const NOWHERE = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' }

const silent = { print: () => undefined, remark: () => undefined }
const COMMANDS = allCommands(programOf(new CommandLine({}, silent)))

const GOOD = `openapi: 3.1.0
info: { title: Maps }
servers: [{ url: https://maps.example.com }]
paths:
  /route:
    get: { operationId: get_route, summary: The way }
`

function file(name: string, content: unknown): string {
  const path = join(folder, name)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

const agentctl = (args: string[], options: { env?: Record<string, string>; input?: string } = {}) =>
  agentctlOf({ url, args, ...options })
const json = async (...args: string[]) => JSON.parse((await agentctl([...args, '--json'])).stdout)

/** Applies a document and answers how that ended. */
const apply = (document: object) => agentctl(['apply', file('document.json', { version: 1, ...document }), '--json'])

t.test('the help of every command fits a screen, has an example, and needs no database', async t => {
  t.equal(COMMANDS.length, new Set(COMMANDS.map(nameOf)).size)
  for (const name of ['', ...COMMANDS.map(nameOf)]) {
    const { status, stdout } = await agentctl([...name.split(' '), '--help'].filter(Boolean), { env: NOWHERE })
    t.equal(status, 0, name)
    const lines = stdout.trimEnd().split('\n')
    t.ok(lines.length <= 24, `${name}: ${lines.length} lines`)
    t.strictSame(
      lines.filter(line => line.length > 80),
      [],
      name,
    )
    if (name === '') continue
    const example = /\nExample:\n {2}agentctl (.*)$/.exec(stdout.trimEnd())?.[1] ?? ''
    t.ok(`${example} `.startsWith(`${name} `), example)
    for (const option of example.match(/(?<= )-[-a-z]+/g) ?? []) t.match(stdout, `  ${option}`)
  }
})

t.test('help names the commands and tells of one; the version stands alone', async t => {
  t.equal((await agentctl(['--version'])).stdout, `${VERSION}\n`)
  t.match((await agentctl(['help', 'apply'])).stdout, 'Usage: agentctl apply')
  t.match((await agentctl(['token', 'help', 'create'])).stdout, 'Usage: agentctl token create')
  t.match((await agentctl(['help', 'apply'])).stdout, /--prune +destructive:/)
  const all = await agentctl([])
  t.match(all.stdout, /^Usage: agentctl COMMAND/)
  t.equal((await agentctl(['help'])).stdout, all.stdout)
})

t.test('64: a command line that is wrong: the reason, and what was probably meant', async t => {
  for (const [args, reason] of [
    [['nothing'], 'unknown command'],
    [['agnet', 'list'], 'Did you mean agent?'],
    [['audit'], 'name one of its commands'],
    [['token', 'creat'], 'Did you mean create?'],
    [['user', 'list', '--jsn'], 'Did you mean --json?'],
    [['user', 'deactivate'], 'EMAIL'],
    [['token', 'revoke', '1', '2'], 'too many arguments'],
    [['agent', 'owner', '1'], '--to <EMAIL>'],
    [['token', 'revoke', 'x'], 'It must be a whole number'],
    [['token', 'create'], '--for <EMAIL>'],
    [['token', 'create', '--for', 'a@b', '--expires', 'soon'], 'It must be a length of time'],
    [['token', 'create', '--for', 'a@b', '--scope', 'all'], 'Allowed choices are basic'],
    [['help', 'nothing'], 'name one of its commands'],
    [['validate', 'x', '--server', 'https://a'], '--server goes together with --complete'],
    [['validate', 'x', '--complete', '--server', 'a'], 'the address of --server '],
    [['apply', 'x.yaml', '--prune'], 'see which with --plan, then give --yes'],
    [['apply', 'x.yaml', '--yes'], '--yes goes together with --prune'],
    [['audit', 'list', '--kind', 'x'], 'Allowed choices are'],
    [['apply', 'x.yaml', '--plann'], 'Did you mean --plan?'],
    [['user', 'create', `${'a'.repeat(400)}@example.com`], 'not an email: '],
    [['user', 'create', 'alice\u001b@example.com'], 'not an email: '],
    [['init', 'nobody'], 'not an email: '],
    [['user', 'erase', 'bob@example.com'], 'give --yes to erase, or --plan'],
  ] as const) {
    const { status, stdout, stderr } = await agentctl([...args])
    t.equal(status, 64, `${args.join(' ')}: ${stderr}`)
    t.equal(stdout, '')
    t.ok(stderr.includes(reason), stderr)
    t.match(stderr, /^agentctl: [^\n]* \(see agentctl help\)\n$/)
  }
  const forgotten = await agentctl(['token', 'revoke', '1', 'secret'])
  t.equal(forgotten.status, 64)
  t.notMatch(forgotten.stderr, 'secret', 'an argument too many may be a secret')
})

t.test('69, 78 and 1: the database, the settings, a refusal', async t => {
  const gone = await agentctl(['user', 'list'], { env: NOWHERE })
  t.match(gone, { status: 69, stderr: /the database cannot be reached/ })
  t.equal((await agentctl(['user', 'list'], { env: { PORT: 'x' } })).status, 78)
  t.equal((await agentctl(['keys', 'status'], { env: { SECRET_KEYS: '' } })).status, 78)
  t.equal((await agentctl(['user', 'list'], { env: { STATEMENT_TIMEOUT_MS: '' } })).status, 0)
  t.match(await agentctl(['token', 'create', '--for', 'f\nrow 1  forged']), {
    status: 1,
    stderr: 'agentctl: there is no user f\\nrow 1  forged\n',
  })
  const missing = await agentctl(['validate', '/nonexistent/x'])
  t.match(missing, { status: 1, stderr: /cannot be read \(ENOENT\)/ })
})

t.test('a user is made, put into a group by a document, listed, and shut out', async t => {
  const email = 'dora@example.com'
  t.match(await json('user', 'create', email, '--permission', 'manage:actions'), { email })
  t.equal((await agentctl(['user', 'create', 'DORA@example.com'])).status, 1)
  t.equal((await apply({ groups: [{ name: 'Night shift', managers: [email] }] })).status, 0)
  t.same(await json('user', 'deactivate', email), { email, active: false, changed: true })
  t.match((await agentctl(['user', 'deactivate', email])).stdout, 'nothing changed')
  const users: { email: string }[] = await json('user', 'list')
  const dora = users.find(user => user.email === email)
  t.match(dora, { active: false, permissions: ['manage:actions'], groups: ['Night shift'] })
})

t.test('1: the last administrator stays, also where they administer by a group', async t => {
  const world = await worldDatabase(t)
  const { db } = world.database
  const agentctl = (args: string[]) => agentctlOf({ url: world.url, args })
  const apply = (document: object) => agentctl(['apply', file('admins.json', { version: 1, ...document })])
  await db.updateTable('user_account').set({ permissions: [] }).execute()
  await db.updateTable('user_group').set({ permissions: [] }).execute()
  await apply({ users: [{ email: 'admin@example.com', permissions: ['admin'] }] })
  const refused = /leave no active administrator/
  t.match(await agentctl(['user', 'deactivate', 'admin@example.com']), { status: 1, stderr: refused })
  t.match(await apply({ users: [{ email: 'admin@example.com', permissions: [] }] }), { status: 1, stderr: refused })
  const admins = { name: 'Admins', permissions: ['admin'], members: ['bob@example.com'] }
  t.equal((await apply({ groups: [admins], users: [{ email: 'admin@example.com', permissions: [] }] })).status, 0)
  t.match(await apply({ groups: [{ ...admins, members: [] }] }), { status: 1, stderr: refused })
  t.equal((await apply({ users: [{ email: 'admin@example.com', permissions: ['admin'] }] })).status, 0)
  await apply({ users: ['admin', 'bob'].map(name => ({ email: `${name}@example.com`, active: true })) })
  const names = ['admin', 'bob'].map(name => agentctl(['user', 'deactivate', `${name}@example.com`]))
  t.same((await Promise.all(names)).map(({ status }) => status).sort(), [0, 1], 'of the last two one stays')
})

t.test('a token is made, bound by id, works and is revoked', async t => {
  const args = ['--for', 'alice@example.com', '--scope', 'basic', '--agent', '2', '--expires', '12h']
  const made = await json('token', 'create', ...args)
  t.match(made.expires_at, /^\d{4}-/)
  const callerOf = async (secret: string) => await authenticate(database.db, hashToken(secret), undefined)
  const reading = await json('token', 'create', '--for', 'alice@example.com', '--read-only', '--scope', 'basic')
  t.match(await callerOf(reading.token), { caller: { permission: 'basic', token: { readOnly: true } } })
  t.match(await callerOf(made.token), { caller: { email: 'alice@example.com', token: { personaIds: [2] } } })
  await agentctl(['user', 'deactivate', 'limited@example.com'])
  const refused = await agentctl(['token', 'create', '--for', 'limited@example.com'])
  t.match(refused, { status: 1, stderr: /limited@example.com is inactive: a token would not work/ })
  t.same(await json('token', 'revoke', String(made.id)), { id: made.id, revoked: true })
  await t.rejects(callerOf(made.token), { code: 'INVALID_TOKEN' })
  const listed = (await agentctl(['token', 'list', '--for', 'alice@example.com'])).stdout
  t.match(listed, /^ID +USER +SCOPES/)
  t.match(listed, /revoked 2/)
  t.match(listed, /alice@example.com +read, ?basic/)
  t.notMatch(listed, made.token)
})

t.test('an agent is made and goes to another owner', async t => {
  const porter = { name: 'Porter', owner: 'alice@example.com', users: [{ email: 'bob@example.com' }] }
  const [{ id }] = JSON.parse((await apply({ agents: [porter] })).stdout).outcomes
  const moved = await json('agent', 'owner', String(id), '--to', 'bob@example.com')
  t.same(moved, { id, owner: 'bob@example.com', version: 2 })
  const bob = await token('bob@example.com')
  const { call } = await appOver(t, database)
  t.match((await call('GET', `/persona/${id}`, { token: bob })).json(), {
    owner: { email: 'bob@example.com' },
    users: [],
  })
  const again = await agentctl(['agent', 'owner', String(id), '--to', 'bob@example.com'])
  t.match(again, { status: 0, stdout: `agent ${id} belongs to bob@example.com already (version 2)\n` })
  const body = { ...REQUIRED_FIELDS, name: 'Porter', system_prompt: 'Be brief.' }
  t.equal((await call('PATCH', `/persona/${id}`, { token: bob, body })).statusCode, 200, 'it is a whole update')
  t.equal((await call('DELETE', `/persona/${id}`, { token: bob })).statusCode, 204)
  for (const [agent, to, refusal] of [
    [2, 'nobody@example.com', /there is no user nobody@example.com/],
    [2, 'dora@example.com', /dora@example.com is inactive/],
    [id, 'bob@example.com', /agent \d+ is deleted/],
    [999_999, 'bob@example.com', /agentctl: No agent with this id/],
  ] as const)
    t.match(await agentctl(['agent', 'owner', String(agent), '--to', to]), { status: 1, stderr: refusal })
})

t.test(
  '64: no command finds an agent or tool by its name, which anyone can give; 1: one that does not exist',
  async t => {
    for (const option of ['--agent', '--tool']) {
      const create = (value: string) => agentctl(['token', 'create', '--for', 'alice@example.com', option, value])
      t.match(await create('Full'), { status: 64, stdout: '', stderr: /It must be a whole number/ })
      t.match(await create('999999'), { status: 1, stdout: '', stderr: /there is no (agent|tool) 999999/ })
    }
  },
)

t.test('a tool is made by a document with a file and a secret of the environment', async t => {
  file('good.yaml', GOOD)
  const custom_headers = [{ key: 'X-Api-Key', value: placeholder('AGENTS_MAPS') }]
  const maps = { name: 'Maps', owner: 'alice@example.com', definition_file: 'good.yaml', custom_headers }
  const args = ['apply', file('maps.json', { version: 1, tools: [maps] }), '--json']
  const made = await agentctl(args, { env: { AGENTS_MAPS: 'very secret' } })
  const [{ id }] = JSON.parse(made.stdout).outcomes
  t.notMatch(made.stdout, 'very secret')
  t.equal((await apply({ tools: [{ id, name: 'Maps', description: 'changed' }] })).status, 0)
})

t.test('lists are a table or JSON; audit list has who changed what, and says that there is more', async t => {
  for (const args of [
    ['user', 'list'],
    ['token', 'list'],
    ['audit', 'list'],
  ]) {
    const rows = (await agentctl(args)).stdout.trimEnd().split('\n').length - 1
    t.equal(rows, (await json(...args)).length, args.join(' '))
  }
  const { stdout, stderr } = await agentctl(['audit', 'list', '--limit', '2', '--kind', 'tool'])
  t.match(stdout, /tool:\d+ +2 +changed +- +agentctl .* description: "" -> "changed"$/m)
  t.match(stderr, 'there are more than 2')
  t.match(await json('audit', 'verify'), { findings: [] })
})

t.test('apply: faults at their lines; a plan that finds something ends with 2', async t => {
  const shape = 'version: 1\nlabels:\n  - name: x\n  - nam: y\nagents:\n  - name: z\n'
  const found = await agentctl(['apply', file('faults.yaml', shape), '--json'])
  t.equal(found.status, 1)
  const faults: { line: number; type: string }[] = JSON.parse(found.stdout).faults
  t.same(
    faults.map(fault => [fault.line, fault.type]),
    [[4, 'extra_forbidden']],
  )
  const nameless = await agentctl(['apply', file('nameless.yaml', 'version: 1\nlabels:\n  - {}\n'), '--json'])
  t.match(JSON.parse(nameless.stdout).faults, [{ line: 3, type: 'missing' }])
  const again = file('faults2.yaml', 'version: 1\nagents:\n  - id: 920\n    name: z\n    tools:\n      - nothing\n')
  t.match((await agentctl(['apply', again])).stdout, /line 6.*agents\[0\]\.tools\[0\].*not found/)
  const porter = file(
    'porter.yaml',
    'version: 1\nagents: [{ id: 921, name: Night porter, system_prompt: Be brief. }]\n',
  )
  const planned = await agentctl(['apply', porter, '--plan'])
  t.equal(planned.status, 2)
  t.match(planned.stdout, /^\+ agents \d+ Night porter\n[\s\S]*^ {4}system_prompt: "Be brief."/m)
  t.match((await agentctl(['apply', worldFile(), '--plan'])).stdout, 'a plan: nothing was stored')
  const taken = await apply({ tools: [{ id: 922, name: 'another search', in_code_tool_id: 'SearchTool' }] })
  t.match(taken, { status: 1, stderr: /tool_in_code_tool_id_unique/ })
  t.notMatch(taken.stderr, /\n +at /)
})

t.test('--prune removes with --yes what its plan names; what comes back is restored', async t => {
  const world = await worldDatabase(t)
  const agentctl = (...args: string[]) => agentctlOf({ url: world.url, args })
  const kept = JSON.parse(readFileSync(worldFile(), 'utf8'))
  kept.tools = kept.tools.filter((tool: { id: number }) => tool.id !== 11)
  kept.agents = kept.agents.filter((agent: { id: number }) => agent.id !== 13)
  const path = file('pruned.json', kept)
  const planned = await agentctl('apply', path, '--prune', '--plan')
  t.match(planned, {
    status: 2,
    stdout: /^- agents 13 Alice In Eng\n- tools 11 cur_tool\n {4}its secrets are lost: \S+$/m,
  })
  t.match(await agentctl('apply', path, '--prune', '--yes'), { status: 0, stdout: /2 removed/ })
  t.equal((await agentctl('apply', worldFile())).status, 0)
  const listed = JSON.parse((await agentctl('audit', 'list', '--subject', '13', '--kind', 'agent', '--json')).stdout)
  t.same(listed.map(({ action }: { action: string }) => action).slice(0, 2), ['restored', 'deleted'])
})

t.test('a plan has the words of documents, emails and names, and whole values', async t => {
  const path = file('reviewed.json', {
    version: 1,
    agents: [
      {
        ...{ id: 11, owner: 'bob@example.com', system_prompt: 'Two\nlines', tools: [11] },
        users: [{ email: 'carol@example.com', level: 'editor' }],
      },
    ],
    groups: [{ name: 'Engineering', members: ['perf@example.com'] }],
    tools: [
      { id: 10, definition: { ...DEFINITION, paths: { '/o': { get: { operationId: 'other', summary: 'O.' } } } } },
    ],
  })
  const { stdout } = await agentctl(['apply', path, '--plan'])
  for (const line of [
    /^ {4}owner: "alice@example.com" -> "bob@example.com"$/m,
    /^ {4}system_prompt: ".*" -> "Two\\nlines"$/m,
    /^ {4}tools:\n(?: {6}- .*\n)* {6}\+ cur_tool$/m,
    /^ {4}users:\n {6}- {"email":"bob@example.com","level":"viewer"}\n[\s\S]* {6}\+ {"email":"carol@example.com","level":"editor"}$/m,
    /^ {4}members:\n(?: {6}- \S+@example.com\n)* {6}\+ perf@example.com$/m,
    /^ {4}definition:\n(?: {6}.*\n)* {6}.*other/m,
  ])
    t.match(stdout, line)
  t.notMatch(stdout, /owner_id|tool_ids|user_id|"[0-9a-f-]{36}"/)
})

t.test('status tells the state, also without keys', async (t: Test) => {
  t.match(await json('status'), { schema: { kind: 'current' }, version: VERSION })
  t.equal((await agentctl(['status'], { env: { SECRET_KEYS: '' } })).status, 0)
})
