/**
 * Runs the tests that send HTTP requests with PgBouncer in transaction mode between service and database:
 *
 *     npm run test:pgbouncer -- [compiled test file ...]
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Cluster } from './cluster.js'
import { Pooler } from './pooler.js'

const TESTS = fileURLToPath(new URL('..', import.meta.url))
const ROOT = join(TESTS, '../..')

if (!Pooler.isInstalled()) throw new Error('PgBouncer is not installed')
const cluster = await Cluster.create({ settings: { fsync: 'off', max_connections: '300' } })
const pooler = await Pooler.start(cluster.port, 20)
try {
  const asked = process.argv.slice(2)
  const files = asked.length > 0 ? asked : httpTests()
  const env = { ...process.env, TEST_DATABASE_URL: cluster.url('postgres'), TEST_POOLER_URL: pooler.url() }
  const tap = spawn('npx', ['tap', '--disable-coverage', ...files], { cwd: ROOT, env, stdio: 'inherit' })
  const [code] = await once(tap, 'exit')
  process.exitCode = code === 0 ? 0 : 1
} finally {
  await pooler.stop()
  await cluster.remove()
}

/** The test files that build the application over the recorded organisation. */
function httpTests(): string[] {
  const files = readdirSync(TESTS, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith('.test.js'))
  const paths = files
    .map(name => join(TESTS, name))
    .filter(path => /from '\.+\/app\.js'/.test(readFileSync(path, 'utf8')))
  return paths.map(path => relative(ROOT, path))
}
