import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'

/*
 * Tests the oldest supported PostgreSQL if Debian's package is installed: the upgrade of a database of version 2.1, and the examples.
 * `npm run test:pg15` runs all tests on it.
 */
const BIN_DIR = '/usr/lib/postgresql/15/bin'

const fileOf = (name: string) => fileURLToPath(new URL(`${name}.js`, import.meta.url))
const { PG_BIN_DIR, TEST_DATABASE_URL, ...env } = process.env
const missing = !existsSync(BIN_DIR) && `there is no ${BIN_DIR}`
const skip = PG_BIN_DIR || TEST_DATABASE_URL ? 'the run has a server of its own' : missing

t.test('PostgreSQL 15', { skip }, async t => {
  const args = [fileOf('all'), fileOf('upgrade-from-before.test'), fileOf('examples.test')]
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: { ...env, PG_BIN_DIR: BIN_DIR } })
  t.match(stdout, /^ok - .*upgrade-from-before(.|\n)*^# \{ total: \d+, pass: \d+, fail: 0 \}$/m)
})
