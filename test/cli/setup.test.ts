import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { opened, testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { agentctl } from './agentctl.js'

const ROOT = join(import.meta.dirname, '..', '..', '..')
/** Creates an empty database, and returns its URL and a function that runs command lines on it. */
async function empty(t: Test) {
  const { url } = await testDatabase(t)
  return { url, run: (line: string, more = {}) => agentctl({ url, args: line.split(' '), ...more }) }
}

t.test('init: an empty database has its schema, an administrator and a token; a second time is refused', async t => {
  const { url, run } = await empty(t)
  const bare = await run('init alice@example.com', { env: { SECRET_KEYS: '' } })
  t.equal(bare.status, 78, 'without a key ring nothing is made')
  const planned = await run('migrate --plan --json')
  t.equal(planned.status, 2)
  t.match(JSON.parse(planned.stdout).pending[0], /^\d{4}_\w+$/)
  const { status, stdout, stderr } = await run('init alice@example.com')
  t.equal(status, 0, stderr)
  const database = opened(t, url)
  const { caller } = await authenticate(database.db, hashToken(stdout.trim()), undefined)
  t.match(caller, { email: 'alice@example.com', permission: 'admin' })
  const again = await run('init bob@example.com')
  t.match(again, { status: 1, stderr: /there is already an administrator, alice@example.com/ })

  const guide = readFileSync(join(ROOT, 'ops', 'organisation.md'), 'utf8')
  const examples = [...guide.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text)
  t.ok(examples.length > 0, 'the example of the guide')
  for (const example of examples) {
    const options = { ring: parseKeyRing(TEST_SECRET_KEYS), env: { AGENTS_CRM_KEY: 'secret' } }
    t.ok(countOutcomes(await applyOrganisation(database, parse(example), options)).created > 0)
  }
})

t.test('init: of several at once on an empty database one makes an administrator', async t => {
  const { run } = await empty(t)
  const names = ['alice', 'bob', 'carol', 'dave']
  const answers = await Promise.all(names.map(name => run(`init ${name}@example.com`)))
  t.strictSame(answers.map(({ status }) => status).sort(), [0, 1, 1, 1])
  t.equal(JSON.parse((await run('user list --json')).stdout).length, 1)
})

t.test('the sample organisation comes beside what init and a document made', async t => {
  const { run } = await empty(t)
  const applying = `apply ${join(ROOT, 'fixtures', 'organisation.yaml')}`
  t.equal((await run('init alice@example.com')).status, 0)
  const input = 'version: 1\nagents: [{ name: Support, owner: alice@example.com }]\n'
  t.equal((await run('apply -', { input })).status, 0)
  t.match(JSON.parse((await run(`${applying} --json`)).stdout).counts, { changed: 0, removed: 0 })
  t.equal((await run(`${applying} --plan`)).status, 0)
})

t.test('78: without a database a command says what to set, and makes nothing; an older schema is reported', async t => {
  const folder = t.testdir()
  const env = { DATABASE_URL: '', DATABSE_URL: 'x', DATA_DIR: join(folder, 'data'), SECRET_KEYS: '' }
  const stderr =
    /DATABSE_URL \(did you mean DATABASE_URL\?\)\n.*DATABASE_URL is not set, and there is no embedded database in DATA_DIR/
  for (const line of ['user create alice@example.com', 'status', 'keys status', 'init a@b.example'])
    t.match(await agentctl({ url: '', args: line.split(' '), env }), { status: 78, stderr })
  t.same(readdirSync(folder), [])
  const { run } = await empty(t)
  t.match(await run('user list'), { status: 78, stderr: /lacks the schema of this service: run agentctl init EMAIL/ })
  const stdout = /^schema +behind \(the database lacks the schema of this service\): run agentctl init EMAIL$/m
  t.match(await run('status'), { status: 0, stdout })
  t.match((await run('migrate')).stdout, /^applied \d{4}_\w+$/m)
  t.match((await run('migrate')).stdout, 'The schema is up to date.')
})
