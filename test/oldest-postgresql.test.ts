import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import './plain-children.js'
import { testDatabase } from './postgres.js'

/*
 * The oldest PostgreSQL that is promised, where Debian's package of it is installed: once more what depends most on the
 * server. `npm run test:pg15` runs everything on it.
 */
const BIN_DIR = '/usr/lib/postgresql/15/bin'

const FILES = [
  'migrations',
  'upgrade',
  'updates/batched',
  'update-persona/concurrent-writers',
  'admin/apply',
  'db/connection',
]

const timeout = 900_000 // a minute where the machine does nothing else
t.setTimeout(timeout)

const { PG_BIN_DIR } = process.env
const missing = !existsSync(BIN_DIR) && `there is no ${BIN_DIR}`
const skip = PG_BIN_DIR ? 'PG_BIN_DIR names the server of this run' : missing

t.test('PostgreSQL 15', { skip, timeout }, async t => {
  process.env.PG_BIN_DIR = BIN_DIR
  await testDatabase(t) // keeps the server that they share
  for (const file of FILES) {
    const path = fileURLToPath(new URL(`${file}.test.js`, import.meta.url))
    await t.spawn(process.execPath, [path], { env: { TEST_CAMPAIGN: 'brief', ...process.env } }, file)
  }
})
