import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import t from 'tap'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { agentctl } from '../cli/agentctl.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { worldDatabase } from '../world.js'

const { url, database } = await worldDatabase(t)
const parsed = parseDatabaseUrl(url)
if (!parsed.ok) throw new Error(parsed.faults.join('; '))
const { user, database: name } = parsed.url
const proxy = await MessageProxy.open(parsed.url)
t.teardown(() => proxy.close())
const through = `postgresql://${user}@127.0.0.1:${proxy.port}/${name}`

/** The line is lost behind this commit of the server, before the command hears of it. */
function loseCommit(number: number): void {
  let commits = 0
  proxy.decide = ({ from, type, bytes }) => {
    const isCommit = from === 'server' && type === 'C' && bytes.includes('COMMIT')
    return isCommit && ++commits === number ? { do: 'cut', after: 0 } : { do: 'pass' }
  }
}

const CASES: [args: string[], remedy: RegExp, table: string][] = [
  [['token', 'create', '--for', 'admin@example.com'], /token list shows it if it is: revoke it, for nobody/, 'token'],
  [
    ['agent', 'create', 'Doubtful', '--owner', 'admin@example.com'],
    /that may make a second one: .*agent list/,
    'persona',
  ],
  [['group', 'create', 'Doubtful'], /look at what is stored before you repeat it/, 'user_group'],
]

for (const [args, remedy, table] of CASES) {
  t.test(`76: the connection is lost at the commit: ${args.join(' ')}`, async t => {
    const count = async () =>
      (await sql<{ n: number }>`select count(*)::integer as n from ${sql.table(table)}`.execute(database.db)).rows[0]?.n
    const before = await count()
    loseCommit(1)
    const { status, stderr } = await agentctl({ url: through, args })
    t.equal(await count(), (before ?? 0) + 1, 'it is stored')
    t.equal(status, 76, stderr)
    t.match(stderr, /whether it is stored is not known; /)
    t.match(stderr, remedy)
  })
}

t.test('76: a large document says how much is stored at least', async t => {
  const users = Array.from({ length: 120 }, (_, n) => ({ email: `doubtful.${n}@example.com` }))
  const path = join(t.testdir(), 'large.json')
  writeFileSync(path, JSON.stringify({ version: 1, users, groups: [{ name: 'Doubted' }] }))
  loseCommit(2)
  const { status, stderr } = await agentctl({ url: through, args: ['apply', path] })
  t.equal(status, 76, stderr)
  t.match(stderr, /is not known; apply the document again.*; at least \d+ of 121 changes are stored/)
  proxy.decide = () => ({ do: 'pass' })
  t.equal((await agentctl({ url: through, args: ['apply', path] })).status, 0, 'again goes on')
})
