import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { addressOf, testDatabase, urlThrough } from '../postgres.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { agentctl } from './agentctl.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

/** Runs a line in the shell. In the line, `$0 $1` is agentctl. */
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

t.test('1: output that cannot be written', { skip: !existsSync('/dev/full') && 'no /dev/full' }, async t => {
  t.strictSame(inShell(`"$0" "$1" --help > /dev/full`), {
    stdout: '',
    stderr: 'agentctl: cannot write to standard output (ENOSPC)\n',
    status: 1,
  })
})

t.test('the status of a refusal stays when nobody reads its reason; a closed pipe is no error', async t => {
  t.equal(inShell(`"$0" "$1" foo 2>&1 >/dev/null | true; echo $PIPESTATUS`).stdout, '64\n')
  t.equal(inShell(`"$0" "$1" foo 2> /dev/full`).status, 64)
  t.match(inShell(`set -o pipefail; "$0" "$1" --help | head -c 1`), { status: 0, stderr: '' })
})

/** Opens a proxy. Returns a function that runs a command line through the proxy and cuts the connection at commit number `commits`. */
async function cutting(t: Test, url: string) {
  const proxy = await MessageProxy.open(addressOf(url))
  t.teardown(() => proxy.close())
  const through = urlThrough(proxy.port, url)
  return async (args: string[], commits: number, env = {}) => {
    let left = commits
    proxy.decide = ({ from, type, bytes }) => {
      const isCommit = from === 'server' && type === 'C' && bytes.includes('COMMIT')
      return isCommit && --left === 0 ? { do: 'cut', after: 0 } : { do: 'pass' }
    }
    return await agentctl({ url: through, args, env })
  }
}

const DOUBT = { status: 75, stderr: /may be stored: look for it with agentctl audit list / }

t.test('75: the connection is lost at a commit: whether it is stored is not known, and what to do', async t => {
  const { url, token, query } = await worldDatabase(t)
  const cut = await cutting(t, url)
  const document = join(t.testdir(), 'doubtful.yaml')
  writeFileSync(document, 'version: 1\nagents: [{ id: 2, name: Doubtful }]\n')
  await token('carol@example.com')
  const [{ id: older }] = (await query`select max(id) as id from token`) as [{ id: number }]
  const stored = async () => (await query`select from audit union all select from access_event`).length
  for (const line of [
    `apply ${document}`,
    'agent owner 2 --to carol@example.com',
    'user create doubt@example.com',
    'user deactivate doubt@example.com',
    'user erase doubt@example.com --yes',
    'token create --for admin@example.com',
    `token revoke ${older}`,
  ]) {
    const before = await stored()
    t.match(await cut(line.split(' '), 1), DOUBT, line)
    t.ok((await stored()) > before, 'it is stored')
  }
  const SECRET_KEYS = [generateKey('new'), TEST_SECRET_KEYS].join(',')
  t.match(await cut(['keys', 'rotate'], 2, { SECRET_KEYS }), DOUBT, 'between two tools')
  const empty = await testDatabase(t)
  t.match(await (await cutting(t, empty.url))(['migrate'], 1), DOUBT)
  t.match(await agentctl({ url: empty.url, args: ['migrate'] }), { status: 0 }, 'it may be repeated')
})
