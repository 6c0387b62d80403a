import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { startAgentctl } from '../cli/agentctl.js'

t.test('--embedded makes an embedded database; afterwards commands join it and say nothing of it', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'cli-embedded-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { PG_BIN_DIR = '' } = process.env
  const env = { DATABASE_URL: '', SECRET_KEYS: '', DATA_DIR: join(folder, 'data'), PG_BIN_DIR }
  const made = await startAgentctl({ url: '', args: ['init', 'alice@example.com', '--embedded'], env }).answer
  t.equal(made.status, 0, made.stderr)
  t.match(made.stdout, /^pat_\S+\n$/)
  const joined = await startAgentctl({ url: '', args: ['user', 'list'], env }).answer
  t.match(joined, { status: 0, stdout: /^alice@example\.com /m })
  t.notMatch(joined.stderr, 'PostgreSQL')
})
