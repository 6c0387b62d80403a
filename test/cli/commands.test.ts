import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { CommandLine, nameOf } from '../../src/admin/commands/command.js'
import { allCommands, programOf } from '../../src/admin/commands/run.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { VERSION } from '../../src/version.js'
import { appOver, REQUIRED_FIELDS } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase, worldDocument, worldFile } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { database, url, token } = await worldDatabase(t)
const folder = t.testdir()
const NOWHERE = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' }

const silent = { print: () => undefined, remark: () => undefined }
const COMMANDS = allCommands(programOf(new CommandLine({}, silent)))

function file(name: string, content: unknown): string {
  const path = join(folder, name)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

/** Runs a command line whose arguments contain no spaces. */
const agentctl = (line: string, env = {}) => agentctlOf({ url, args: line.split(' '), env })
const json = async (line: string) => JSON.parse((await agentctl(`${line} --json`)).stdout)

const apply = (document: object, env = {}) =>
  agentctl(`apply ${file('document.json', { version: 1, ...document })} --json`, env)

t.test('the help of every command fits a screen, has an example, and needs no database', async t => {
  t.equal(COMMANDS.length, new Set(COMMANDS.map(nameOf)).size)
  for (const name of ['', ...COMMANDS.map(nameOf)]) {
    const { status, stdout } = await agentctl(`${name} --help`.trimStart(), NOWHERE)
    t.equal(status, 0, name)
    const lines = stdout.trimEnd().split('\n')
    t.ok(lines.length <= 24, `${name}: ${lines.length} lines`)
    for (const line of lines) t.ok(line.length <= 80, line)
    if (name === '') continue
    const example = /\nExample:\n {2}agentctl (.*)$/.exec(stdout.trimEnd())?.[1] ?? ''
    t.ok(`${example} `.startsWith(`${name} `), example)
    for (const option of example.match(/(?<= )-[-a-z]+/g) ?? []) t.match(stdout, `  ${option}`)
  }
})

t.test('help names the commands and tells of one; the version stands alone', async t => {
  t.equal((await agentctl('--version')).stdout, `${VERSION}\n`)
  t.match((await agentctl('help apply')).stdout, /^Usage: agentctl apply[\s\S]*--prune +destructive:/)
  t.match((await agentctl('token help create')).stdout, 'Usage: agentctl token create')
  const all = await agentctlOf({ url, args: [] })
  t.match(all.stdout, /^Usage: agentctl COMMAND/)
  t.equal((await agentctl('help')).stdout, all.stdout)
})

t.test('64: a command line that is wrong: the reason, and what was probably meant', async t => {
  for (const [line, reason] of [
    ['nothing', 'unknown command'],
    ['agnet list', 'Did you mean agent?'],
    ['audit', 'this is not a command'],
    ['token creat', 'Did you mean create?'],
    ['user list --jsn', 'Did you mean --json?'],
    ['user deactivate', 'EMAIL'],
    ['token revoke 1 secret', 'too many arguments'],
    ['agent owner 1', '--to <EMAIL>'],
    ['token revoke x', 'It must be a whole number'],
    ['token create', '--for <EMAIL>'],
    ['token create --for a@b --expires soon', 'It must be "never", or a duration'],
    ['token create --for a@b --scope all', 'Allowed choices are basic'],
    ['token create --for alice@example.com --agent Full', 'It must be a whole number'],
    ['token create --for alice@example.com --tool Full', 'It must be a whole number'],
    ['help nothing', 'this is not a command'],
    ['validate x --server https://a', '--server requires --complete'],
    ['validate x --complete --server a', '--server: the url must begin with '],
    ['apply x.yaml --prune', 'first try --plan, then give --yes'],
    ['apply x.yaml --yes', '--yes requires --prune'],
    ['audit list --kind x', 'Allowed choices are'],
    ['apply x.yaml --plann', 'Did you mean --plan?'],
    [`user create ${'a'.repeat(400)}@example.com`, 'is not an email address'],
    ['user create alice\u001b@example.com', 'is not an email address'],
    ['init nobody', 'is not an email address'],
    ['user erase bob@example.com', 'give either --plan, to see the data, or --yes'],
  ] as const) {
    const { status, stdout, stderr } = await agentctl(line)
    t.equal(status, 64, `${line}: ${stderr}`)
    t.equal(stdout, '')
    t.ok(stderr.includes(reason), stderr)
    t.match(stderr, /^agentctl: [^\n]* \(see agentctl help\)\n$/)
    t.notMatch(stderr, 'secret', 'an argument too many may be a secret')
  }
})

t.test('69, 78 and 1: the database, the settings, a refusal', async t => {
  t.match(await agentctl('user list', NOWHERE), { status: 69, stderr: /^agentctl: cannot connect to the database: / })
  t.equal((await agentctl('user list', { PORT: 'x' })).status, 78)
  t.equal((await agentctl('keys status', { SECRET_KEYS: '' })).status, 78)
  t.equal((await agentctl('user list', { STATEMENT_TIMEOUT_MS: '' })).status, 0)
  const forged = await agentctlOf({ url, args: ['token', 'create', '--for', 'f\nrow 1  forged'] })
  t.match(forged, {
    status: 1,
    stderr: 'agentctl: there is no user f\\nrow 1  forged: see agentctl user list and agentctl user create\n',
  })
  t.match(await agentctl('validate /nonexistent/x'), { status: 1, stderr: /cannot be read \(ENOENT\)/ })
  for (const [option, what] of [
    ['--agent', 'agent'],
    ['--tool', 'tool'],
  ])
    t.match(await agentctl(`token create --for alice@example.com ${option} 999999`), {
      ...{ status: 1, stdout: '', stderr: `there is no ${what} 999999` },
    })
})

t.test('a user is made, put into a group by a document, listed, and shut out', async t => {
  const email = 'dora@example.com'
  t.match(await json(`user create ${email} --permission manage:actions`), { email })
  t.equal((await agentctl('user create DORA@example.com')).status, 1)
  t.equal((await apply({ groups: [{ name: 'Night shift', managers: [email] }] })).status, 0)
  t.same(await json(`user deactivate ${email}`), { email, active: false, changed: true })
  t.match((await agentctl(`user deactivate ${email}`)).stdout, 'nothing changed')
  const users: { email: string }[] = await json('user list')
  const dora = users.find(user => user.email === email)
  t.match(dora, { active: false, permissions: ['manage:actions'], groups: ['Night shift'] })
})

t.test('1: the last administrator stays, also where they administer by a group', async t => {
  const world = await worldDatabase(t)
  const { db } = world.database
  const agentctl = (...args: string[]) => agentctlOf({ url: world.url, args })
  const apply = (document: object) => agentctl('apply', file('admins.json', { version: 1, ...document }))
  await db.updateTable('user_account').set({ permissions: [] }).execute()
  await db.updateTable('user_group').set({ permissions: [] }).execute()
  await apply({ users: [{ email: 'admin@example.com', permissions: ['admin'] }] })
  const refused = /leave no active administrator/
  t.match(await agentctl('user', 'deactivate', 'admin@example.com'), { status: 1, stderr: refused })
  for (const how of ['--plan', '--yes'])
    t.match(await agentctl('user', 'erase', 'admin@example.com', how), { status: 1, stdout: /^$/, stderr: refused })
  t.match(await apply({ users: [{ email: 'admin@example.com', permissions: [] }] }), { status: 1, stderr: refused })
  const admins = { name: 'Admins', permissions: ['admin'], members: ['bob@example.com'] }
  t.equal((await apply({ groups: [admins], users: [{ email: 'admin@example.com', permissions: [] }] })).status, 0)
  t.match(await apply({ groups: [{ ...admins, members: [] }] }), { status: 1, stderr: refused })
  t.equal((await apply({ users: [{ email: 'admin@example.com', permissions: ['admin'] }] })).status, 0)
  await apply({ users: ['admin', 'bob'].map(name => ({ email: `${name}@example.com`, active: true })) })
  const names = ['admin', 'bob'].map(name => agentctl('user', 'deactivate', `${name}@example.com`))
  t.same((await Promise.all(names)).map(({ status }) => status).sort(), [0, 1], 'of the last two one stays')
})

t.test('a token is made, bound by id, works and is revoked', async t => {
  const create = 'token create --for alice@example.com --scope basic'
  const made = await json(`${create} --agent 2 --expires 12h`)
  t.match(made.expires_at, /^\d{4}-/)
  const callerOf = async (secret: string) => await authenticate(database.db, hashToken(secret), undefined)
  const reading = await json(`${create} --read-only --expires never`)
  const kept = { readOnly: true, expiresAt: null }
  t.match(await callerOf(reading.token), { caller: { permission: 'basic', token: kept } })
  const running = await json(`${create} --runtime`)
  t.match(running.token, /^rt_/)
  t.match(await callerOf(running.token), { caller: { token: { readOnly: true, scopes: ['runtime', 'basic'] } } })
  const proposing = await json(`${create} --proposals-only`)
  t.match(proposing.token, /^pp_/)
  t.match(await callerOf(proposing.token), { caller: { token: { readOnly: true, scopes: ['propose', 'basic'] } } })
  t.match(await callerOf(made.token), { caller: { email: 'alice@example.com', token: { bound: { persona: [2] } } } })
  await agentctl('user deactivate limited@example.com')
  const refused = await agentctl('token create --for limited@example.com')
  t.match(refused, { status: 1, stderr: /limited@example.com is inactive: first set its field active to true/ })
  t.same(await json(`token revoke ${made.id}`), { id: made.id, revoked: true })
  await t.rejects(callerOf(made.token), { code: 'INVALID_TOKEN' })
  const listed = (await agentctl('token list --for alice@example.com')).stdout
  t.match(listed, /^ID +USER +SCOPES/)
  t.match(listed, /revoked 2/)
  t.match(listed, /alice@example.com +read, ?basic/)
  t.notMatch(listed, made.token)
})

t.test('an agent is made and goes to another owner', async t => {
  const porter = { name: 'Porter', owner: 'alice@example.com', users: [{ email: 'bob@example.com' }] }
  const [{ id }] = JSON.parse((await apply({ agents: [porter] })).stdout).outcomes
  const move = `agent owner ${id} --to bob@example.com`
  t.same(await json(move), { id, owner: 'bob@example.com', version: 2 })
  const bob = await token('bob@example.com')
  const { call } = await appOver(t, database)
  const read = await call('GET', `/persona/${id}`, { token: bob })
  t.match(read.json(), { owner: { email: 'bob@example.com' }, users: [] })
  const stdout = `agent ${id} already belongs to bob@example.com (version 2)\n`
  t.match(await agentctl(move), { status: 0, stdout })
  const body = { ...REQUIRED_FIELDS, name: 'Porter', system_prompt: 'Be brief.' }
  t.equal((await call('PATCH', `/persona/${id}`, { token: bob, body })).statusCode, 200, 'it is a whole update')
  t.equal((await call('DELETE', `/persona/${id}`, { token: bob })).statusCode, 204)
  for (const [agent, to, refusal] of [
    [2, 'nobody@example.com', /there is no user nobody@example.com: see agentctl user list/],
    [2, 'dora@example.com', /dora@example.com is inactive/],
    [id, 'bob@example.com', /agent \d+ is deleted/],
    [999_999, 'bob@example.com', /agentctl: No agent with this id/],
  ] as const)
    t.match(await agentctl(`agent owner ${agent} --to ${to}`), { status: 1, stderr: refusal })
})

t.test('a tool is made by a document with a file and a secret of the environment', async t => {
  file('good.yaml', JSON.stringify(DEFINITION))
  const custom_headers = [{ key: 'X-Api-Key', value: placeholder('AGENTS_MAPS') }]
  const maps = { name: 'Maps', owner: 'alice@example.com', definition_file: 'good.yaml', custom_headers }
  const made = await apply({ tools: [maps] }, { AGENTS_MAPS: 'very secret' })
  const [{ id }] = JSON.parse(made.stdout).outcomes
  t.notMatch(made.stdout, 'very secret')
  t.equal((await apply({ tools: [{ id, name: 'Maps', description: 'changed' }] })).status, 0)
})

t.test('lists are a table or JSON; audit list has who changed what, and says that there is more', async t => {
  for (const line of ['user list', 'token list', 'audit list']) {
    const rows = (await agentctl(line)).stdout.trimEnd().split('\n').length - 1
    t.equal(rows, (await json(line)).length, line)
  }
  const { stdout, stderr } = await agentctl('audit list --limit 2 --kind tool')
  t.match(stdout, /tool:\d+ +2 +applied +- +agentctl .* description$/m)
  t.match(stderr, 'older entries are not shown')
  const [newest] = await json('audit list --limit 1 --kind tool')
  t.match(newest.difference, { description: { from: '', to: 'changed' } })
  t.match(await json('audit verify'), { findings: [] })
})

t.test('apply: faults at their lines; a plan that finds something ends with 2', async t => {
  for (const [yaml, line, type] of [
    ['labels:\n  - name: x\n  - nam: y\nagents:\n  - name: z\n', 4, 'extra_forbidden'],
    ['labels:\n  - {}\n', 3, 'missing'],
  ] as const) {
    const { status, stdout } = await agentctl(`apply ${file('faults.yaml', `version: 1\n${yaml}`)} --json`)
    const [fault, ...others] = JSON.parse(stdout).faults
    t.match([status, fault.line, fault.type, others.length], [1, line, type, 0])
  }
  const again = file('faults2.yaml', 'version: 1\nagents:\n  - id: 920\n    name: z\n    tools:\n      - nothing\n')
  t.match((await agentctl(`apply ${again}`)).stdout, /line 6.*agents\[0\]\.tools\[0\].*not found/)
  const agents = [{ id: 921, name: 'Night porter', system_prompt: 'Be brief.' }]
  const planned = await agentctl(`apply ${file('porter.json', { version: 1, agents })} --plan`)
  t.equal(planned.status, 2)
  t.match(planned.stdout, /^\+ agents new Night porter\n[\s\S]*^ {4}system_prompt: "Be brief."/m)
  t.match((await agentctl(`apply ${worldFile()} --plan`)).stdout, 'a plan: nothing was stored')
  const taken = await apply({ tools: [{ id: 922, name: 'another search', in_code_tool_id: 'SearchTool' }] })
  t.match(taken, { status: 1, stderr: /tool_in_code_tool_id_unique/ })
  t.notMatch(taken.stderr, /\n +at /)
})

t.test('--prune removes with --yes what its plan names; what comes back is restored', async t => {
  const world = await worldDatabase(t)
  const agentctl = (line: string) => agentctlOf({ url: world.url, args: line.split(' ') })
  const kept = worldDocument()
  kept.tools = kept.tools.filter((tool: { id: number }) => tool.id !== 11)
  kept.agents = kept.agents.filter((agent: { id: number }) => agent.id !== 13)
  const pruning = `apply ${file('pruned.json', kept)} --prune`
  const stdout = /^- agents 13 Alice In Eng\n- tools 11 cur_tool\n {4}the secrets of these headers are deleted: \S+$/m
  t.match(await agentctl(`${pruning} --plan`), { status: 2, stdout })
  t.match(await agentctl(`${pruning} --yes`), { status: 0, stdout: /2 removed/ })
  t.equal((await agentctl(`apply ${worldFile()}`)).status, 0)
  const listed = JSON.parse((await agentctl('audit list --subject 13 --kind agent --json')).stdout)
  t.match(listed, [{ action: 'restored' }, { action: 'deleted' }])
})

t.test('a plan has the words of documents, emails and names, and whole values', async t => {
  const users = [{ email: 'carol@example.com', level: 'editor' }]
  const agents = [{ id: 11, owner: 'bob@example.com', system_prompt: 'Two\nlines', tools: [11], users }]
  const groups = [{ name: 'Engineering', members: ['perf@example.com'] }]
  const paths = { '/o': { get: { operationId: 'other', summary: 'O.' } } }
  const tools = [{ id: 10, definition: { ...DEFINITION, paths } }]
  const { stdout } = await agentctl(`apply ${file('reviewed.json', { version: 1, agents, groups, tools })} --plan`)
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

t.test('status tells the state, also without keys', async t => {
  t.match(await json('status'), { schema: { kind: 'current' }, version: VERSION })
  t.equal((await agentctl('status', { SECRET_KEYS: '' })).status, 0)
})
