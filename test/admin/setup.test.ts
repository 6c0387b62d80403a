import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Ajv2020 as Ajv } from 'ajv/dist/2020.js'
import t from 'tap'
import { parse } from 'yaml'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { Call } from '../../src/admin/commands/command.js'
import { COMMANDS } from '../../src/admin/commands/run.js'
import { organisationSchema } from '../../src/admin/document.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { openVault } from '../../src/secrets/vault.js'
import { VERSION } from '../../src/version.js'
import { agentctl, startAgentctl } from '../cli/agentctl.js'
import { testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS, worldDatabase, worldFile } from '../world.js'

const ROOT = join(import.meta.dirname, '..', '..', '..')

t.test('init: an empty database has its schema, an administrator and a token; a second time is refused', async t => {
  const { url } = await testDatabase(t)
  const bare = await agentctl({ url, args: ['init', 'alice@example.com'], env: { SECRET_KEYS: '' } })
  t.equal(bare.status, 78, 'without a key ring nothing is made')
  t.equal((await agentctl({ url, args: ['migrate', '--plan'] })).status, 2)
  const { status, stdout, stderr } = await agentctl({ url, args: ['init', 'alice@example.com'] })
  t.equal(status, 0, stderr)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { caller } = await authenticate(database, hashToken(stdout.trim()), undefined)
  t.match(caller, { email: 'alice@example.com', permission: 'admin' })
  const again = await agentctl({ url, args: ['init', 'bob@example.com'] })
  t.equal(again.status, 1)
  t.match(again.stderr, 'there is an administrator already, alice@example.com')

  const vault = await openVault(database.db, parseKeyRing(TEST_SECRET_KEYS))
  for (const example of examples()) {
    const report = await applyOrganisation(database, parse(example), { vault, env: { AGENTS_CRM_KEY: 'secret' } })
    t.ok(countOutcomes(report).created > 0)
  }
})

