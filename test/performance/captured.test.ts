import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import t from 'tap'
import { BATCH_ROWS, captureStatements } from '../../bench/captured.js'
import { enterWorld, fillWorld, type WorldSize } from '../../bench/world.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'
import { testDatabase } from '../postgres.js'

const SIZE: WorldSize = { agents: 50, tools: 20, users: 20, groups: 5 }

t.test(
  'what the benchmark sends beside the service is what the service sends for an update that nobody disturbs',
  async t => {
    const { url } = await testDatabase(t)
    const database = openUrl(url, readConfig({}))
    t.teardown(() => database.close())
    await migrate(database.db)
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    t.teardown(() => client.end())
    await fillWorld(client, SIZE, 'test', () => undefined)
    const world = await enterWorld(client, SIZE)

    const captured = await captureStatements(database, world)

    const kinds = (statements: readonly { sql: string }[]) => {
      return statements.map(({ sql }) => (sql.includes('insert into audit') ? 'write' : 'read'))
    }
    t.same(kinds(captured.agentUpdate), ['read', 'write'])
    t.same(kinds(captured.agentUpdates), ['read', 'write'])
    const texts = JSON.stringify(captured.agentUpdates[1]?.values).split('captured 1').length - 1
    t.equal(texts, 2 * BATCH_ROWS, 'one statement holds each description twice, for its row and for its audit row')
    t.same(kinds(captured.agentUnchanged), ['read', 'read'])
    t.same(captured.toolUpdate.map(kinds), [
      ['read', 'write'],
      ['read', 'write'],
    ])
  },
)

t.test('the benchmark: 0 and its usage for --help; 2 and one line for what it does not take', async t => {
  const program = fileURLToPath(new URL('../../bench/run.js', import.meta.url))
  const bench = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' })
    return { status, stdout, stderr }
  }
  t.match(bench('--help'), {
    status: 0,
    stdout: /^Usage: npm run bench .*--compare FILE \| --against FOLDER\]\n/,
    stderr: /^$/,
  })
  t.match(bench('--nothing'), { status: 2, stdout: /^$/, stderr: /^bench: .*'--nothing'; .*--help .*\n$/ })
})
