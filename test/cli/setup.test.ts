import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { demoOrganisation, loadDemo } from '../../src/admin/demo.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { agentctl } from './agentctl.js'

const ROOT = join(import.meta.dirname, '..', '..', '..')

t.test('init: an empty database has its schema, an administrator and a token; a second time is refused', async t => {
  const { url } = await testDatabase(t)
  const bare = await agentctl({ url, args: ['init', 'alice@example.com'], env: { SECRET_KEYS: '' } })
  t.equal(bare.status, 78, 'without a key ring nothing is made')
  const planned = await agentctl({ url, args: ['migrate', '--plan', '--json'] })
  t.equal(planned.status, 2)
  t.match(JSON.parse(planned.stdout).pending[0], /^\d{4}_\w+$/)
  const { status, stdout, stderr } = await agentctl({ url, args: ['init', 'alice@example.com'] })
  t.equal(status, 0, stderr)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { caller } = await authenticate(database.db, hashToken(stdout.trim()), undefined)
  t.match(caller, { email: 'alice@example.com', permission: 'admin' })
  const again = await agentctl({ url, args: ['init', 'bob@example.com'] })
  t.match(again, { status: 1, stderr: /there is an administrator already, alice@example.com/ })

  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const guide = readFileSync(join(ROOT, 'ops', 'organisation.md'), 'utf8')
  const examples = [...guide.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text)
  t.ok(examples.length > 0, 'the example of the guide')
  for (const example of examples) {
    const report = await applyOrganisation(database, parse(example), { ring, env: { AGENTS_CRM_KEY: 'secret' } })
    t.ok(countOutcomes(report).created > 0)
  }
})

t.test('init: of several at once on an empty database one makes an administrator', async t => {
  const { url } = await testDatabase(t)
  const names = ['alice', 'bob', 'carol', 'dave']
  const answers = await Promise.all(names.map(name => agentctl({ url, args: ['init', `${name}@example.com`] })))
  t.strictSame(answers.map(({ status }) => status).sort(), [0, 1, 1, 1])
  const { stdout } = await agentctl({ url, args: ['user', 'list', '--json'] })
  t.equal(JSON.parse(stdout).length, 1)
})

t.test('the sample organisation comes beside what init and a document made', async t => {
  const { url } = await testDatabase(t)
  const sample = join(ROOT, 'fixtures', 'organisation.yaml')
  t.equal((await agentctl({ url, args: ['init', 'alice@example.com'] })).status, 0)
  const input = 'version: 1\nagents: [{ name: Support, owner: alice@example.com }]\n'
  t.equal((await agentctl({ url, args: ['apply', '-'], input })).status, 0)
  const applied = await agentctl({ url, args: ['apply', sample, '--json'] })
  t.match(JSON.parse(applied.stdout).counts, { changed: 0, removed: 0 })
  t.equal((await agentctl({ url, args: ['apply', sample, '--plan'] })).status, 0)
})

t.test('78: without a database a command says what to set, and makes nothing; an older schema is reported', async t => {
  const folder = t.testdir()
  const env = { DATABASE_URL: '', DATABSE_URL: 'x', DATA_DIR: join(folder, 'data'), SECRET_KEYS: '' }
  for (const args of [
    ['user', 'create', 'alice@example.com'],
    ['status'],
    ['keys', 'status'],
    ['init', 'a@b.example'],
  ]) {
    t.match(await agentctl({ url: '', args, env }), {
      status: 78,
      stderr:
        /DATABSE_URL: did you mean 'DATABASE_URL'\?\n.*DATABASE_URL is not set, and there is no embedded database in DATA_DIR/,
    })
  }
  t.same(readdirSync(folder), [])
  const empty = await testDatabase(t)
  const behind = await agentctl({ url: empty.url, args: ['user', 'list'] })
  t.match(behind, { status: 78, stderr: /the database is empty: run agentctl init EMAIL/ })
  const status = await agentctl({ url: empty.url, args: ['status'] })
  t.match(status, { status: 0, stdout: /^schema +behind: the database is empty: run agentctl init EMAIL$/m })
  t.match((await agentctl({ url: empty.url, args: ['migrate'] })).stdout, /^applied \d{4}_\w+$/m)
  t.match((await agentctl({ url: empty.url, args: ['migrate'] })).stdout, 'The schema is up to date.')
})

t.test('the demo organisation loads into an empty database, and again with nothing to do', async t => {
  const { url } = await testDatabase(t)
  t.match(await agentctl({ url, args: ['migrate'] }), { status: 0 })
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  t.match(await loadDemo(database, ring), /^pat_/)
  t.equal(await loadDemo(database, ring), null, 'what is there stays')
  const counts = countOutcomes(await applyOrganisation(database, demoOrganisation(), { ring, env: {}, prune: true }))
  t.match(counts, { created: 0, changed: 0, removed: 0 })
})