t.test('migrate: a database that is just starting is waited for, and a line says so', async t => {
  const { url } = await testDatabase(t)
  const starting = createServer()
  await once(starting.listen(0, '127.0.0.1'), 'listening')
  const { port } = starting.address() as AddressInfo
  starting.close()
  const { pathname, searchParams } = new URL(url.replace(/@\//, '@x/'))
  const host = searchParams.get('host') ?? new URL(url).hostname
  const there = `postgresql://postgres@127.0.0.1:${port}${pathname}`
  const migrating = agentctl({ url: there, args: ['migrate'] })
  await sleep(1_000)
  const proxy = createServer(near => {
    const far = host.startsWith('/') ? connect(`${host}/.s.PGSQL.5432`) : connect(Number(new URL(url).port), host)
    for (const socket of [near, far]) socket.on('error', () => undefined)
    near.pipe(far).pipe(near)
  })
  await once(proxy.listen(port, '127.0.0.1'), 'listening')
  t.teardown(() => proxy.close())
  const { status, stdout, stderr } = await migrating
  t.match({ status, stdout }, { status: 0, stdout: /^applied 0001/ }, stderr)
  t.match(stderr, /cannot be reached yet; waiting up to 30 s/)
})

t.test('an empty STATEMENT_TIMEOUT_MS leaves a command its ten minutes, as an absent one does', t => {
  const [command] = COMMANDS
  if (command === undefined) throw new Error('there is no command')
  const timeoutIn = (env: Record<string, string>) =>
    new Call(command, [], {}, env, { print: () => {}, remark: () => {} } as never).config.database.statementTimeoutMs
  t.equal(timeoutIn({}), 600_000)
  t.equal(timeoutIn({ STATEMENT_TIMEOUT_MS: '' }), 600_000)
  t.equal(timeoutIn({ STATEMENT_TIMEOUT_MS: '5000' }), 5_000)
  t.end()
})

t.test('init: of several at once on an empty database one makes an administrator', async t => {
  const { url } = await testDatabase(t)
  const names = ['alice', 'bob', 'carol', 'dave']
  const answers = await Promise.all(names.map(name => agentctl({ url, args: ['init', `${name}@example.com`] })))
  t.strictSame(answers.map(({ status }) => status).sort(), [0, 1, 1, 1])
  for (const { stderr } of answers.filter(({ status }) => status === 1))
    t.match(stderr, /^agentctl init: there is an administrator already, \w+@example\.com: /m)
  const { stdout } = await agentctl({ url, args: ['user', 'list', '--json'] })
  t.equal(JSON.parse(stdout).length, 1)
})

t.test('init: a user who is there and does not administer is told the commands', async t => {
  const { url } = await testDatabase(t)
  await agentctl({ url, args: ['migrate'] })
  await agentctl({ url, args: ['user', 'create', 'alice@example.com'] })
  await agentctl({ url, args: ['user', 'deactivate', 'alice@example.com'] })
  const { status, stderr } = await agentctl({ url, args: ['init', 'Alice@example.com'] })
  t.equal(status, 1)
  const named = [...stderr.matchAll(/agentctl (\w+ \w+ [^,\n]*)/g)].slice(-3).map(([, words = '']) => words.split(' '))
  t.equal(named.length, 3)
  for (const args of named) t.equal((await agentctl({ url, args })).status, 0, args.join(' '))
})

t.test('the sample organisation comes beside what init and agent create made', async t => {
  const { url } = await testDatabase(t)
  const sample = join(ROOT, 'fixtures', 'organisation.yaml')
  t.equal((await agentctl({ url, args: ['init', 'alice@example.com'] })).status, 0)
  const owned = ['agent', 'create', 'Support', '--owner', 'alice@example.com']
  t.equal((await agentctl({ url, args: owned })).status, 0)
  const planned = await agentctl({ url, args: ['apply', sample, '--plan'] })
  t.match(planned.stdout, /^ {4}members: \[\{"user_id":"manager@example.com","is_manager":true\}/m)
  t.match(planned.stdout, /^ {4}tool_ids: \["weather"\]$/m)
  const applied = await agentctl({ url, args: ['apply', sample, '--json'] })
  t.equal(applied.status, 0, applied.stdout)
  t.match(JSON.parse(applied.stdout).counts, { changed: 0, removed: 0 })
  t.match((await agentctl({ url, args: ['agent', 'show', '1'] })).stdout, /^name: Support$/m)
  t.match((await agentctl({ url, args: ['user', 'list'] })).stdout, /^alice@example\.com .* admin /m)
  t.equal((await agentctl({ url, args: ['apply', sample, '--plan'] })).status, 0)
})

/** The documents of the guide, in their order. */
function examples(): string[] {
  const guide = readFileSync(join(ROOT, 'ops', 'organisation.md'), 'utf8')
  const found = [...guide.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text)
  if (found.length < 2) throw new Error('the guide has lost its examples')
  return found
}

t.test(
  '78: without DATABASE_URL and without an embedded database a command says what to set, and makes nothing',
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'nothing-'))
    t.teardown(() => rmSync(folder, { recursive: true }))
    for (const args of [
      ['user', 'create', 'alice@example.com'],
      ['status'],
      ['keys', 'status'],
      ['init', 'a@example.com'],
    ]) {
      const env = { DATABASE_URL: '', DATA_DIR: join(folder, 'data'), SECRET_KEYS: '' }
      const { status, stderr } = await agentctl({ url: '', args, env })
      t.equal(status, 78, args.join(' '))
      t.match(stderr, /DATABASE_URL is not set, and there is no embedded database in DATA_DIR/)
    }
    t.same(readdirSync(folder), [])
  },
)

t.test('the reason of a refusal stands last, after where help is, and says what was probably meant', async t => {
  for (const [args, meant] of [
    [['agnet', 'list'], 'Did you mean agent?'],
    [['tokens', 'create'], 'Did you mean token?'],
    [['user', 'list', '--jsn'], 'Did you mean --json?'],
    [['audit'], 'name one of list, verify'],
    [['nosuch', '--help'], 'nosuch'],
    [['help', 'agnet'], 'Did you mean agent?'],
    [['token', 'creat', '--help'], 'Did you mean create?'],
    [['config', '--output', 'csv', '--json'], '--json excludes --output csv'],
  ] as const) {
    const { status, stdout, stderr } = await agentctl({ url: '', args })
    t.equal(status, 2)
    t.equal(stdout, '')
    const lines = stderr.trimEnd().split('\n')
    t.equal(lines.length, 2)
    t.match(lines[1], meant)
  }
})

t.test('version and help stand as words too', async t => {
  for (const args of [['version'], ['--version']]) t.equal((await agentctl({ url: '', args })).stdout.trim(), VERSION)
  t.match((await agentctl({ url: '', args: ['help', 'token', 'create'] })).stdout, 'Usage: agentctl token create')
  t.match((await agentctl({ url: '', args: ['help'] })).stdout, /^ {2}token +create, list, revoke, rotate$/m)
})

