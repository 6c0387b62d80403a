import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import t from 'tap'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { worldDatabase } from '../world.js'
import { agentctl } from './agentctl.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

/** A line of the shell; `$0 $1` is agentctl. */
function inShell(line: string) {
  const { stdout, stderr, status } = spawnSync('bash', ['-c', line, process.execPath, CLI], { encoding: 'utf8' })
  return { stdout, stderr, status }
}

t.test('standard input of a pipe whose writer is slower is read to its end', async t => {
  const definition = '{"openapi":"3.1.0","info":{"title":"x"},"servers":[{"url":"https://a.example.com"}]'
  const line = `(sleep 1; printf '%s' '${definition}'; sleep 0.2; printf ',"paths":{}}') | "$0" "$1" validate - --json`
  const { stdout, stderr } = inShell(line)
  t.equal(stderr, '')
  t.type(JSON.parse(stdout).ok, 'boolean')
})

t.test('1: standard input that never ends, or is not UTF-8', async t => {
  t.match(inShell(`"$0" "$1" validate - < /dev/zero`), { status: 1, stderr: /standard input has more than 100 MiB/ })
  const latin1 = inShell(`printf 'a: 1\\nb: \\351\\n' | "$0" "$1" validate -`)
  t.match(latin1, { status: 1, stderr: /line 2 of standard input is not UTF-8/ })
})

t.test('1: output that cannot be written', { skip: !existsSync('/dev/full') && 'no /dev/full' }, async t => {
  t.strictSame(inShell(`"$0" "$1" --help > /dev/full`), {
    stdout: '',
    stderr: 'agentctl: standard output cannot be written (ENOSPC)\n',
    status: 1,
  })
})

t.test('the status of a refusal stays when nobody reads its reason; a closed pipe is no error', async t => {
  t.equal(inShell(`"$0" "$1" foo 2>&1 >/dev/null | true; echo $PIPESTATUS`).stdout, '64\n')
  t.equal(inShell(`"$0" "$1" foo 2> /dev/full`).status, 64)
  t.match(inShell(`set -o pipefail; "$0" "$1" --help | head -c 1`), { status: 0, stderr: '' })
})

t.test('1: the connection is lost at the commit: whether it is stored is not known, and what to do', async t => {
  const { url, database } = await worldDatabase(t)
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  const { user, database: name } = parsed.url
  const proxy = await MessageProxy.open(parsed.url)
  t.teardown(() => proxy.close())
  const through = `postgresql://${user}@127.0.0.1:${proxy.port}/${name}`
  const email = 'admin@example.com'
  const document = join(t.testdir(), 'doubtful.yaml')
  writeFileSync(document, 'version: 1\nagents: [{ name: Doubtful }]\n')
  const cases: [args: string[], table: string][] = [
    [['token', 'create', '--for', email], 'token'],
    [['apply', document], 'persona'],
    [['user', 'create', 'doubt@example.com'], 'user_account'],
  ]
  for (const [args, table] of cases) {
    const count = async () =>
      (await sql<{ n: number }>`select count(*)::integer as n from ${sql.table(table)}`.execute(database.db)).rows[0]?.n
    const before = await count()
    let isCut = false
    proxy.decide = ({ from, type, bytes }) => {
      const cuts = !isCut && from === 'server' && type === 'C' && bytes.includes('COMMIT')
      isCut ||= cuts
      return cuts ? { do: 'cut', after: 0 } : { do: 'pass' }
    }
    const { status, stderr } = await agentctl({ url: through, args })
    t.equal(await count(), (before ?? 0) + 1, 'it is stored')
    t.match({ status, stderr }, { status: 1, stderr: /not known whether it is stored; look before you repeat it: / })
  }
})