t.test('a shell completes the words of every command, its options and files', async t => {
  const { stdout } = await agentctl({ url: '', args: ['completion', 'bash'] })
  /** What one shell makes of each of these lines, as it stands behind `agentctl`. */
  const completed = (lines: readonly string[]) => {
    const asked = lines.map(line => {
      const words = ['agentctl', ...line.split(' ')]
      const given = `COMP_WORDS=(${words.map(word => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}`
      return `COMPREPLY=(); ${given}; _agentctl\necho "\${COMPREPLY[@]}"`
    })
    const answer = execFileSync('bash', ['-c', `${stdout}\n${asked.join('\n')}`], { encoding: 'utf8' })
    return answer.split('\n').map(words => words.trim())
  }
  const expected = {
    to: 'token tool',
    'token ': 'create list revoke rotate',
    he: 'help',
    'help to': 'token tool',
    'help token ': 'create list revoke rotate',
    'persona sh': 'share show',
    'user list --output ': 'csv json table',
    'user create alice@example.com --permission a': 'admin',
    'group member a': 'add',
    'token create --for alice@example.com --ex': '--expires',
  }
  t.strictSame(completed(Object.keys(expected)), [...Object.values(expected), ''])
  const names = COMMANDS.map(({ name }) => name)
  const all = completed(names)
  for (const [place, name] of names.entries()) t.match(all[place], name.split(' ').at(-1) ?? '')
})

t.test('fish completes the same words', async t => {
  const { stdout } = await agentctl({ url: '', args: ['completion', 'fish'] })
  t.match(stdout, 'complete -c agentctl')
  if (spawnSync('fish', ['--version']).error !== undefined) {
    t.comment('there is no fish here: what it makes of this was not seen')
    return
  }
  const completed = (line: string) =>
    execFileSync('fish', ['--no-config', '-c', `${stdout}\ncomplete -C '${line}'`], { encoding: 'utf8' }).trim()
  t.equal(completed('agentctl to'), 'token\ntool')
  t.equal(completed('agentctl token '), 'create\nlist\nrevoke\nrotate', 'no files, where none can stand')
  t.equal(completed('agentctl token create --for alice@example.com --ex'), '--expires')
  t.equal(completed('agentctl user list --output j'), 'json')
})

t.test('schema: every object is closed, every list of a document is in it', async t => {
  const schema = organisationSchema()
  t.match(JSON.parse((await agentctl({ url: '', args: ['schema'] })).stdout), schema)
  const open: string[] = []
  const look = (node: unknown, at: string) => {
    if (typeof node !== 'object' || node === null) return
    if ('properties' in node && !('additionalProperties' in node)) open.push(at)
    for (const [key, value] of Object.entries(node)) look(value, `${at}/${key}`)
  }
  look(schema, '')
  t.same(open, [])
  t.match(schema, { properties: { agents: { items: { required: ['name'] } }, tools: {}, users: {} } })
})

t.test('schema: documents that apply takes are valid by it, and a mistyped field is not', async t => {
  const validate = new Ajv({ strict: false, formats: { uuid: true, 'date-time': true } }).compile(organisationSchema())
  const demo = parse(readFileSync(join(ROOT, 'fixtures', 'organisation.yaml'), 'utf8'))
  const documents = [demo, JSON.parse(readFileSync(worldFile(), 'utf8')), ...examples().map(text => parse(text))]
  for (const document of documents) t.ok(validate(document), JSON.stringify(validate.errors))
  const mistyped = { version: 1, agents: [{ name: 'x', descripton: 'y' }] }
  for (const wrong of [{ version: 2 }, { version: 1, agent: [] }, mistyped]) t.notOk(validate(wrong))
})

t.test(
  'apply: what is only in the database is counted, what is made is shown, a plan that finds something exits with 2',
  async t => {
    const { url } = await worldDatabase(t)
    const input = 'version: 1\nagents: [{ name: Night porter, system_prompt: Be brief. }]\n'
    const planned = await startAgentctl({ url, args: ['apply', '-', '--plan'], input }).answer
    t.equal(planned.status, 2)
    const lines = planned.stdout.trimEnd().split('\n')
    t.match(lines[0], /^\+ created {2}~ changed .*\? only in the database$/)
    t.match(planned.stdout, /^\+ agents new Night porter\n[\s\S]*^ {4}system_prompt: "Be brief."/m)
    t.match(planned.stdout, /^\? agents \d+ only in the database \(--verbose names them\)$/m)
    t.ok(lines.length < 12, planned.stdout)
    const verbose = await startAgentctl({ url, args: ['apply', '-', '--plan', '--verbose'], input }).answer
    t.match(verbose.stdout, /^\? agents 8 /m)
    t.equal((await agentctl({ url, args: ['apply', worldFile(), '--plan'] })).status, 0)
  },
)
